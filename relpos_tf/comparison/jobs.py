"""Work in child processes, as many at once as there are slots.

A child gives all its memory back when it ends, which TensorFlow in this process
would not.
"""

import collections
import contextlib
import logging
import os
import pathlib
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from collections.abc import Sequence
from concurrent import futures
from typing import NamedTuple

from relpos_tf import errors
from relpos_tf.comparison import slots as slots_lib
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
    jobs: Sequence[Job],
    slots: slots_lib.Slots,
    task: str,
    is_ready: Callable[[], bool] = lambda: True,
    watch: Callable[[], None] = lambda: None,
) -> None:
    """Runs jobs in their order, as many at once as there are slots.

    Jobs that fail are logged, with their logs, and stop no other.

    Args:
        jobs: The jobs.
        slots: Where they run.
        task: str. What they do, for messages.
        is_ready: Function that says whether another job may run beside the
            first one.
        watch: Function that is called every second, and at the end of a job.

    Raises:
        KeyboardInterrupt: a signal came, to this process or to one that it
            started. Each was asked once to stop, and has ended.
    """
    processes = _Processes(slots)
    waiting, failed = list(jobs), []
    running: dict[futures.Future[None], Job] = {}
    pool = futures.ThreadPoolExecutor(len(slots.parts))
    try:
        while waiting or running:
            # A job begins as soon as it is submitted to a free slot. By then
            # `watch` has told the end of the one before.
            while (
                waiting
                and len(running) < len(slots.parts)
                and (not running or is_ready())
            ):
                job = waiting.pop(0)
                running[pool.submit(processes.run, job, task)] = job
            ended, _ = futures.wait(
                running, POLL_SECONDS, futures.FIRST_COMPLETED
            )
            watch()
            for one in [one for one in running if one in ended]:
                job = running.pop(one)
                try:
                    one.result()
                except (errors.UserError, OSError) as error:
                    _log.warning("%s", error)
                    failed.append(job)
    except BaseException:
        processes.stop()
        raise
    finally:
        try:
            pool.shutdown(cancel_futures=True)
        finally:  # A third signal does not wait for them.
            processes.kill()
    if failed:
        listed = ", ".join(f"{job.title} (see {job.log})" for job in failed)
        message = f"{task} failed for {len(failed)} of {len(jobs)}: {listed}."
        _log.warning("%s Run the command again to try these again.", message)


def start(
    arguments: Sequence[str], log: pathlib.Path, slot: slots_lib.Slot
) -> subprocess.Popen:
    """Starts Python in a child process.

    A terminal sends Ctrl-C to its whole process group. The child is in another
    group: it gets one SIGTERM from us, and can save undisturbed.

    Args:
        arguments: list of str, after the interpreter's name.
        log: Its standard output and standard error are appended to this file.
        slot: Its part of the machine.

    Raises:
        OSError: the log is a link.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    ours = {k: v for k, v in os.environ.items() if k != _HOSTS}
    with files.open_appending(log) as file:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=_ENVIRONMENT | ours | dict(slot.environment),
        )
    if slot.cores:
        # Python has no threads yet; later ones inherit the cores.
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(process.pid, slot.cores)
    return process


class _Processes:
    """The running processes: threads wait for them, one in each slot."""

    def __init__(self, slots):
        self._free = queue.SimpleQueue()
        for slot in slots.parts:
            self._free.put(slot)
        self._lock = threading.Lock()  # of the list of those that run
        self._running: list[subprocess.Popen] = []
        self._is_stopping = threading.Event()

    def run(self, job: Job, task: str) -> None:
        """Runs a job to its end; raises UserError if it failed."""
        slot = self._free.get()
        try:
            with self._lock:
                if self._is_stopping.is_set():
                    return
                length = job.log.stat().st_size if job.log.is_file() else 0
                job.begin()
                process = start(job.arguments, job.log, slot)
                self._running.append(process)
            code = process.wait()
        finally:
            self._free.put(slot)
        with self._lock:
            self._running.remove(process)
        if self._is_stopping.is_set():
            return
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

    def stop(self) -> None:
        """Asks all processes to save and end; no further one starts."""
        with self._lock:
            self._is_stopping.set()
            for process in self._running:
                # A shell lets a background process ignore SIGINT, not SIGTERM.
                process.terminate()

    def kill(self) -> None:
        """Ends all processes at once."""
        with self._lock:
            for process in self._running:
                process.kill()


def _last_lines(log, start):
    """Returns the last lines of a file, from an offset on."""
    with open(log, encoding="utf-8", errors="replace") as file:
        file.seek(start)
        lines = (line.rstrip() for line in file)
        return list(collections.deque(filter(None, lines), _SHOWN_LINES))
