"""Errors of the system, in one line: a full disk, too little memory."""

import errno
import os
import re
import sys

from relpos_tf import errors

# EFBIG: a limit on the size of files, as some batch systems set.
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_FULL_TEXT = re.compile(
    r"no space left on device|disk quota exceeded|file too large", re.IGNORECASE
)
# Of a `UserError` in a thread of TensorFlow.
_OWN_TEXT = re.compile(r"(?<=\bUserError: ).*")
# Not all libraries below TensorFlow use its class for it.
_MEMORY_TEXT = re.compile(
    r"ResourceExhausted|\boom\b|out[ _]of[ _]memory|failed to allocate|"
    r"bad_alloc",
    re.IGNORECASE,
)


def explanation(error: Exception) -> str | None:
    """Returns one line about an error, or None for a bug of the program.

    It is that of a `UserError`, of a path, of a full disk, which may not name
    its path, or of memory that ran out.
    """
    if isinstance(error, errors.UserError):
        return str(error)
    if found := _tensorflow_says(error, _OWN_TEXT):
        return found
    if is_out_of_memory(error):
        return (
            "Out of memory. Take a smaller batch_size or beam, or shorter "
            "lines: max_length trains on them, max_input_size cuts them."
        )
    if found := _tensorflow_says(error, _FULL_TEXT):
        return f"TensorFlow cannot write: {found.lower()}. Make room."
    if not isinstance(error, OSError):
        return None
    reason = f"{(error.strerror or str(error)).lower()}."
    if error.filename is None:
        return f"{reason} Make room." if error.errno in FULL else None
    if error.errno in FULL:
        folder = os.path.dirname(os.path.abspath(error.filename))
        reason += f" Make room in {folder}."
    return f"{error.filename}: {reason}"


def is_out_of_memory(error: BaseException) -> bool:
    """Returns whether an error means that memory ran out, on any device."""
    if _tensorflow_says(error, _FULL_TEXT):
        return False
    found = isinstance(error, MemoryError)
    return found or bool(_tensorflow_says(error, _MEMORY_TEXT))


def _tensorflow_says(error: BaseException, pattern: re.Pattern) -> str:
    """Returns what fits a pattern in an error of TensorFlow, or ""."""
    # Not imported here, which takes seconds.
    known = getattr(sys.modules.get("tensorflow"), "errors", None)
    if known is None or not isinstance(error, known.OpError):
        return ""
    found = pattern.search(f"{type(error).__name__}: {error}")
    return found[0] if found else ""
