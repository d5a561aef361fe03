"""Work in child processes, one after another.

A child gives all its memory back when it ends, which TensorFlow in this process
would not.
"""

import collections
import contextlib
import logging
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Callable
from collections.abc import Sequence
from typing import NamedTuple

from relpos_tf import errors
from relpos_tf.utils import files
from relpos_tf.utils import signals

_log = logging.getLogger("relpos_tf")
POLL_SECONDS = 1.0
_SHOWN_LINES = 4
# Names the hosts of a trainer. A child trains or scores on this one alone, and
# would wait for the others.
_HOSTS = "TF_CONFIG"
_ENVIRONMENT = {"TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow"}


class Job(NamedTuple):
    """Work for Python in a child process.

    Attributes:
        title: str. Its name in messages.
        arguments: list of str, after the interpreter's name.
        log: Its standard output and standard error are appended to this file.
        begin: Function that is called right before the process starts.
    """

    title: str
    arguments: Sequence[str]
    log: pathlib.Path
    begin: Callable[[], None] = lambda: None


def run(
    jobs: Sequence[Job], watch: Callable[[], None] | None, task: str
) -> None:
    """Runs jobs in their order.

    Jobs that fail are logged, with their logs, and stop no other.

    Args:
        jobs: The jobs.
        watch: Function that is called every second, and at the end of a job.
        task: str. What they do, for messages.

    Raises:
        KeyboardInterrupt: a signal came, to this process or to the one that it
            started, which was asked once to stop, and has ended.
    """
    failed = []
    for job in jobs:
        try:
            _run(job, watch, task)
        except (errors.UserError, OSError) as error:
            _log.warning("%s", error)
            failed.append(job)
    if failed:
        listed = ", ".join(f"{job.title} (see {job.log})" for job in failed)
        message = f"{task} failed for {len(failed)} of {len(jobs)}: {listed}."
        _log.warning("%s Run the command again to try these again.", message)


def start(arguments: Sequence[str], log: pathlib.Path) -> subprocess.Popen:
    """Starts Python in a child process.

    A terminal sends Ctrl-C to its whole process group. The child is in another
    group: it gets one SIGTERM from us, and can save undisturbed.

    Args:
        arguments: list of str, after the interpreter's name.
        log: Its standard output and standard error are appended to this file.

    Raises:
        OSError: the log is a link.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    ours = {k: v for k, v in os.environ.items() if k != _HOSTS}
    with files.open_appending(log) as file:
        return subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=_ENVIRONMENT | ours,
        )


def _run(job, watch, task):
    """Runs a job to its end; raises UserError if it failed."""
    length = job.log.stat().st_size if job.log.is_file() else 0
    job.begin()
    process = code = None
    try:
        with signals.held():  # until there is a process to stop
            process = start(job.arguments, job.log)
        while code is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(POLL_SECONDS)
            if watch:
                watch()
    except BaseException:
        if process:
            _stop(process)
        raise
    if stop := signals.of_exit(code):
        _log.warning("%s of %s was %s.", task, job.title, stop)
        raise stop
    if code:
        name = signal.Signals(-code).name if code < 0 else f"code {code}"
        lines = "".join(f"\n  {x}" for x in _last_lines(job.log, length))
        raise errors.UserError(
            f"{task} of {job.title} failed with {name}. The end of "
            f"{job.log}:{lines or ' nothing.'}"
        )


def _stop(process):
    """Asks a process to save and end, and waits for it."""
    # A shell lets a background process ignore SIGINT, not SIGTERM.
    process.terminate()
    try:
        process.wait()
    finally:  # A third signal does not wait.
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(POLL_SECONDS)


def _last_lines(log, start):
    """Returns the last lines of a file, from an offset on."""
    with open(log, encoding="utf-8", errors="replace") as file:
        file.seek(start)
        lines = (line.rstrip() for line in file)
        return list(collections.deque(filter(None, lines), _SHOWN_LINES))
