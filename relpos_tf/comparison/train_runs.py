"""Trains the runs of a comparison, one after the other."""

import logging
import pathlib
import time
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from relpos_tf import errors
from relpos_tf.comparison import child_process
from relpos_tf.comparison import runs as runs_lib
from relpos_tf.models import run_dir
from relpos_tf.training import reporting

_log = logging.getLogger("relpos_tf")
TRAINER = ("-m", "relpos_tf.bin.trainer")


def train(
    runs: Sequence[runs_lib.Run],
    flags: Mapping[str, object],
    train_steps: int,
    log_folder: pathlib.Path,
) -> None:
    """Trains the runs that are not finished; resumes those that have begun.

    Args:
        runs: All runs, which have been checked.
        flags: Flags of the trainer, the same for all, by name.
        train_steps: int. Updates of each run.
        log_folder: Gets a log file for each run.

    Raises:
        UserError: a run failed, or ended too early.
        KeyboardInterrupt: a signal came; the run has saved its state.
    """
    progress = TrainingProgress(runs, train_steps)
    for number, run in enumerate(runs, start=1):
        if runs_lib.is_finished(run, train_steps):
            _log.info("%s is trained.", progress.title(number))
            continue
        log = log_folder / f"{run.name}.log"
        step = max(run_dir.all_steps(run.path), default=0)
        start = f"goes on from step {step}" if step else "begins"
        _log.info("%s %s.", progress.title(number), start)
        progress.begin(number, step)
        child_process.run(
            arguments(run, flags, train_steps),
            log,
            f"Training of {run.title}",
            MetricsReader(run, progress.log_event).read_new,
        )
        progress.end()
        check_finished(run, train_steps, log)


def check_finished(
    run: runs_lib.Run, train_steps: int, log: pathlib.Path
) -> None:
    """Raises UserError if a run, whose trainer has ended, is not finished."""
    if not runs_lib.is_finished(run, train_steps):
        raise errors.UserError(
            f"Training of {run.title} ended before step {train_steps}, "
            f"without an error; see {log}. Run the command again to go on."
        )


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


class TrainingProgress:
    """Progress lines with the time left, of one run and of all runs.

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
        self._runs = runs
        self._train_steps = train_steps
        self._clock = clock
        # Updates and seconds of the runs that ended, since our start.
        self._steps, self._seconds = 0, 0.0
        self._number = self._first_step = self._step = 0
        self._start = clock()

    def title(self, number: int) -> str:
        """Returns the beginning of the lines of a run, counted from 1."""
        return f"[{number}/{len(self._runs)}] {self._runs[number - 1].title}"

    def begin(self, number: int, step: int) -> None:
        """Starts the clock of a run that has made so many updates before."""
        self._number, self._first_step, self._step = number, step, step
        self._start = self._clock()

    def end(self) -> None:
        """Stops the clock of the run."""
        self._steps += self._step - self._first_step
        self._seconds += self._clock() - self._start
        self._first_step = self._step

    def log_event(self, event: dict) -> None:
        """Logs the line for an event of the run."""
        _log.info("%s", self.line(event))

    def line(self, event: dict) -> str:
        """Returns the line for an event of the run."""
        title = self.title(self._number)
        if event["split"] != "train":
            return evaluation_line(title, event)
        self._step = event["step"]
        return training_line(
            title, event, self._train_steps, *self._seconds_left()
        )

    def _seconds_left(self):
        """Returns the seconds left, of this run and of all runs.

        The time of an update includes its share of the evaluations.
        """
        steps = max(self._step - self._first_step, 1)
        seconds = self._clock() - self._start
        left = (self._train_steps - self._step) * seconds / steps
        per_step = (self._seconds + seconds) / (self._steps + steps)
        later = 0
        for run in self._runs[self._number :]:
            if not runs_lib.is_finished(run, self._train_steps):
                done = max(run_dir.all_steps(run.path), default=0)
                later += max(self._train_steps - done, 0)
        return left, left + later * per_step


def evaluation_line(title: str, event: Mapping[str, Any]) -> str:
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


def training_line(
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
