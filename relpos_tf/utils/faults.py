"""What the machine does to a run: a full disk, too little memory."""

import contextlib
import errno
import pathlib
import re
import sys
from collections.abc import Iterator

from relpos_tf import errors

# EFBIG: a limit on the size of files, as some batch systems set.
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_FULL_TEXT = re.compile(
    r"no space left|disk quota exceeded|file too large", re.IGNORECASE
)
_OPERATION = re.compile(r"\{\{.*?\}\}|\[Op:\w+\]")
# TensorFlow has a class for it, but some libraries below it have none.
_MEMORY_TEXT = re.compile(
    r"\boom\b|out[ _]of[ _]memory|failed to allocate|bad_alloc", re.IGNORECASE
)
AGAIN = "Make room and run again: the run goes on from its last checkpoint."


@contextlib.contextmanager
def writing(path: str | pathlib.Path) -> Iterator[None]:
    """Names the file that cannot be written in the block.

    Raises:
        UserError: in place of an `OSError`.
    """
    try:
        yield
    except OSError as error:
        advice = f" {AGAIN}" if error.errno in _FULL else ""
        reason = (error.strerror or str(error)).lower()
        message = f"Cannot write {path}: {reason}.{advice}"
        raise errors.UserError(message) from error


@contextlib.contextmanager
def explained(memory_advice: str) -> Iterator[None]:
    """Says in one line that memory, or a disk TensorFlow writes to, is full.

    Args:
        memory_advice: str. What to do where memory runs out, a sentence.

    Raises:
        UserError: in place of such an error. Others pass, as does an
            `OSError`, which may name its file.
    """
    try:
        yield
    except (errors.UserError, OSError):
        raise
    except Exception as error:
        if is_full_disk(error):
            text = f"Cannot write: {cause(error)} Make room."
        elif is_out_of_memory(error):
            text = f"Out of memory. {memory_advice}"
        else:
            raise
        raise errors.UserError(text) from error


def os_error_text(error: OSError) -> str | None:
    """Returns `path: reason`, or the reason where the machine is to blame.

    Without a path and for other reasons, None: that is the program's doing.
    """
    reason = f"{(error.strerror or str(error)).lower()}."
    if error.filename is not None:
        return f"{error.filename}: {reason}"
    if error.errno in _FULL:
        return f"{reason} Make room."
    return reason if error.errno == errno.EROFS else None


def is_full_disk(error: BaseException) -> bool:
    """Says whether an error means a full disk, TensorFlow's included."""
    if isinstance(error, OSError):
        return error.errno in _FULL
    found = _FULL_TEXT.search(str(error))
    return _is_from_tensorflow(error) and found is not None


def is_out_of_memory(error: BaseException) -> bool:
    """Says whether an error means that memory ran out, on any device."""
    if isinstance(error, MemoryError):
        return True
    if not _is_from_tensorflow(error) or is_full_disk(error):
        return False
    if type(error).__name__ == "ResourceExhaustedError":
        return True
    return _MEMORY_TEXT.search(str(error)) is not None


def _is_from_tensorflow(error: BaseException) -> bool:
    """Says so without importing it: most commands need it late or never."""
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is None or not hasattr(tensorflow, "errors"):
        return False
    return isinstance(error, tensorflow.errors.OpError)


def cause(error: BaseException) -> str:
    """Returns the line of an error that says what happened, as a sentence.

    Without the names of operations, which TensorFlow puts around it.
    """
    lines = [
        _OPERATION.sub("", line).strip() for line in str(error).split("\n")
    ]
    telling = filter(_FULL_TEXT.search, lines)
    return f"{next(telling, lines[0]).rstrip('.')}."
