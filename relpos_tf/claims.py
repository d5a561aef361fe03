"""One process at a time in a directory that it writes.

Two trainers in one run would remove each other's half-written checkpoints and
events: the same command typed twice, or a job that was started again while the
first still ran.
"""

import errno
import os
import pathlib

from relpos_tf import errors

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

_TAKEN = frozenset({errno.EAGAIN, errno.EACCES})
# Descriptors of the directories that this process has claimed. The claim ends
# with the process, however that ends.
_claimed: dict[pathlib.Path, int] = {}


def claim(directory: str | pathlib.Path) -> None:
    """Claims a directory until the process ends. Makes it if need be.

    On a file system that knows no locks it does nothing.

    Raises:
        UserError: another process has claimed it.
    """
    directory = pathlib.Path(directory).resolve()
    if fcntl is None or directory in _claimed:
        return
    directory.mkdir(parents=True, exist_ok=True)
    # The directory itself: a file in it would have to be removed.
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if error.errno in _TAKEN:
            raise errors.UserError(
                f"Another process is training in {directory}. Wait for it, "
                "stop it, or name another --output_dir. Meanwhile "
                "relpos-translate_all and relpos-bleu score its checkpoints."
            ) from error
    else:
        _claimed[directory] = descriptor


def is_claimed(directory: str | pathlib.Path) -> bool:
    """Says whether a living process has claimed a directory.

    True where that cannot be known.
    """
    if fcntl is None:
        return True
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False
