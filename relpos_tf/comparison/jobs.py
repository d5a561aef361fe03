"""Child processes, some at once: a queue of jobs, and slots they run in.

A slot is a part of the machine: a GPU, or some of the cores. All decisions are
made in the calling thread. Further threads only wait, one for the end of each
process, so that nothing is polled but the files that jobs watch.
"""

import logging
import os
import queue
import shutil
import subprocess
import threading
from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple
from typing import Protocol

from relpos_tf import errors
from relpos_tf.comparison import child_process
from relpos_tf.utils import signals

_log = logging.getLogger("relpos_tf")
_GPUS = "CUDA_VISIBLE_DEVICES"
_THREADS = "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"


class Slot(NamedTuple):
    """A part of the machine.

    Attributes:
        environment: Variables for its process.
        cores: The cores of its process; none: all.
    """

    environment: Mapping[str, str] = {}
    cores: tuple[int, ...] = ()


class Slots(NamedTuple):
    """The parts that a machine is divided into.

    Attributes:
        parts: The slots.
        cores: int. The cores that several slots share.
        gpus: int. The GPUs that they share, one each; 0 if none is used.
    """

    parts: tuple[Slot, ...]
    cores: int
    gpus: int

    @property
    def sharing(self) -> dict[str, int] | None:
        """The record of `RunDir.write_sharing`; None if nothing is shared."""
        jobs = len(self.parts)
        record = {"jobs": jobs, "cores": self.cores, "gpus": self.gpus}
        return record if jobs > 1 else None


class Job(Protocol):
    """Work for a process of its own.

    Attributes:
        title: str. Its name in messages.
    """

    title: str

    def is_ready(self) -> bool:
        """Returns whether it may start now."""
        ...

    def start(self, slot: Slot) -> child_process.Child:
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
    slot: Slot
    child: child_process.Child


def divide(number: int) -> Slots:
    """Divides the machine into so many slots.

    One slot is the whole machine. Of several, each gets a GPU if there are
    GPUs, else an equal number of cores.

    Raises:
        UserError: there are too few GPUs or cores.
    """
    if number == 1:
        return Slots((Slot(),), 0, 0)
    cores, gpus = _cores(), _gpus()
    if gpus:
        if number > len(gpus):
            raise errors.UserError(
                f"Expected at most one job for each GPU, {len(gpus)} here. "
                f"Received: {number}. Name the GPUs to use in {_GPUS}; an "
                "empty one leaves the cores."
            )
        parts = tuple(Slot({_GPUS: gpu}) for gpu in gpus[:number])
        return Slots(parts, len(cores), number)
    if number > len(cores):
        raise errors.UserError(
            f"Expected at most one job for each core, {len(cores)} here. "
            f"Received: {number}."
        )
    return Slots(tuple(_of_cores(cores, number)), len(cores), 0)


def run(jobs: Sequence[Job], slots: Slots) -> list[Failure]:
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
        """Starts ready jobs in the free slots."""
        for job in list(self._waiting):
            if not self._free:
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


def _cores() -> list[int]:
    """Returns the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _of_cores(cores, number):
    """Yields slots of equally many cores, which bound TensorFlow's threads."""
    each = len(cores) // number
    for index in range(number):
        if hasattr(os, "sched_setaffinity"):
            yield Slot(cores=tuple(cores[index * each : (index + 1) * each]))
        else:
            yield Slot(dict.fromkeys(_THREADS, str(each)))


def _gpus() -> list[str]:
    """Returns the names of the GPUs that this process may use."""
    if _GPUS in os.environ:
        names = [name.strip() for name in os.environ[_GPUS].split(",")]
        # CUDA itself stops at the first name that is no device's.
        return [n for n in names if n and not n.startswith("-")]
    program = shutil.which("nvidia-smi")
    if not program:
        return []
    # Not numbers: CUDA and nvidia-smi may count in different orders.
    query = [program, "--query-gpu=uuid", "--format=csv,noheader"]
    try:
        done = subprocess.run(
            query, capture_output=True, check=True, text=True, timeout=60
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return done.stdout.split()
