"""Work in a child process, which returns all its memory when it ends."""

import collections
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence

from relpos_tf import errors
from relpos_tf.utils import files
from relpos_tf.utils import locks
from relpos_tf.utils import signals

# Between two calls of the function that watches a process.
POLL_SECONDS = 1.0
_SHOWN_LINES = 4
# Names the hosts of a trainer. A child trains or scores on this one alone, and
# would wait for the others.
_HOSTS = "TF_CONFIG"
_ENVIRONMENT = {"TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow"}


class Child:
    """Python in a process of its own, which begins at once.

    A terminal sends Ctrl-C to its whole process group. The child is in
    another group: it gets one SIGTERM from us, and can save undisturbed.

    Args:
        arguments: list of str, after the interpreter's name.
        log: Its standard output and standard error are appended to this file.
        task: str. Name of its work, for messages.
        content: bytes. Its standard input. Not an argument, because some
            systems limit an argument to 128 KiB.
        environment: Variables that it gets in addition to ours, of which it
            does not get `TF_CONFIG`.
        cores: The cores that it may run on; none: all of ours.

    Raises:
        UserError: the log is a link.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        log: pathlib.Path,
        task: str,
        content: bytes = b"",
        environment: Mapping[str, str] | None = None,
        cores: Collection[int] = (),
    ):
        self.log = log
        self._task = task
        log.parent.mkdir(parents=True, exist_ok=True)
        ours = {k: v for k, v in os.environ.items() if k != _HOSTS}
        with (
            files.open_appending(log) as file,
            tempfile.TemporaryFile() as stdin,  # A full pipe would block.
        ):
            # A child outlives our SIGKILL; the next command can wait for it.
            locks.mark_open(file)
            self._start = file.tell()
            stdin.write(content)
            stdin.seek(0)
            self._process = subprocess.Popen(
                [sys.executable, *arguments],
                stdin=stdin,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=_ENVIRONMENT | ours | dict(environment or {}),
            )
        if cores:
            # Python has no threads yet; later ones inherit the cores.
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(self._process.pid, cores)

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def wait(self, seconds: float | None = None) -> bool:
        """Waits for the end, at most so long; returns whether it came."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def stop(self) -> None:
        """Asks the process to save and end."""
        # A shell lets a background process ignore SIGINT, not SIGTERM.
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Ends the process at once, if it is still running."""
        if self.is_running:
            self._process.kill()
            self._process.wait()

    def check(self) -> None:
        """Raises UserError, with the end of the log, if the process failed."""
        code = self._process.returncode
        if not code:
            return
        lines = _last_lines(self.log, self._start)
        text = "".join(f"\n  {line}" for line in lines)
        raise errors.UserError(
            f"{self._task} failed with {_code_text(code)}. The end of "
            f"{self.log}:{text or ' nothing.'}"
        )


def run(
    arguments: Sequence[str],
    log: pathlib.Path,
    task: str,
    watch: Callable[[], None] = lambda: None,
    content: bytes = b"",
) -> None:
    """Runs Python in a process of its own, and waits for its end.

    Args:
        arguments: See `Child`.
        log: See `Child`.
        task: See `Child`.
        watch: Function that is called every `POLL_SECONDS`, and at the end.
        content: See `Child`.

    Raises:
        UserError: it failed; the message has the last lines of the log. Or
            the log is a link.
        KeyboardInterrupt: a signal came. The process has ended by then.
    """
    child = None
    try:
        # Hold signals: one during the start would leave the process running.
        with signals.held():
            child = Child(arguments, log, task, content)
        while not child.wait(POLL_SECONDS):
            watch()
        watch()
    except KeyboardInterrupt:
        if child:
            child.stop()
            child.wait()
        raise
    finally:
        if child:
            child.kill()
    child.check()


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
