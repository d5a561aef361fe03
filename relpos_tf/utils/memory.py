"""The main memory of this process: how much it took, and what it keeps."""

import ctypes
import resource
import sys

# Of mallopt, in the C library of GNU.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4


def peak_mb() -> float:
    """Returns the most main memory that this process held, in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # In KiB, on macOS in bytes.
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def keep_freed() -> bool:
    """Has the C library keep memory that is freed, for what comes next.

    A training step needs the same large blocks again and again. The C library
    returns those above 32 MiB to the system, which fills them with zeros, page
    by page, the next time: a twentieth of a step on two cores. The peak of
    a step stays what it was; after it, the process no longer shrinks.

    Returns:
        Whether there is such a library here; otherwise nothing has changed.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # not Linux, or a smaller library
        return False
    return all(
        mallopt(name, value)
        for name, value in (
            (_MMAP_MAX, 0),
            (_TRIM_THRESHOLD, 2**31 - 1),
            (_TOP_PAD, 2**26),
        )
    )
