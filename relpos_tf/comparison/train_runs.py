"""Trains the runs of a comparison: one after the other, or several at once."""

import logging
import pathlib
import time
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from relpos_tf import errors
from relpos_tf.comparison import child_process
from relpos_tf.comparison import jobs
from relpos_tf.comparison import runs as runs_lib
from relpos_tf.models import run_dir
from relpos_tf.training import reporting
from relpos_tf.utils import locks
from relpos_tf.utils import slots as slots_lib
from relpos_tf.utils import terminal

_log = logging.getLogger("relpos_tf")
TRAINER = ("-m", "relpos_tf.bin.trainer")


def train(
    runs: Sequence[runs_lib.Run],
    flags: Mapping[str, object],
    train_steps: int,
    log_folder: pathlib.Path,
    slots: slots_lib.Slots,
) -> None:
    """Trains the runs that are not finished; resumes those that have begun.

    A run that fails does not stop the others.

    Args:
        runs: All runs, which have been checked.
        flags: Flags of the trainer, the same for all, by name.
        train_steps: int. Updates of each run.
        log_folder: Gets a log file for each run.
        slots: Where they run.

    Raises:
        UserError: runs failed, or ended too early; it names them.
        KeyboardInterrupt: a signal came; the runs have saved their states.
    """
    progress = Progress(runs, train_steps)
    waiting = []
    for number, run in enumerate(runs, start=1):
        if runs_lib.is_finished(run, train_steps):
            _log.info("%s is trained.", progress.title(number))
            continue
        log = log_folder / f"{run.name}.log"
        command = arguments(run, flags, train_steps)
        waiting.append(_Training(number, command, log, progress, slots))
    failures = jobs.run(waiting, slots)
    jobs.raise_failures(failures, len(runs), "Training")


def arguments(
    run: runs_lib.Run, flags: Mapping[str, object], train_steps: int
) -> list[str]:
    """Returns the trainer's command line for a run; see `train`."""
    own = {
        "hparams_set": run.hparams_set,
        "hparams": run.overrides,
        "random_seed": run.seed,
        "output_dir": run.path,
        "train_steps": train_steps,
        "log_step_count_steps": min(100, max(train_steps // 10, 1)),
    }
    return [*TRAINER, *(f"--{k}={v}" for k, v in (dict(flags) | own).items())]


class Progress:
    """Progress lines of runs, perhaps of several at once.

    Every line begins with the name of its run. A terminal also has a line that
    sums up all runs.

    Args:
        runs: All runs.
        train_steps: int. Updates of each.
        clock: Function that returns seconds.
    """

    def __init__(
        self,
        runs: Sequence[runs_lib.Run],
        train_steps: int,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.runs = runs
        self.train_steps = train_steps
        self._clock = clock
        self._begun = clock()
        # Of each run: its updates so far, those of earlier calls included.
        self._steps = {
            number: train_steps
            if runs_lib.is_finished(run, train_steps)
            else max(run_dir.all_steps(run.path), default=0)
            for number, run in enumerate(runs, start=1)
        }
        self._steps_before = sum(self._steps.values())
        # Of each run in training: first update and time of its start.
        self._starts: dict[int, tuple[int, float]] = {}

    def title(self, number: int) -> str:
        """Returns the beginning of the lines of a run, counted from 1."""
        return f"[{number}/{len(self.runs)}] {self.runs[number - 1].title}"

    @property
    def is_any_running(self) -> bool:
        return bool(self._starts)

    def begin(self, number: int) -> None:
        """Logs that a run starts, and starts its clock."""
        step = self._steps[number]
        self._starts[number] = step, self._clock()
        start = f"goes on from step {step}" if step else "begins"
        _log.info("%s %s.", self.title(number), start)

    def end(self, number: int) -> None:
        """Stops the clock of a run."""
        del self._starts[number]

    def log_event(self, number: int, event: dict) -> None:
        """Logs the line for an event of a run."""
        _log.info("%s", self.line(number, event))

    def line(self, number: int, event: dict) -> str:
        """Returns the line for an event of a run."""
        if event["split"] != "train":
            return _evaluation_line(self.title(number), event)
        self._steps[number] = event["step"]
        return _training_line(
            self.title(number),
            event,
            self.train_steps,
            self._seconds_left(number),
            self._seconds_left_of_all(),
        )

    def show(self) -> None:
        """Shows the line that sums up, if there is a terminal."""
        terminal.show(self.summary)

    def summary(self) -> str:
        """Returns the line that sums up the runs in training."""
        steps = ", ".join(
            f"{self.runs[number - 1].title} {self._steps[number]}"
            for number in self._starts
        )
        left = reporting.duration(self._seconds_left_of_all())
        return f"of {self.train_steps}: {steps}  all {left} left"

    def _seconds_left(self, number):
        """Returns the seconds left of a run, evaluations included."""
        first, since = self._starts[number]
        steps = self._steps[number]
        speed = (self._clock() - since) / max(steps - first, 1)
        return (self.train_steps - steps) * speed

    def _seconds_left_of_all(self):
        """Returns the seconds left at the mean speed of all runs together."""
        steps = sum(self._steps.values())
        speed = (self._clock() - self._begun) / max(
            steps - self._steps_before, 1
        )
        return (self.train_steps * len(self.runs) - steps) * speed


class _Training:
    """The training of a run, as a `jobs.Job`."""

    def __init__(self, number, command, log, progress, slots):
        self._run = progress.runs[number - 1]
        self.title = self._run.title
        self._number = number
        self._command = command
        self._log = log
        self._progress = progress
        self._slots = slots
        self._reader = None
        self._is_reported = False

    def is_ready(self) -> bool:
        """Whether the data are prepared, which the first run does."""
        runs = self._progress.runs
        return not self._progress.is_any_running or any(
            run.files.has_hparams() for run in runs
        )

    def is_elsewhere(self) -> bool:
        """Whether another process trains it: after a kill, an old trainer."""
        is_busy = self._is_locked()
        if is_busy and not self._is_reported:
            self._is_reported = True
            _log.info(
                "Another process is training %s: waiting for it.",
                self._run.path,
            )
        return is_busy

    def start(self, slot: slots_lib.Slot) -> child_process.Child:
        self._reader = MetricsReader(self._run, self._report)
        if self._slots.sharing:
            self._run.files.write_sharing(self._slots.sharing)
        child = child_process.Child(
            self._command,
            self._log,
            f"Training of {self._run.title}",
            environment=slot.environment,
            cores=slot.cores,
        )
        self._progress.begin(self._number)
        return child

    def watch(self) -> None:
        self._reader.read_new()
        self._progress.show()

    def finish(self, child: child_process.Child) -> None:
        self._progress.end(self._number)
        child.check()
        _check_finished(self._run, self._progress.train_steps, self._log)

    def _is_locked(self):
        # A trainer has its log before it locks its directory.
        return any(map(locks.is_locked, (self._log, self._run.path)))

    def _report(self, event):
        self._progress.log_event(self._number, event)


class MetricsReader:
    """Reports new events in a run's metrics.jsonl.

    Args:
        run: The run.
        report: Function that is given each new event.
    """

    def __init__(self, run: runs_lib.Run, report: Callable[[dict], None]):
        self._files = run.files
        self._report = report
        self._stamp = None
        self._seen = set()
        for _ in self._new_events():
            pass  # Events of earlier starts are not new.

    def read_new(self) -> None:
        """Reports the events since the last call."""
        for event in self._new_events():
            self._report(event)

    def _new_events(self):
        """Yields the events that were not there before."""
        try:
            stat = (self._files.path / run_dir.METRICS).stat()
        except FileNotFoundError:
            return
        stamp = stat.st_mtime_ns, stat.st_size, stat.st_ino
        if stamp == self._stamp:
            return
        self._stamp = stamp
        for event in self._files.read_metrics():
            # The loss tells an update that was repeated after a kill.
            key = event["step"], event["split"], event["loss"]
            if key not in self._seen:
                self._seen.add(key)
                yield event


def _check_finished(
    run: runs_lib.Run, train_steps: int, log: pathlib.Path
) -> None:
    """Raises UserError if a run, whose trainer has ended, is not finished."""
    if not runs_lib.is_finished(run, train_steps):
        raise errors.UserError(
            f"Training of {run.title} ended before step {train_steps}, "
            f"without an error; see {log}. Run the command again to go on."
        )


def _evaluation_line(title: str, event: Mapping[str, Any]) -> str:
    """Returns the line for an evaluation of a run.

    Args:
        title: str. The beginning of the line.
        event: An event of metrics.jsonl.
    """
    averaged = "  averaged" * ("averaged" in event)
    return (
        f"{title}  step {event['step']}{averaged}  {event['split']} loss "
        f"{event['loss']:.2f}  BLEU {event['bleu']:.2f}"
    )


def _training_line(
    title: str,
    event: Mapping[str, Any],
    train_steps: int,
    left: float,
    left_of_all: float,
) -> str:
    """Returns the line for a training event of a run.

    Args:
        title: str. The beginning of the line.
        event: An event of metrics.jsonl.
        train_steps: int. Updates of the run.
        left: float. Seconds left of the run.
        left_of_all: float. Seconds left of all runs.
    """
    return (
        f"{title}  step {event['step']}/{train_steps}  "
        f"loss {event['loss']:.2f}  "
        f"{event['steps_per_second']:.1f} steps/s  "
        f"{reporting.duration(left)} left, all "
        f"{reporting.duration(left_of_all)}"
    )
