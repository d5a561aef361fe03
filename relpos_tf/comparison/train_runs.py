"""Trains the runs of a comparison, one after another."""

import logging
import pathlib
from collections.abc import Mapping
from collections.abc import Sequence

from relpos_tf import registry
from relpos_tf.comparison import jobs
from relpos_tf.comparison import runs as runs_lib

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
    own = [f"--usr_dir={path}" for path in registry.usr_dirs]
    waiting = []
    for run in runs:
        if runs_lib.is_finished(run, train_steps):
            _log.info("%s is trained.", run.title)
            continue
        words = [*TRAINER, *arguments(run, flags, train_steps), *own]
        log = log_folder / f"{run.name}.log"
        waiting.append(jobs.Job(run.title, words, log))
    jobs.run(waiting, "Training")


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
