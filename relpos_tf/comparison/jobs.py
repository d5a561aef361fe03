"""Child processes, some at once: a queue of jobs, and slots they run in.

All decisions are made in the calling thread. Further threads only wait, one for
the end of each process, so that nothing is polled but the files that jobs
watch.
"""

import logging
import queue
import threading
from collections.abc import Sequence
from typing import NamedTuple
from typing import Protocol

from relpos_tf import errors
from relpos_tf.comparison import child_process
from relpos_tf.utils import signals
from relpos_tf.utils import slots as slots_lib

_log = logging.getLogger("relpos_tf")


class Job(Protocol):
    """Work for a process of its own.

    Attributes:
        title: str. Its name in messages.
    """

    title: str

    def is_ready(self) -> bool:
        """Returns whether what it needs is there."""
        ...

    def is_elsewhere(self) -> bool:
        """Returns whether a process of an earlier command does it now."""
        ...

    def start(self, slot: slots_lib.Slot) -> child_process.Child:
        """Starts its process in a slot."""
        ...

    def watch(self) -> None:
        """Is called every second while the process runs, and at its end."""
        ...

    def finish(self, child: child_process.Child) -> None:
        """Is called at the end of its process.

        Raises:
            UserError: it failed, or its work is not done.
        """
        ...


class Failure(NamedTuple):
    """A job that failed, and the file with the output of its process."""

    job: Job
    log: str


class _Running(NamedTuple):
    job: Job
    slot: slots_lib.Slot
    child: child_process.Child


def run(jobs: Sequence[Job], slots: slots_lib.Slots) -> list[Failure]:
    """Runs jobs, as many at once as there are slots, in their order.

    A job that is not ready lets later ones pass. A job that fails is logged
    and stops no other.

    Args:
        jobs: The jobs.
        slots: Where they run.

    Returns:
        The jobs that failed, in the order of their ends.

    Raises:
        KeyboardInterrupt: a signal came. All processes were asked to stop,
            once each, and have ended.
    """
    return _Scheduler(jobs, slots).run()


class _Scheduler:
    """The state of `run`."""

    def __init__(self, jobs, slots):
        self._waiting = list(jobs)
        self._free = list(slots.parts)
        self._running: list[_Running] = []
        # Filled by the waiting threads.
        self._ended: queue.SimpleQueue[_Running] = queue.SimpleQueue()
        self._failures: list[Failure] = []

    def run(self) -> list[Failure]:
        try:
            while self._waiting or self._running:
                self._fill()
                ended = self._next_end()
                for one in self._running:
                    one.job.watch()
                if ended:
                    self._end(ended)
        except BaseException:
            for one in self._running:
                if one.child.is_running:
                    one.child.stop()
            for one in self._running:
                one.child.wait()
            raise
        finally:
            for one in self._running:
                one.child.kill()
        return self._failures

    def _fill(self) -> None:
        """Starts ready jobs in the free slots.

        A process of an earlier command, which was killed, takes a slot, too:
        more at once would slow each other down, and fill the memory.
        """
        elsewhere = [job for job in self._waiting if job.is_elsewhere()]
        for job in [job for job in self._waiting if job not in elsewhere]:
            if len(self._free) <= len(elsewhere):
                return
            if job.is_ready():
                self._waiting.remove(job)
                # Hold signals: a process that was started must be known.
                with signals.held():
                    self._start(job)

    def _start(self, job) -> None:
        slot = self._free.pop(0)
        try:
            one = _Running(job, slot, job.start(slot))
        except errors.UserError as error:
            self._free.append(slot)
            self._fail(job, "", error)
            return
        self._running.append(one)
        threading.Thread(target=self._await, args=[one], daemon=True).start()

    def _await(self, one) -> None:
        """Waits, in a thread of its own, for the end of a process."""
        one.child.wait()
        self._ended.put(one)

    def _next_end(self) -> _Running | None:
        """Returns the next job whose process ends; None after a while."""
        try:
            return self._ended.get(timeout=child_process.POLL_SECONDS)
        except queue.Empty:
            return None

    def _end(self, one) -> None:
        self._running.remove(one)
        self._free.append(one.slot)
        try:
            one.job.finish(one.child)
        except errors.UserError as error:
            self._fail(one.job, str(one.child.log), error)

    def _fail(self, job, log, error) -> None:
        _log.warning("%s", error)
        self._failures.append(Failure(job, log))


def raise_failures(failures: Sequence[Failure], number: int, task: str) -> None:
    """Raises UserError that names the failed jobs and their logs, if any.

    Args:
        failures: What `run` returned.
        number: int. How many jobs there were.
        task: str. What they did, for the message.
    """
    if failures:
        listed = ", ".join(
            f"{one.job.title} (see {one.log})" if one.log else one.job.title
            for one in failures
        )
        raise errors.UserError(
            f"{task} failed for {len(failures)} of {number}: {listed}. Run the "
            "command again to try these again."
        )
