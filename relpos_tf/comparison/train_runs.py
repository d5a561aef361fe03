"""Trains the runs of a comparison: one after the other, or several at once."""

import functools
import logging
import pathlib
import time
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from relpos_tf.comparison import jobs
from relpos_tf.comparison import runs as runs_lib
from relpos_tf.comparison import slots as slots_lib
from relpos_tf.models import run_dir
from relpos_tf.training import reporting

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

    A run that fails is logged and does not stop the others.

    Args:
        runs: All runs, which have been checked.
        flags: Flags of the trainer, the same for all, by name.
        train_steps: int. Updates of each run.
        log_folder: Gets a log file for each run.
        slots: Where they run.

    Raises:
        KeyboardInterrupt: a signal came; the runs have saved their states.
    """
    progress = _Progress(runs, train_steps)
    waiting = []
    for run in runs:
        if runs_lib.is_finished(run, train_steps):
            _log.info("%s is trained.", progress.titles[run])
            continue
        log = log_folder / f"{run.name}.log"
        waiting.append(
            jobs.Job(
                run.title,
                arguments(run, flags, train_steps),
                log,
                functools.partial(_begin, run, progress, slots),
            )
        )
    jobs.run(
        waiting,
        slots,
        "Training",
        # The first run prepares the data.
        is_ready=lambda: any(run.files.has_hparams() for run in runs),
        watch=progress.log_new,
    )


def arguments(
    run: runs_lib.Run, flags: Mapping[str, object], train_steps: int
) -> list[str]:
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


class _Progress:
    """Logs the new events of all runs, and the time left.

    Attributes:
        titles: dict. The beginning of the lines of each run.
    """

    def __init__(self, runs, train_steps):
        self.titles = {
            run: f"[{number}/{len(runs)}] {run.title}"
            for number, run in enumerate(runs, start=1)
        }
        self._train_steps = train_steps
        self._seen = {run: len(run.files.read_metrics()) for run in runs}
        self.steps = {
            run: max(run_dir.all_steps(run.path), default=0) for run in runs
        }
        self._steps_before = sum(self.steps.values())
        self._begun = time.monotonic()

    def log_new(self) -> None:
        """Logs the events since the last call."""
        for run, seen in self._seen.items():
            events = run.files.read_metrics()
            for event in events[seen:]:
                _log.info("%s  %s", self.titles[run], self._text(run, event))
            # A resumed run first removes the events that it repeats.
            self._seen[run] = max(seen, len(events))

    def _text(self, run, event: Mapping[str, Any]) -> str:
        """Returns the line for an event of a run, without its title."""
        step, loss = event["step"], f"loss {event['loss']:.2f}"
        if event["split"] != "train":
            averaged = "  averaged" * ("averaged" in event)
            name = f"{event['split']} {loss}  BLEU {event['bleu']:.2f}"
            return f"step {step}{averaged}  {name}"
        self.steps[run] = step
        done = sum(self.steps.values())
        speed = (time.monotonic() - self._begun) / max(
            done - self._steps_before, 1
        )
        left = (self._train_steps * len(self.steps) - done) * speed
        return (
            f"step {step}/{self._train_steps}  {loss}  "
            f"{event['steps_per_second']:.1f} steps/s  all runs: "
            f"{reporting.duration(left)} left"
        )


def _begin(run, progress, slots) -> None:
    if slots.sharing:
        run.write_sharing(slots.sharing)
    step = progress.steps[run]
    start = f"goes on from step {step}" if step else "begins"
    _log.info("%s %s.", progress.titles[run], start)
