"""Work in a process of its own, which gives all its memory back."""

import collections
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from collections.abc import Sequence

from relpos_tf import errors
from relpos_tf.utils import files
from relpos_tf.utils import signals

# Between two looks at what a process has done.
POLL_SECONDS = 1.0
_SHOWN_LINES = 4
_ENVIRONMENT = {"TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow"}


def run(
    arguments: Sequence[str],
    log: pathlib.Path,
    what: str,
    watch: Callable[[], None] = lambda: None,
    content: bytes = b"",
) -> None:
    """Runs Python to the end of its work.

    Ctrl-C at a terminal goes to a whole group of processes; this one is not
    in ours, so that it is told to stop once, by us, and can save in peace.

    Args:
        arguments: list of str, after the interpreter's name.
        log: Gets, at its end, all that the process says.
        what: str. What it does, for messages.
        watch: Function that is called now and then, and at the end.
        content: bytes. What it finds on standard input. Arguments are for
            what is short: a system takes no longer ones than 128 KiB, or
            less.

    Raises:
        UserError: it failed; the message has the last lines of the log. Or
            the log is a link.
        KeyboardInterrupt: a signal came. The process has ended by then.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with (
        files.open_appending(log) as file,
        tempfile.TemporaryFile() as given,  # A pipe may fill up, and block.
    ):
        start = file.tell()
        given.write(content)
        given.seek(0)
        with signals.held():  # Or a signal could lose track of it.
            process = subprocess.Popen(
                [sys.executable, *arguments],
                stdin=given,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=_ENVIRONMENT | os.environ,
            )
        try:
            _wait(process, watch)
        except KeyboardInterrupt:
            # The one signal that nobody is started to ignore.
            process.send_signal(signal.SIGTERM)
            process.wait()
            raise
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    if process.returncode:
        lines = "".join(f"\n  {line}" for line in _last_lines(log, start))
        raise errors.UserError(
            f"{what} failed with {_described(process.returncode)}. The end of "
            f"{log}:{lines or ' nothing.'}"
        )


def _wait(process, watch):
    """Waits for the process, and looks at it meanwhile."""
    while process.poll() is None:
        try:
            process.wait(POLL_SECONDS)
        except subprocess.TimeoutExpired:
            watch()
    watch()


def _last_lines(log, start):
    """Returns the last lines after a place in a file."""
    with open(log, encoding="utf-8", errors="replace") as file:
        file.seek(start)
        lines = (line.rstrip() for line in file)
        return list(collections.deque(filter(None, lines), _SHOWN_LINES))


def _described(code):
    """Returns a return code in words."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
