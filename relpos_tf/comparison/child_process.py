"""Work in a child process, which returns all its memory when it ends."""

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

# Between two calls of the function that watches a process.
POLL_SECONDS = 1.0
_SHOWN_LINES = 4
_ENVIRONMENT = {"TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow"}


def run(
    arguments: Sequence[str],
    log: pathlib.Path,
    task: str,
    watch: Callable[[], None] = lambda: None,
    content: bytes = b"",
) -> None:
    """Runs Python in a process of its own, and waits for its end.

    A terminal sends Ctrl-C to its whole process group. The child is in
    another group: it gets one SIGTERM from us, and can save undisturbed.

    Args:
        arguments: list of str, after the interpreter's name.
        log: Its standard output and standard error are appended to this file.
        task: str. Name of its work, for messages.
        watch: Function that is called every `POLL_SECONDS`, and at the end.
        content: bytes. Its standard input. Not an argument, because some
            systems limit an argument to 128 KiB.

    Raises:
        UserError: it failed; the message has the last lines of the log. Or
            the log is a link.
        KeyboardInterrupt: a signal came. The process has ended by then.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with (
        files.open_appending(log) as file,
        tempfile.TemporaryFile() as stdin,  # A full pipe would block.
    ):
        start = file.tell()
        stdin.write(content)
        stdin.seek(0)
        # Hold signals: one during the start would leave the process running.
        with signals.held():
            process = subprocess.Popen(
                [sys.executable, *arguments],
                stdin=stdin,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=_ENVIRONMENT | os.environ,
            )
        try:
            _wait(process, watch)
        except KeyboardInterrupt:
            # A shell lets a background process ignore SIGINT, not SIGTERM.
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
            f"{task} failed with {_code_text(process.returncode)}. The end of "
            f"{log}:{lines or ' nothing.'}"
        )


def _wait(process, watch):
    """Waits for the end of the process, and calls `watch` meanwhile."""
    while process.poll() is None:
        try:
            process.wait(POLL_SECONDS)
        except subprocess.TimeoutExpired:
            watch()
    watch()


def _last_lines(log, start):
    """Returns the last lines of a file, from an offset on."""
    with open(log, encoding="utf-8", errors="replace") as file:
        file.seek(start)
        lines = (line.rstrip() for line in file)
        return list(collections.deque(filter(None, lines), _SHOWN_LINES))


def _code_text(code):
    """Returns a return code in words."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
