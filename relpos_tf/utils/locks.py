"""Locks on directories: one process that writes, or any number that read.

Two trainers in one run, as when a command is typed twice, would remove each
other's half-written checkpoints and events. A trainer whose data were replaced
would read the new records as its own.

A lock ends with its process, however that ends. On a file system without locks
these functions lock nothing.
"""

import contextlib
import errno
import os
import pathlib
import time
from collections.abc import Iterator
from typing import BinaryIO

from relpos_tf import errors

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

_TAKEN = frozenset({errno.EAGAIN, errno.EACCES})
# Descriptors of the directories that this process has locked.
_exclusive: dict[pathlib.Path, int] = {}
_shared: dict[pathlib.Path, int] = {}
# Seconds that another process may take to put a directory in place.
_PATIENCE = 60.0
_PAUSE = 0.1


def acquire_exclusive(directory: str | pathlib.Path) -> None:
    """Locks a directory until the process ends. Makes it if need be.

    Raises:
        UserError: another process has locked it.
    """
    directory = pathlib.Path(directory).resolve()
    if fcntl is None or directory in _exclusive:
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
        _exclusive[directory] = descriptor


def release(directory: str | pathlib.Path) -> None:
    """Ends an exclusive lock, also if the directory was renamed since."""
    descriptor = _exclusive.pop(pathlib.Path(directory).resolve(), None)
    if descriptor is not None:
        os.close(descriptor)


def acquire_shared(directory: str | pathlib.Path) -> None:
    """Keeps a directory from being replaced until the process ends.

    Any number of processes may do so at once.

    Raises:
        UserError: another process keeps it locked exclusively.
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
    # The directory that had this name before may have been replaced.
    _release_shared(directory)
    if descriptor is not None:
        _shared[directory] = descriptor


@contextlib.contextmanager
def try_exclusive(directory: str | pathlib.Path) -> Iterator[bool | None]:
    """Locks a directory during the block, if no other process has locked it.

    Yields:
        Whether it is locked now; None if that cannot be known. A shared lock
        of this process is suspended during the block.
    """
    directory = pathlib.Path(directory).resolve()
    if fcntl is None:
        yield None
        return
    is_shared = _release_shared(directory)
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
        if is_shared and directory.is_dir():
            acquire_shared(directory)


def is_locked(directory: str | pathlib.Path) -> bool:
    """Returns whether a process has locked a directory; True if unknown."""
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


def mark_open(file: BinaryIO) -> None:
    """Makes `is_open` true for a file until all that inherit it have ended."""
    if fcntl is not None:
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_open(path: str | pathlib.Path) -> bool:
    """Returns whether a process has a file that `mark_open` marked."""
    if fcntl is None or not pathlib.Path(path).is_file():
        return False
    with open(path, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return error.errno in _TAKEN
    return False


def _lock(directory: pathlib.Path, operation: int) -> int | None:
    """Returns the descriptor of a locked directory; None without locks.

    Raises:
        BlockingIOError: another process has locked it.
    """
    while True:
        # The directory itself: a lock file in it would have to be removed.
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
            # Another directory may have taken its name since it was opened.
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


def _release_shared(directory: pathlib.Path) -> bool:
    """Ends a shared lock; returns whether there was one."""
    descriptor = _shared.pop(directory, None)
    if descriptor is not None:
        os.close(descriptor)
    return descriptor is not None
