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
import time
from collections.abc import Callable

_log = logging.getLogger("relpos_tf")

# Seconds between two lines of progress, at a terminal and in a log.
_SHOW_SECONDS, _LOG_SECONDS = 0.1, 30
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
        is_logged: bool. Without a terminal, log a line every 30 seconds.
    """
    is_terminal = sys.stderr.isatty()
    now = time.monotonic()
    due = _Last.time + (_SHOW_SECONDS if is_terminal else _LOG_SECONDS)
    if now < due or not (is_terminal or is_logged):
        return
    _Last.time = now
    if not is_terminal:
        _log.info("%s.", make())
    elif _log.isEnabledFor(logging.INFO):
        line = printable(make().replace("\n", " "))
        columns = shutil.get_terminal_size().columns
        sys.stderr.write(f"{_ERASE}{line[: columns - 1]}")
        sys.stderr.flush()
        _Last.is_visible = True


def clear() -> None:
    """Removes the line of progress, to make room for a line that stays."""
    if _Last.is_visible:
        sys.stderr.write(_ERASE)
        sys.stderr.flush()
        _Last.is_visible, _Last.time = False, 0.0
