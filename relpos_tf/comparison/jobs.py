"""Work in child processes, one after another.

A child gives all its memory back when it ends, which TensorFlow in this process
would not.
"""

import contextlib
import logging
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import NamedTuple

from relpos_tf import errors
from relpos_tf.utils import files
from relpos_tf.utils import signals

_log = logging.getLogger("relpos_tf")
POLL_SECONDS = 1.0
_ENVIRONMENT = {"TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow"}


class Job(NamedTuple):
    """Work for Python in a child process.

    Attributes:
        title: str. Its name in messages.
        arguments: list of str, after the interpreter's name.
        log: Its standard output and standard error are appended to this file.
        is_shown: bool. Whether they are logged as they come, or only if it
            fails.
    """

    title: str
    arguments: Sequence[str]
    log: pathlib.Path
    is_shown: bool = True


def run(jobs: Sequence[Job], task: str) -> None:
    """Runs jobs in their order.

    Jobs that fail are logged, and stop no other.

    Args:
        jobs: The jobs.
        task: str. What they do, for messages.

    Raises:
        KeyboardInterrupt: a signal came, to this process or to the one that it
            started, which was asked once to stop, and has ended.
    """
    failed = []
    for number, job in enumerate(jobs, start=1):
        _log.info("%s %d of %d: %s.", task, number, len(jobs), job.title)
        try:
            _run(job, task, f"[{number}/{len(jobs)}] ")
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
    # TF_CONFIG names the hosts of a trainer. A child trains or scores on this
    # one alone, and would wait for the others.
    ours = {k: v for k, v in os.environ.items() if k != "TF_CONFIG"}
    with files.open_appending(log) as file:
        return subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=ours | _ENVIRONMENT,
        )


def _run(job, task, place):
    """Runs a job to its end; raises UserError if it failed."""
    seen = job.log.stat().st_size if job.log.is_file() else 0
    process = code = None
    no_timeout = contextlib.suppress(subprocess.TimeoutExpired)
    try:
        with signals.held():  # They come where it waits, and nowhere else.
            process = start(job.arguments, job.log)
            while code is None:
                with no_timeout, signals.let_through():
                    code = process.wait(POLL_SECONDS)
                if job.is_shown or code:
                    seen = _show(job, seen, place)
    except BaseException:
        if process:
            _stop(process)
        raise
    if stop := signals.of_exit(code):
        _log.warning("%s of %s was %s.", task, job.title, stop)
        raise stop
    if code:
        name = signal.Signals(-code).name if code < 0 else f"code {code}"
        raise errors.UserError(
            f"{task} of {job.title} failed with {name}. See {job.log}."
        )


def _show(job, start, place):
    """Logs the whole lines of a job from an offset on; returns their end."""
    with open(job.log, "rb") as file:
        file.seek(start)
        for line in file:
            if line.endswith(b"\n"):
                start += len(line)
                said = line.decode(errors="replace").rstrip()
                _log.info("%s%s", place, said)
    return start


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
