"""The user's terminal: messages, a line of progress, text without controls.

Progress is the terminal's last line, written over again and again by `show`.
Any other output calls `clear` first.
"""

import contextlib
import io
import logging
import os
import re
import shutil
import sys
import textwrap
import time
from collections.abc import Callable
from typing import Any

_log = logging.getLogger("relpos_tf")

# Seconds between two lines of progress at a terminal, and of silence in a log.
_SHOW_SECONDS, _LOG_SECONDS = 0.1, 30.0
_WHOLE = re.compile(r"(\[\d+/\d+\] )?  ")
# For `textwrap`: a path or a flag may be copied.
WHOLE_WORDS: Any = {"break_long_words": False, "break_on_hyphens": False}
_ERASE = "\r\x1b[K"
# All control characters but the tabulator and the line feed, and the marks of
# writing direction: a terminal obeys them.
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
)


class _Last:
    """The state of the line of progress."""

    is_visible = False
    time = time.monotonic()  # when it was shown or logged


def printable(line: str) -> str:
    r"""Returns text of any origin as it may be shown.

    Example:
    >>> printable("red: \x1b[31m")
    'red: \\x1b[31m'
    """
    return _CONTROLS.sub(
        lambda match: match[0].encode("unicode_escape").decode(), line
    )


class _Messages(io.FileIO):
    """A file that drops what cannot be written."""

    def write(self, content):
        with contextlib.suppress(OSError):
            if written := super().write(content):
                return written
        return len(content)


def drop_failed_messages() -> None:
    """Lets no write to `sys.stderr` fail, and with it the work.

    Its terminal may be closed, its reader gone (`| head`), its disk full. A
    stream that is not the process's own stays.
    """
    if sys.stderr is None:  # `2>&-`: no other file may get the descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    if sys.stderr is sys.__stderr__:
        encoding = getattr(sys.stderr, "encoding", "utf-8")
        file = io.BufferedWriter(_Messages(2, "w", closefd=False))
        sys.stderr = sys.__stderr__ = io.TextIOWrapper(  # type: ignore[misc]
            file, encoding, "backslashreplace", line_buffering=True
        )


def show(make: Callable[[], str], is_logged: bool = False) -> None:
    """Shows a line of progress until the next one, if there is a terminal.

    Args:
        make: Function that returns the line. It is called at most ten times a
            second, however often `show` is.
        is_logged: bool. Without a terminal, log a line once there was none for
            30 seconds.
    """
    is_terminal = sys.stderr.isatty()
    now = time.monotonic()
    pause = _LOG_SECONDS
    if is_terminal:
        pause = _SHOW_SECONDS if _Last.is_visible else 0.0
    if now < _Last.time + pause or not (is_terminal or is_logged):
        return
    _Last.time = now
    if not is_terminal:
        _log.info("%s", make())
    elif _log.isEnabledFor(logging.INFO):
        line = printable(make().replace("\n", " "))
        columns = shutil.get_terminal_size().columns
        _Last.is_visible = True  # also if a signal comes in the next line
        sys.stderr.write(f"{_ERASE}{line[: columns - 1]}")
        sys.stderr.flush()


def clear() -> None:
    """Removes the line of progress, to make room for a line that stays."""
    if _Last.is_visible:
        sys.stderr.write(_ERASE)
        sys.stderr.flush()
    _Last.is_visible, _Last.time = False, time.monotonic()


def counting(name: str, total: int = 0) -> Callable[[int], None]:
    """Returns a function that shows how much is done, from now on.

    Args:
        name: str. What is counted, as for `progress`.
        total: int. How many there are; 0: unknown.
    """
    begun = time.monotonic()

    def show_count(done: int) -> None:
        speed = done / max(time.monotonic() - begun, 1e-9)
        show(lambda: progress(name, done, total, speed), is_logged=True)

    return show_count


def progress(name: str, done: int, total: int, speed: float, *more: str) -> str:
    """Returns a line of progress.

    Args:
        name: str. What is counted; its last word takes the plural by an "s".
        done: int. How many are done.
        total: int. How many there are; 0: unknown.
        speed: float. How many are done in a second; 0: unknown.
        *more: What else there is to say; the first comes before the speed.

    Example:
    >>> progress("step", 31, 300, 0.5, "loss 7.48", "epoch 0.4")
    'step 31/300  loss 7.48  0.5 steps/s  epoch 0.4  9 min left'
    """
    of_total = f"/{total:,}" if total else ""
    parts = [f"{name} {done:,}{of_total}", *more]
    if speed:
        unit = name.rpartition(" ")[2]
        parts.insert(2 if more else 1, f"{rate(speed)} {unit}s/s")
        if total > done:
            parts.append(f"{duration((total - done) / speed)} left")
    return "  ".join(parts)


def duration(seconds: float) -> str:
    """Formats seconds as hours and minutes, or as one unit.

    Example:
    >>> duration(58.7), duration(539.0), duration(3725.4)
    ('59 s', '9 min', '1 h 2 min')
    """
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours:,} h {minutes} min" if hours else f"{minutes} min"


def rate(value: float) -> str:
    """Formats a number per second.

    Example:
    >>> rate(1234.5), rate(31.25), rate(0.5678), rate(0.0123)
    ('1,234', '31.2', '0.57', '0.012')
    """
    digits = int(value < 100)
    return f"{value:,.{digits}f}" if value >= 1 else f"{value:.2g}"


def wrapped(text: str, stream: Any) -> str:
    """Returns text whose lines fit the terminal of a stream, if it is one.

    Lines that begin with two blanks, as commands to copy, stay whole, also
    behind the place of a job, `[1/2] `.
    """
    if not stream.isatty():
        return text
    columns = max(shutil.get_terminal_size().columns - 1, 20)
    wrapper = textwrap.TextWrapper(columns, **WHOLE_WORDS)
    wrapper.subsequent_indent = "  "
    lines = text.split("\n")
    return "\n".join(x if _WHOLE.match(x) else wrapper.fill(x) for x in lines)
