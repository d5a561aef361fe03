"""Trains and scores the runs of a comparison side by side."""

import logging
import pathlib
import time
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence

from relpos_tf.comparison import child_process
from relpos_tf.comparison import jobs
from relpos_tf.comparison import runs as runs_lib
from relpos_tf.comparison import score_cache
from relpos_tf.comparison import train_runs
from relpos_tf.models import run_dir
from relpos_tf.training import reporting
from relpos_tf.utils import locks
from relpos_tf.utils import terminal

_log = logging.getLogger("relpos_tf")


def train(
    runs: Sequence[runs_lib.Run],
    flags: Mapping[str, object],
    train_steps: int,
    log_folder: pathlib.Path,
    slots: jobs.Slots | None,
) -> None:
    """Is `train_runs.train` with several runs at once.

    A run that fails does not stop the others. With `slots` None, it does: that
    is `train_runs.train`.

    Args:
        runs: See `train_runs.train`.
        flags: See `train_runs.train`.
        train_steps: See `train_runs.train`.
        log_folder: See `train_runs.train`.
        slots: Where they run.

    Raises:
        UserError: runs failed, or ended too early; it names them.
        KeyboardInterrupt: a signal came; the runs have saved their states.
    """
    if slots is None:
        return train_runs.train(runs, flags, train_steps, log_folder)
    progress = Progress(runs, train_steps)
    waiting = []
    for number, run in enumerate(runs, start=1):
        if runs_lib.is_finished(run, train_steps):
            _log.info("%s is trained.", progress.title(number))
            continue
        log = log_folder / f"{run.name}.log"
        command = train_runs.arguments(run, flags, train_steps)
        waiting.append(_Training(number, command, log, progress, slots))
    failures = jobs.run(waiting, slots)
    jobs.raise_failures(failures, len(runs), "Training")


def score(
    scorings: Sequence[score_cache.Scoring], slots: jobs.Slots | None
) -> None:
    """Computes the missing scores of models.

    Args:
        scorings: One for each model.
        slots: Where they run; None: one after the other, until one fails.

    Raises:
        UserError: some failed; it names them.
        KeyboardInterrupt: a signal came.
    """
    waiting = []
    for number, one in enumerate(scorings, start=1):
        title = f"[{number}/{len(scorings)}] {one.run.title}"
        if slots is None:
            score_cache.compute(one, title)
        elif request := one.request(len(slots.parts)):
            waiting.append(_Scoring(one, request, title))
    if slots is None:
        return
    failures = jobs.run(waiting, slots)
    jobs.raise_failures(failures, len(scorings), "Scoring")


class Progress:
    """Progress lines of runs that are trained side by side.

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
            return train_runs.evaluation_line(self.title(number), event)
        self._steps[number] = event["step"]
        return train_runs.training_line(
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
        """Whether the data are prepared, and no other process trains it.

        The first run prepares the data. After a kill, the trainer of an earlier
        command may still be running.
        """
        runs = self._progress.runs
        if self._progress.is_any_running and not any(
            run.files.has_hparams() for run in runs
        ):
            return False
        is_busy = self._is_trained_elsewhere()
        if is_busy and not self._is_reported:
            self._is_reported = True
            _log.info(
                "Another process is training %s: waiting for it.",
                self._run.path,
            )
        return not is_busy

    def start(self, slot: jobs.Slot) -> child_process.Child:
        self._reader = train_runs.MetricsReader(self._run, self._report)
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
        train_runs.check_finished(
            self._run, self._progress.train_steps, self._log
        )

    def _is_trained_elsewhere(self):
        # A trainer has its log before it locks its directory.
        if locks.is_open(self._log):
            return True
        if not self._run.path.is_dir():
            return False
        with locks.try_exclusive(self._run.path) as is_free:
            return is_free is False

    def _report(self, event):
        self._progress.log_event(self._number, event)


class _Scoring:
    """The scoring of a model, as a `jobs.Job`."""

    def __init__(self, scoring, request, title):
        self._scoring = scoring
        self._request = request
        self.title = scoring.run.title
        self._start = f"{title}  translating {scoring.num_missing_lines} lines."

    def is_ready(self) -> bool:
        """Whether no scorer of an earlier command, killed, is running."""
        return not locks.is_open(self._scoring.log)

    def start(self, slot: jobs.Slot) -> child_process.Child:
        child = child_process.Child(
            score_cache.SCORER,
            self._scoring.log,
            self._scoring.task,
            self._request,
            slot.environment,
            slot.cores,
        )
        _log.info("%s", self._start)
        return child

    def watch(self) -> None:
        """Does nothing: a scorer has no progress."""

    def finish(self, child: child_process.Child) -> None:
        child.check()
