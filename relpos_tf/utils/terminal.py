"""The user's terminal: a line of progress.

Progress is the terminal's last line, written over again and again by `show`.
Files and pipes get no progress. Any other output calls `clear` first.
"""

import logging
import os
import re
import sys
import threading
import time
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from typing import Any

_log = logging.getLogger("relpos_tf")

# Seconds between two lines of progress, in a log and at a terminal.
_LOG_SECONDS = 30
_SHOW_SECONDS = 0.1
_COLUMNS = 80  # if the terminal does not say
# All control characters but the tabulator and the line feed, and the marks of
# writing direction: a terminal obeys them.
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
)


class _Shown:
    """The state of the line of progress."""

    lock = threading.RLock()
    width = 0  # of the visible line, 0 without one
    due = 0.0  # time of the next one


def printable(line: str) -> str:
    r"""Returns text of any origin as it may be shown.

    Example:

    >>> printable("red: \x1b[31m")
    'red: \\x1b[31m'
    """
    return _CONTROLS.sub(
        lambda match: match[0].encode("unicode_escape").decode(), line
    )


def show(make: Callable[[], str]) -> None:
    """Shows a line of progress until the next one, if there is a terminal.

    Args:
        make: Function that returns the line. It is called at most ten times a
            second, however often `show` is.
    """
    with _Shown.lock:
        now = time.monotonic()
        if now < _Shown.due or not _shows_progress():
            return
        line = printable(make().replace("\n", " "))[: _columns() - 1]
        sys.stderr.write(f"\r{line.ljust(_Shown.width)}")
        sys.stderr.flush()
        _Shown.width, _Shown.due = len(line), now + _SHOW_SECONDS


def clear() -> None:
    """Removes the line of progress, to make room for a line that stays."""
    with _Shown.lock:
        if _Shown.width:
            sys.stderr.write(f"\r{' ' * _Shown.width}\r")
            sys.stderr.flush()
        _Shown.width, _Shown.due = 0, 0.0


def counted(items: Iterable[Any], label: str) -> Iterator[Any]:
    """Yields items, and shows their number so far behind `label`."""
    for number, item in enumerate(items, start=1):
        show(lambda number=number: f"{label} {number}")
        yield item


def _shows_progress() -> bool:
    return _log.isEnabledFor(logging.INFO) and sys.stderr.isatty()


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or _COLUMNS
    except (OSError, ValueError):
        return _COLUMNS


class LineProgress:
    """Tells the user now and then how many lines are done."""

    def __init__(self):
        self._logged = time.monotonic()

    def __call__(self, lines: int) -> None:
        if _shows_progress():
            show(lambda: f"Lines so far: {lines}")
        elif time.monotonic() - self._logged >= _LOG_SECONDS:
            _log.info("Lines so far: %d.", lines)
            self._logged = time.monotonic()


class RateProgress:
    """Tells the user now and then how much is done, and how long it takes.

    Args:
        task: str. What is done: "Encoding".
        unit: str. To what: "pairs".
        total: int. How many of them there are; 0 if that is unknown.
        clock: Function without arguments that returns seconds.
    """

    def __init__(
        self,
        task: str,
        unit: str,
        total: int,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._task, self._unit, self._total = task, unit, total
        self._clock, self._done = clock, 0
        self._start = self._logged = clock()

    def add(self, number: int) -> None:
        """Notes that so many more are done."""
        self._done += number
        if _shows_progress():
            show(self.line)
        elif self._clock() - self._logged >= _LOG_SECONDS:
            _log.info("%s.", self.line())
            self._logged = self._clock()

    def line(self) -> str:
        """Returns the state: what is done, how fast, and the time left."""
        rate = self._done / max(self._clock() - self._start, 1e-9)
        line = (
            f"{self._task}: {self._done:,} {self._unit}, {rate:,.0f} a second"
        )
        left = max(self._total - self._done, 0)
        if left and rate:
            line += f", {_duration(left / rate)} left"
        return line


def _duration(seconds: float) -> str:
    """Returns a time as a user reads it.

    Example:

    >>> _duration(59), _duration(3599), _duration(7300)
    ('59 s', '60 min', '2 h 2 min')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return (
        f"{minutes // 60} h {minutes % 60} min"
        if minutes > 90
        else f"{minutes} min"
    )
