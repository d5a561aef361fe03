"""A person at a terminal: a prompt, a history, Ctrl-C, signs of progress.

Progress is the terminal's last line, written over again and again: `show`. A
file or a pipe in the place of the terminal gets none of it. Whatever else goes
to the terminal calls `clear` first.

The history is a file of the user's, where programs keep such state, and not
of the run, which others may be given.
"""

import contextlib
import functools
import logging
import os
import pathlib
import sys
import threading
import time
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from typing import Any

from relpos_tf.utils import text

_log = logging.getLogger("relpos_tf")

PROMPT = "> "
# Names the file of the history; empty: none is kept.
HISTORY_VARIABLE = "RELPOS_TF_HISTORY"
_HISTORY_LINES = 1000
# Names a thread whose result, and whose warnings, nobody wants any more.
UNHEARD = "unheard"
# Between two signs of progress in a file, and at a terminal.
_PROGRESS_SECONDS = 30
_MOVING_SECONDS = 0.1
_COLUMNS = 80  # of a terminal that does not say


class _Shown:
    """What the moving line is by now."""

    lock = threading.RLock()
    width = 0  # of the line that is to be seen, 0 where there is none
    due = 0.0  # when another may come


def show(make: Callable[[], str]) -> None:
    """Shows a line until the next one; does nothing without a terminal.

    Args:
        make: Function that returns the line. Called some times a second at
            most, however often `show` is.
    """
    with _Shown.lock:
        now = time.monotonic()
        if now < _Shown.due or not _has_moving_line():
            return
        line = text.printable(make().replace("\n", " "))[: _columns() - 1]
        sys.stderr.write(f"\r{line.ljust(_Shown.width)}")
        sys.stderr.flush()
        _Shown.width, _Shown.due = len(line), now + _MOVING_SECONDS


def clear() -> None:
    """Removes what `show` shows, to make room for a line that stays."""
    with _Shown.lock:
        if _Shown.width:
            sys.stderr.write(f"\r{' ' * _Shown.width}\r")
            sys.stderr.flush()
        _Shown.width, _Shown.due = 0, 0.0


def counted(items: Iterable[Any], what: str) -> Iterator[Any]:
    """Yields items, and shows how many there were.

    Args:
        items: Any.
        what: str. Stands before the number.
    """
    for number, item in enumerate(items, start=1):
        show(lambda number=number: f"{what} {number}")
        yield item


def _has_moving_line() -> bool:
    return _log.isEnabledFor(logging.INFO) and sys.stderr.isatty()


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or _COLUMNS
    except (OSError, ValueError):
        return _COLUMNS


class Progress:
    """Says now and then how many lines are done."""

    def __init__(self):
        self._said = time.monotonic()

    def __call__(self, lines: int) -> None:
        if _has_moving_line():
            show(lambda: f"Lines so far: {lines}")
        elif time.monotonic() - self._said >= _PROGRESS_SECONDS:
            _log.info("Lines so far: %d.", lines)
            self._said = time.monotonic()


class Work(threading.Thread):
    """Calls a function where Ctrl-C does not reach it.

    In the main thread, Ctrl-C would wait for TensorFlow to return.

    Args:
        function: Function without arguments.
        name: str or None. `UNHEARD`, or any.
    """

    def __init__(self, function, name):
        super().__init__(name=name, daemon=True)
        self._function = function
        self._found = self._error = None
        self._is_done = threading.Event()

    def run(self):
        try:
            self._found = self._function()
        except BaseException as error:  # raised again where it is waited for
            self._error = error
        finally:
            self._is_done.set()

    def result(self):
        """Starts, and returns what the function returns."""
        self.start()
        # Without a time, Windows would wait on whatever is pressed.
        while not self._is_done.wait(0.1):
            pass
        if self._error is not None:
            raise self._error
        return self._found


@contextlib.contextmanager
def only_what_is_heard() -> Iterator[None]:
    """Keeps the warnings of some threads from the user."""

    def is_heard(record):
        return record.threadName != UNHEARD

    _log.addFilter(is_heard)
    try:
        yield
    finally:
        _log.removeFilter(is_heard)


def reader() -> Callable[[], str]:
    """Returns a function that asks for a line, or raises EOFError."""
    # Bytes that are not UTF-8 must not end the conversation.
    sys.stdin.reconfigure(errors="replace")
    if sys.stdout.isatty():
        return functools.partial(input, PROMPT)
    return _ask_beside_output


def _ask_beside_output() -> str:
    """Asks on standard error, because `input` would ask in the output."""
    sys.stderr.write(PROMPT)
    sys.stderr.flush()
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.removesuffix("\n")


@contextlib.contextmanager
def editing(words: list[str]) -> Iterator[None]:
    """Gives `input` a history and completion, where there can be any.

    Args:
        words: What the tabulator completes at the beginning of a line.
    """
    try:
        import readline  # Not on every system.
    except ImportError:
        yield
        return

    def complete(typed, number):
        is_first = readline.get_line_buffer().lstrip() == typed
        found = [f"{w} " for w in words if is_first and w.startswith(typed)]
        return found[number] if number < len(found) else None

    readline.set_completer(complete)
    readline.set_completer_delims(" ")
    readline.parse_and_bind("tab: complete")
    readline.set_history_length(_HISTORY_LINES)
    path = history_path()
    # A history that cannot be kept must keep nobody from translating.
    with contextlib.suppress(OSError):
        if path:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.touch(mode=0o600)
            readline.read_history_file(path)
    known = readline.get_current_history_length()
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            if path and hasattr(readline, "append_history_file"):
                new = readline.get_current_history_length() - known
                readline.append_history_file(new, path)
            elif path:
                readline.write_history_file(path)


def history_path() -> pathlib.Path | None:
    """Returns the file of the lines typed before, or None for no file."""
    if HISTORY_VARIABLE in os.environ:
        name = os.environ[HISTORY_VARIABLE]
        return pathlib.Path(name) if name else None
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return pathlib.Path(os.path.expanduser(state), "relpos_tf", "history")
