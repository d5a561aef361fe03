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
    r"no space left on device|disk quota exceeded|file too large", re.IGNORECASE
)
# TensorFlow's class for it is not used by all libraries below TensorFlow.
_MEMORY_TEXT = re.compile(
    r"\boom\b|out[ _]of[ _]memory|failed to allocate|bad_alloc", re.IGNORECASE
)


@contextlib.contextmanager
def writing(
    path: str | pathlib.Path, is_folder: bool = False
) -> Iterator[None]:
    """Names the file that the block could not write.

    Args:
        path: The file.
        is_folder: bool. The block writes several files in the folder `path`:
            only the errors of a full disk, which name no file, are its own.

    Raises:
        UserError: in place of an `OSError`.
    """
    try:
        yield
    except OSError as error:
        if is_folder and error.errno not in _FULL:
            raise
        advice = ""
        if error.errno in _FULL:
            advice = " Make room and run the same command again."
        message = f"Cannot write {path}: {_reason(error)}.{advice}"
        raise errors.UserError(message) from error


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
    except Exception as error:
        if is_out_of_memory(error):
            text = f"Out of memory. {memory_advice}"
        elif found := _full_text(error):
            text = f"TensorFlow cannot write: {found}. Make room."
        else:
            raise
        raise errors.UserError(text) from error


def os_error_text(error: OSError) -> str | None:
    """Returns "path: reason", or the reason alone if the disk is the cause.

    None for other errors without a path, which are bugs of the program.
    """
    if error.filename is not None:
        return f"{error.filename}: {_reason(error)}."
    if error.errno in _FULL:
        return f"{_reason(error)}. Make room."
    return f"{_reason(error)}." if error.errno == errno.EROFS else None


def is_out_of_memory(error: BaseException) -> bool:
    """Returns whether an error means that memory ran out, on any device."""
    if not _is_from_tensorflow(error) or _full_text(error):
        return isinstance(error, MemoryError)
    return type(error).__name__ == "ResourceExhaustedError" or bool(
        _MEMORY_TEXT.search(str(error))
    )


def _full_text(error: BaseException) -> str:
    """Returns the words of TensorFlow's error of a full disk, or ""."""
    found = _is_from_tensorflow(error) and _FULL_TEXT.search(str(error))
    return found[0].lower() if found else ""


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def _is_from_tensorflow(error: BaseException) -> bool:
    """Tests the class without importing TensorFlow, which takes seconds."""
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is None or not hasattr(tensorflow, "errors"):
        return False
    return isinstance(error, tensorflow.errors.OpError)
