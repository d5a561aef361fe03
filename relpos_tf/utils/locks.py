"""One process at a time in a directory that it writes, any number that read.

Two trainers in one run would remove each other's half-written checkpoints and
events: the same command typed twice, or a job that was started again while the
first still ran. A trainer whose data were replaced would read the others as
its own.
"""

import contextlib
import errno
import os
import pathlib
import time
from collections.abc import Iterator

from relpos_tf import errors

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

_TAKEN = frozenset({errno.EAGAIN, errno.EACCES})
# Descriptors of the directories that this process has claimed, and of those
# that it holds. They end with the process, however that ends.
_claimed: dict[pathlib.Path, int] = {}
_held: dict[pathlib.Path, int] = {}
# Seconds in which another process has put a directory in place.
_PATIENCE = 60.0
_PAUSE = 0.1


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
    try:
        descriptor = _lock(directory, fcntl.LOCK_EX)
    except BlockingIOError as error:
        raise errors.UserError(
            f"Another process is training in {directory}. Wait for it, "
            "stop it, or name another --output_dir. Meanwhile "
            "relpos-translate_all and relpos-bleu score its checkpoints."
        ) from error
    if descriptor is not None:
        _claimed[directory] = descriptor


def release(directory: str | pathlib.Path) -> None:
    """Ends what `claim` began, also where the directory was renamed."""
    descriptor = _claimed.pop(pathlib.Path(directory).resolve(), None)
    if descriptor is not None:
        os.close(descriptor)


def hold(directory: str | pathlib.Path) -> None:
    """Keeps a directory from being replaced until the process ends.

    Any number of processes may hold it. On a file system that knows no locks
    it does nothing.

    Raises:
        UserError: another process has claimed it and does not let go.
    """
    directory = pathlib.Path(directory).resolve()
    if fcntl is None:
        return
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            descriptor = _lock(directory, fcntl.LOCK_SH)
            break
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                raise errors.UserError(
                    f"Another process is replacing {directory}. Wait for it "
                    "and run again."
                ) from error
            time.sleep(_PAUSE)
    # What was held under this name may have been replaced since.
    _drop(directory)
    if descriptor is not None:
        _held[directory] = descriptor


@contextlib.contextmanager
def sole(directory: str | pathlib.Path) -> Iterator[bool | None]:
    """Says whether no other process has a directory; none gets it in the block.

    Yields:
        False where another process has claimed or holds it; None where that
        cannot be known. What this process holds, it holds again afterwards.
    """
    directory = pathlib.Path(directory).resolve()
    if fcntl is None:
        yield None
        return
    is_held = _drop(directory)
    descriptor, is_taken = None, False
    try:
        descriptor = _lock(directory, fcntl.LOCK_EX)
    except BlockingIOError:
        is_taken = True
    try:
        yield False if is_taken else (None if descriptor is None else True)
    finally:
        if descriptor is not None:
            os.close(descriptor)
        if is_held and directory.is_dir():
            hold(directory)


def is_claimed(directory: str | pathlib.Path) -> bool:
    """Says whether a living process has claimed or holds a directory.

    True where that cannot be known.
    """
    if fcntl is None:
        return True
    try:
        descriptor = _lock(pathlib.Path(directory), fcntl.LOCK_EX)
    except BlockingIOError:
        return True
    if descriptor is None:
        return True
    os.close(descriptor)
    return False


def _lock(directory: pathlib.Path, operation: int) -> int | None:
    """Locks a directory; returns its descriptor, None where locks are unknown.

    Raises:
        BlockingIOError: another process has it.
    """
    while True:
        # The directory itself: a file in it would have to be removed.
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
            # Meanwhile another one may have taken its place.
            if os.path.samestat(os.fstat(descriptor), os.stat(directory)):
                return descriptor
        except FileNotFoundError:
            pass
        except OSError as error:
            os.close(descriptor)
            if error.errno in _TAKEN:
                raise BlockingIOError(*error.args) from error
            return None
        os.close(descriptor)


def _drop(directory: pathlib.Path) -> bool:
    """Ends what `hold` began; says whether it had."""
    descriptor = _held.pop(directory, None)
    if descriptor is not None:
        os.close(descriptor)
    return descriptor is not None
