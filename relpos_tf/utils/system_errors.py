"""Errors of the system, in one line: a full disk, too little memory."""

import contextlib
import errno
import re
import sys
from collections.abc import Iterator

from relpos_tf import errors

# EFBIG: a limit on the size of files, as some batch systems set.
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_FULL_TEXT = re.compile(
    r"no space left on device|disk quota exceeded|file too large", re.IGNORECASE
)
# Not all libraries below TensorFlow use its class for it.
_MEMORY_TEXT = re.compile(
    r"ResourceExhausted|\boom\b|out[ _]of[ _]memory|failed to allocate|"
    r"bad_alloc",
    re.IGNORECASE,
)


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
        elif found := _tensorflow_says(error, _FULL_TEXT):
            text = f"TensorFlow cannot write: {found}. Make room."
        else:
            raise
        raise errors.UserError(text) from error


def os_error_text(error: OSError) -> str | None:
    """Returns "path: reason", or the reason alone if the disk is the cause.

    None for other errors without a path, which are bugs of the program.
    """
    advice = " Make room." if error.errno in FULL else ""
    reason = f"{(error.strerror or str(error)).lower()}.{advice}"
    if error.filename is not None:
        return f"{error.filename}: {reason}"
    return reason if advice else None


def is_out_of_memory(error: BaseException) -> bool:
    """Returns whether an error means that memory ran out, on any device."""
    if _tensorflow_says(error, _FULL_TEXT):
        return False
    is_tensorflow = _tensorflow_says(error, _MEMORY_TEXT)
    return isinstance(error, MemoryError) or bool(is_tensorflow)


def _tensorflow_says(error: BaseException, pattern: re.Pattern) -> str:
    """Returns what fits a pattern in an error of TensorFlow, or ""."""
    # Not imported here, which takes seconds.
    tensorflow = sys.modules.get("tensorflow")
    if not hasattr(tensorflow, "errors"):
        return ""
    if not isinstance(error, tensorflow.errors.OpError):
        return ""
    found = pattern.search(f"{type(error).__name__}: {error}")
    return found[0].lower() if found else ""
