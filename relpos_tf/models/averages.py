"""Averages of a run's checkpoints, in `RUN/average`. No TensorFlow."""

import logging
import pathlib

import numpy as np

from relpos_tf import errors
from relpos_tf import hparam
from relpos_tf.models import checkpoints
from relpos_tf.models import run_dir

_log = logging.getLogger("relpos_tf")


def ends_of_epochs(run: pathlib.Path, number: int, *coming: int) -> list[int]:
    """Returns the steps at the ends of the last epochs, ascending.

    Args:
        run: The run's directory.
        number: int. How many, at most.
        *coming: Ends of epochs whose checkpoints are not saved yet.
    """
    there = run_dir.steps_of(run, run_dir.CHECKPOINT)
    ends = there & run_dir.steps_of(run, run_dir.EPOCH)
    return sorted({*ends, *coming})[-number:] if number else []


def chosen(run: pathlib.Path, hparams: hparam.HParams) -> list[int]:
    """Returns the steps of the checkpoints that the hparams average, ascending.

    They are the last `average_checkpoints`, or those at the ends of the last
    `average_epochs` epochs.
    """
    if number := hparams.average_checkpoints:
        return run_dir.all_steps(run)[-number:]
    return ends_of_epochs(run, hparams.average_epochs)


def is_missing(run: pathlib.Path, hparams: hparam.HParams, step: int) -> bool:
    """Returns whether a run of `step` updates lacks its average.

    There is none of fewer than two checkpoints.
    """
    made = run_dir.all_steps(run / run_dir.AVERAGE)
    return len(chosen(run, hparams)) > 1 and step not in made


def write(run: pathlib.Path, steps: list[int], name: int) -> str:
    """Writes the mean of the model variables of several checkpoints.

    Where a checkpoint has moving averages, they count and not the weights. Sums
    are in float64. The result has no optimizer, but the last step, as
    `training/step`, and the averaged steps, see `checkpoints.averaged_steps`.

    Args:
        run: The run's directory.
        steps: Those of the checkpoints, at least one.
        name: int. The step in the name of the result.

    Returns:
        The prefix of the result.

    Raises:
        OSError: the result cannot be written.
        UserError: a checkpoint is damaged or an average itself.
    """
    folder = run / run_dir.AVERAGE
    folder.mkdir(exist_ok=True)
    run_dir.remove_left_overs(folder)
    sums: dict[str, np.ndarray] = {}
    for prefix in (run / f"ckpt-{step}" for step in steps):
        if checkpoints.averaged_steps(prefix):
            raise errors.UserError(
                "Expected checkpoints that training wrote: an average of "
                "averages counts some of them twice. Received: "
                f"{prefix}, an average."
            )
        values = checkpoints.read_model(prefix)
        for key, value in values.items():
            # -0.0 + x is x for every x, while 0.0 + -0.0 is 0.0.
            sums[key] = sums.get(key, -0.0) + value.astype(np.float64)
    mean = {
        key: (sums[key] / len(steps)).astype(value.dtype)
        for key, value in values.items()
    }
    output = str(folder / f"ckpt-{name}")
    checkpoints.write_model(output, mean, max(steps), average_of=steps)
    listed = ", ".join(map(str, steps))
    _log.info("Averaged %d checkpoints, steps %s.", len(steps), listed)
    return output
