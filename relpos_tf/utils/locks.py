"""Locks on folders and files. A lock ends with its process, however that ends.

Two trainers in one run, as when a command is typed twice, would remove each
other's half-written checkpoints and events. On a file system without locks
nothing is locked, and nothing that another process may write is removed.
"""

import os
import pathlib
import sys

from relpos_tf import errors

try:
    import fcntl
except ModuleNotFoundError:  # on Windows
    fcntl = None  # type: ignore[assignment]

_locked: set[pathlib.Path] = set()


def check_system(task: str) -> None:
    """Refuses a system without locks.

    Args:
        task: str. What needs them, for the message.

    Raises:
        UserError: this is such a system.
    """
    if fcntl is None:
        raise errors.UserError(
            f"Expected Linux or macOS, which {task} needs. Received: "
            f"{sys.platform}, where only the Keras layers work, and Translator "
            "with exports for CTranslate2. On Windows, use WSL."
        )


def acquire_exclusive(directory: str | pathlib.Path) -> None:
    """Locks a directory until the process ends. Makes it if need be.

    Raises:
        UserError: another process has locked it.
    """
    directory = pathlib.Path(directory).resolve()
    if directory in _locked:
        return
    directory.mkdir(parents=True, exist_ok=True)
    # The directory itself: a lock file in it would have to be removed. The
    # descriptor stays open, and with it the lock.
    if lock(os.open(directory, os.O_RDONLY)) is False:
        raise errors.UserError(
            f"Another process is training in {directory}. Wait for it, "
            "stop it, or name another --output_dir."
        )
    _locked.add(directory)


def is_locked(path: str | pathlib.Path) -> bool:
    """Returns whether a process may have locked a directory or a file."""
    if not os.path.exists(path):
        return False
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return lock(descriptor) is not True
    finally:
        os.close(descriptor)


def lock(descriptor: int) -> bool | None:
    """Locks an open file until all processes that inherit it have ended.

    Returns False if another process has locked it, None if the file system has
    no locks.

    Raises:
        UserError: see `check_system`.
    """
    check_system("writing files")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        is_taken = isinstance(error, BlockingIOError | PermissionError)
        return False if is_taken else None
    return True
