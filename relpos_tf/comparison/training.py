"""Training the runs of a comparison, one after the other."""

import logging
import pathlib
import time
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence

from relpos_tf import errors
from relpos_tf.comparison import processes
from relpos_tf.comparison import runs as runs_lib
from relpos_tf.models import run_dir
from relpos_tf.training import reporting

_log = logging.getLogger("relpos_tf")
# What is run in a process of its own.
TRAINER = ("-m", "relpos_tf.bin.trainer")


def train(
    runs: Sequence[runs_lib.Run],
    flags: Mapping[str, object],
    train_steps: int,
    log_folder: pathlib.Path,
) -> None:
    """Trains what is not trained yet, and goes on with what is begun.

    Args:
        runs: All runs, which have been checked.
        flags: Flags of the trainer, the same for all, by name.
        train_steps: int. The updates of each run.
        log_folder: Gets a file for each run.

    Raises:
        UserError: a run failed, or ended too early.
        KeyboardInterrupt: a signal came; the run has saved what it could.
    """
    progress = Progress(runs, train_steps)
    for number, run in enumerate(runs, start=1):
        if runs_lib.is_finished(run, train_steps):
            _log.info("%s is trained.", progress.title(number))
            continue
        log = log_folder / f"{run.name}.log"
        step = max(run_dir.all_steps(run.path), default=0)
        begins = f"goes on from step {step}" if step else "begins"
        _log.info("%s %s.", progress.title(number), begins)
        progress.begin(number, step)
        watch = Watch(run, progress.say)
        arguments = _arguments(run, flags, train_steps)
        processes.run(arguments, log, f"Training of {run.title}", watch.look)
        progress.end()
        if not runs_lib.is_finished(run, train_steps):
            raise errors.UserError(
                f"Training of {run.title} ended before step {train_steps}, "
                f"without an error; see {log}. Run again: it goes on."
            )


def _arguments(run, flags, train_steps):
    """Returns the trainer's command line for a run."""
    own = {
        "hparams_set": run.hparams_set,
        "hparams": run.overrides,
        "random_seed": run.seed,
        "output_dir": run.path,
        "train_steps": train_steps,
        "log_step_count_steps": min(100, max(train_steps // 10, 1)),
    }
    return [*TRAINER, *(f"--{k}={v}" for k, v in (dict(flags) | own).items())]


class Watch:
    """Tells of what is new in a run's metrics.jsonl.

    Args:
        run: The run.
        tell: Function that is given each new event.
    """

    def __init__(self, run: runs_lib.Run, tell: Callable[[dict], None]):
        self._files = run.files
        self._tell = tell
        self._stamp = None
        self._seen = set()
        for _ in self._new():
            pass  # What earlier starts have left.

    def look(self) -> None:
        """Tells of what came since the last look."""
        for event in self._new():
            self._tell(event)

    def _new(self):
        """Yields events that were not there before."""
        try:
            stat = (self._files.path / run_dir.METRICS).stat()
        except FileNotFoundError:
            return
        stamp = stat.st_mtime_ns, stat.st_size, stat.st_ino
        if stamp == self._stamp:
            return
        self._stamp = stamp
        for event in self._files.read_metrics():
            # An update that is repeated after a kill is news.
            key = event["step"], event["split"], event["loss"]
            if key not in self._seen:
                self._seen.add(key)
                yield event


class Progress:
    """One display for all runs.

    Args:
        runs: All of them.
        train_steps: int. The updates of each.
        clock: function without arguments that returns seconds.
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
        # Of runs that ended: how many updates they made here, how long it took.
        self._steps, self._seconds = 0, 0.0
        self._number = self._from = self._step = 0
        self._since = clock()

    def title(self, number: int) -> str:
        """Returns the beginning of each line of a run, counted from 1."""
        return f"[{number}/{len(self._runs)}] {self._runs[number - 1].title}"

    def begin(self, number: int, step: int) -> None:
        """Says that a run begins, after so many updates made before."""
        self._number, self._from, self._step = number, step, step
        self._since = self._clock()

    def end(self) -> None:
        """Says that the run is over."""
        self._steps += self._step - self._from
        self._seconds += self._clock() - self._since
        self._from = self._step

    def say(self, event: dict) -> None:
        """Writes a line for an event of the run."""
        _log.info("%s", self.line(event))

    def line(self, event: dict) -> str:
        """Returns the line for an event of the run."""
        start = f"{self.title(self._number)}  step {event['step']}"
        if event["split"] != "train":
            averaged = "  averaged" * ("averaged" in event)
            return (
                f"{start}{averaged}  {event['split']} loss "
                f"{event['loss']:.2f}  BLEU {event['bleu']:.2f}"
            )
        self._step = event["step"]
        left, in_all = self._left()
        return (
            f"{start}/{self._train_steps}  loss {event['loss']:.2f}  "
            f"{event['steps_per_second']:.1f} steps/s  "
            f"{reporting.duration(left)} left, all "
            f"{reporting.duration(in_all)}"
        )

    def _left(self):
        """Returns the seconds left, of this run and of all.

        By what was made since it began, evaluations included.
        """
        made = max(self._step - self._from, 1)
        seconds = self._clock() - self._since
        left = (self._train_steps - self._step) * seconds / made
        per_step = (self._seconds + seconds) / (self._steps + made)
        later = 0
        for run in self._runs[self._number :]:
            if not runs_lib.is_finished(run, self._train_steps):
                steps = run_dir.all_steps(run.path)
                later += max(self._train_steps - max(steps, default=0), 0)
        return left, left + later * per_step
