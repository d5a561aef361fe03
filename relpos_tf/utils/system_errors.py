"""Errors of the system, in one line: a full disk, too little memory."""

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
# TensorFlow's class for it is not used by all libraries below TensorFlow.
_MEMORY_TEXT = re.compile(
    r"\boom\b|out[ _]of[ _]memory|failed to allocate|bad_alloc", re.IGNORECASE
)
RESUME_ADVICE = (
    "Make room and run again: the run goes on from its last checkpoint."
)


@contextlib.contextmanager
def writing(path: str | pathlib.Path) -> Iterator[None]:
    """Names the file that the block could not write.

    Raises:
        UserError: in place of an `OSError`.
    """
    try:
        yield
    except OSError as error:
        advice = f" {RESUME_ADVICE}" if error.errno in _FULL else ""
        message = f"Cannot write {path}: {_reason(error)}.{advice}"
        raise errors.UserError(message) from error


@contextlib.contextmanager
def filling(folder: str | pathlib.Path, advice: str) -> Iterator[None]:
    """Names the folder whose disk the block has filled.

    The system names no file in such an error.

    Args:
        folder: Where the block writes.
        advice: str. A sentence: what to do.

    Raises:
        UserError: in place of an error of a full disk. Others pass.
    """
    try:
        yield
    except OSError as error:
        if not is_full_disk(error):
            raise
        raise errors.UserError(
            f"Cannot write in {folder}: {_reason(error)}. {advice}"
        ) from error


@contextlib.contextmanager
def explained(memory_advice: str) -> Iterator[None]:
    """Explains errors of memory and of TensorFlow's writing in one line.

    Args:
        memory_advice: str. A sentence: what to do if memory runs out.

    Raises:
        UserError: in place of such an error. Other errors pass, as does an
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
    """Returns "path: reason", or the reason alone if the disk is the cause.

    None for other errors without a path, which are bugs of the program.
    """
    reason = f"{_reason(error)}."
    if error.filename is not None:
        return f"{error.filename}: {reason}"
    if error.errno in _FULL:
        return f"{reason} Make room."
    return reason if error.errno == errno.EROFS else None


def is_full_disk(error: BaseException) -> bool:
    """Returns whether an error means a full disk, TensorFlow's included."""
    if isinstance(error, OSError):
        return error.errno in _FULL
    return _is_from_tensorflow(error) and bool(_FULL_TEXT.search(str(error)))


def is_out_of_memory(error: BaseException) -> bool:
    """Returns whether an error means that memory ran out, on any device."""
    if isinstance(error, MemoryError):
        return True
    if not _is_from_tensorflow(error) or is_full_disk(error):
        return False
    if type(error).__name__ == "ResourceExhaustedError":
        return True
    return bool(_MEMORY_TEXT.search(str(error)))


def cause(error: BaseException) -> str:
    """Returns the most telling line of a TensorFlow error, as a sentence.

    The names of operations that TensorFlow adds are removed.
    """
    lines = [
        _OPERATION.sub("", line).strip() for line in str(error).split("\n")
    ]
    telling = filter(_FULL_TEXT.search, lines)
    return f"{next(telling, lines[0]).rstrip('.')}."


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def _is_from_tensorflow(error: BaseException) -> bool:
    """Tests the class without importing TensorFlow, which takes seconds."""
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is None or not hasattr(tensorflow, "errors"):
        return False
    return isinstance(error, tensorflow.errors.OpError)
