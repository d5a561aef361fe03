"""The main memory of this process: its peak, and the reuse of freed blocks."""

import contextlib
import ctypes
import resource
import sys

# Of mallopt, in the C library of GNU.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4


def peak_mb() -> float:
    """Returns the peak main memory of this process, in MiB."""
    # Linux counts that of the process that started this one in `ru_maxrss`.
    with contextlib.suppress(OSError):
        with open("/proc/self/status", encoding="ascii") as file:
            for line in file:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) / 2**10
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # In KiB, on macOS in bytes.
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def keep_freed() -> bool:
    """Makes the C library keep freed memory for reuse.

    A training step needs the same large blocks again and again. The C library
    returns blocks above 32 MiB to the system, which fills them with zeros at
    the next use: a twentieth of a step on two cores. The peak of a step stays
    the same; after it, the process no longer shrinks.

    Returns:
        Whether the C library can do it; otherwise nothing has changed.
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
