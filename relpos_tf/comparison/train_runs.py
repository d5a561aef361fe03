"""Trains the runs of a comparison, one after another."""

import functools
import logging
import pathlib
import time
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from relpos_tf import registry
from relpos_tf.comparison import jobs
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

    A run that fails is logged and does not stop the others.

    Args:
        runs: All runs, which have been checked.
        flags: Flags of the trainer, the same for all, by name.
        train_steps: int. Updates of each run.
        log_folder: Gets a log file for each run.

    Raises:
        KeyboardInterrupt: a signal came; the run has saved its state.
    """
    progress = _Progress(runs, train_steps)
    own = [f"--usr_dir={path}" for path in registry.usr_dirs]
    waiting = []
    for run in runs:
        if runs_lib.is_finished(run, train_steps):
            _log.info("%s is trained.", progress.titles[run])
            continue
        waiting.append(
            jobs.Job(
                run.title,
                [*TRAINER, *arguments(run, flags, train_steps), *own],
                log_folder / f"{run.name}.log",
                functools.partial(progress.begin, run),
            )
        )
    jobs.run(waiting, progress.log_new, "Training")


def arguments(
    run: runs_lib.Run, flags: Mapping[str, object], train_steps: int
) -> list[str]:
    """Returns the trainer's flags for a run, but --usr_dir."""
    own = {
        "hparams_set": run.hparams_set,
        "hparams": run.overrides,
        "random_seed": run.seed,
        "output_dir": run.path,
        "train_steps": train_steps,
        "log_step_count_steps": min(100, max(train_steps // 10, 1)),
    }
    values = {**flags, **own}
    return [f"--{k}={v}" for k, v in values.items() if v not in ("", None)]


class _Progress:
    """Logs the new events of the run that is trained, and the time left.

    Attributes:
        titles: dict. The beginning of the lines of each run.
    """

    def __init__(self, runs, train_steps):
        self.titles = {
            run: f"[{number}/{len(runs)}] {run.title}"
            for number, run in enumerate(runs, start=1)
        }
        self._train_steps = train_steps
        self._steps = {
            run: max(run_dir.all_steps(run.path), default=0) for run in runs
        }
        self._steps_before = sum(self._steps.values())
        self._begun = time.monotonic()

    def begin(self, run: runs_lib.Run) -> None:
        """Logs that a run begins."""
        self._run, self._seen = run, len(run.files.read_metrics())
        step = self._steps[run]
        start = f"resumes at step {step}" if step else "begins"
        _log.info("%s %s.", self.titles[run], start)

    def log_new(self) -> None:
        """Logs the events since the last call."""
        events = self._run.files.read_metrics()
        for event in events[self._seen :]:
            _log.info("%s  %s", self.titles[self._run], self._text(event))
        # A resumed run first removes the events that it repeats.
        self._seen = max(self._seen, len(events))

    def _text(self, event: Mapping[str, Any]) -> str:
        """Returns the line for an event, without the run's title."""
        step, loss = event["step"], f"loss {event['loss']:.2f}"
        if event["split"] != "train":
            averaged = "  averaged" * ("averaged" in event)
            name = f"{event['split']} {loss}  BLEU {event['bleu']:.2f}"
            return f"step {step}{averaged}  {name}"
        self._steps[self._run] = step
        done = sum(self._steps.values())
        speed = (time.monotonic() - self._begun) / max(
            done - self._steps_before, 1
        )
        left = (self._train_steps * len(self._steps) - done) * speed
        return (
            f"step {step}/{self._train_steps}  {loss}  "
            f"{event['steps_per_second']:.1f} steps/s  all runs: "
            f"{reporting.duration(left)} left"
        )
