"""The main memory of this process: its peak, and the reuse of freed blocks."""

import contextlib
import ctypes
import pathlib
import sys

# Of mallopt, in the C library of GNU: M_MMAP_MAX, M_TRIM_THRESHOLD, M_TOP_PAD.
_KEEP = {-4: 0, -1: 2**31 - 1, -2: 2**26}


def peak_mb() -> float:
    """Returns the peak main memory of this process, in MiB."""
    # Linux counts that of the process that started this one in `ru_maxrss`.
    with contextlib.suppress(OSError, IndexError):
        status = pathlib.Path("/proc/self/status").read_text("utf-8", "replace")
        return int(status.split("VmHWM:")[1].split()[0]) / 2**10
    import resource  # Windows has none.

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # In KiB, on macOS in bytes.
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def keep_freed() -> None:
    """Makes the C library keep freed memory for reuse, if it is that of GNU.

    A training step needs the same large blocks again and again. The C library
    returns blocks above 32 MiB to the system, which fills them with zeros at
    the next use: a twentieth of a step on two cores. The peak of a step stays
    the same; after it, the process no longer shrinks.
    """
    with contextlib.suppress(AttributeError):  # of another C library
        for name, value in _KEEP.items():
            ctypes.CDLL(None).mallopt(name, value)
