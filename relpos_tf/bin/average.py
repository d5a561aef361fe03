"""Averages the weights of a run's checkpoints into a new one.

    relpos-average --output_dir=runs/mine --n=20
    relpos-average --output_dir=runs/mine --steps=9000,10000

Without --n and --steps, the run's set decides: its average_checkpoints, or its
average_epochs for the checkpoints at the ends of the last epochs of the data.
Where checkpoints have moving averages of the weights, those are averaged.

The result is RUN/average/ckpt-STEP, named after the last of the steps, or, with
average_epochs, after the run's last step, as the trainer names it. The run
stands for it if it is of the last step:

    relpos-decoder --output_dir=runs/mine < test.en
"""

import pathlib

from relpos_tf import errors
from relpos_tf.bin import command
from relpos_tf.models import checkpoints
from relpos_tf.models import run_dir
from relpos_tf.utils import paths

# tensor2tensor's default, for sets without average_checkpoints.
DEFAULT_NUMBER = 8

FLAGS = command.Flags()
FLAGS.define_strings(output_dir="The run.")
command.define_usr_dir(FLAGS)
FLAGS.define_integers(
    n="Average the last N checkpoints. 0: as the set says with "
    f"average_checkpoints or average_epochs, else {DEFAULT_NUMBER}.",
)
FLAGS.define_numbers(
    "steps", [], "The steps to average, with commas, in place of the last n."
)
FLAGS.exclusive("n", "steps")


def main():
    """Averages the checkpoints."""
    command.require(FLAGS, "output_dir")
    run = pathlib.Path(FLAGS.output_dir)
    folder = run / run_dir.AVERAGE
    steps = FLAGS.numbers("steps")
    with command.flag_value("output_dir"):
        paths.check_folder(folder)
    saved = run_dir.all_steps(run)
    if not saved:
        raise errors.UserError(
            "Expected a run with checkpoints, ckpt-STEP.npz. "
            f"Received: --output_dir={run}, which has none."
        )
    number, last, kind = FLAGS.n, None, "checkpoints"
    if not number and not steps:
        hparams = run_dir.RunDir(run).read_hparams()
        number = hparams.num_averaged or DEFAULT_NUMBER
        if hparams.average_epochs:
            steps = ends_of_epochs(run, number)
            last, kind = saved[-1], "checkpoints at the ends of epochs"
    steps = steps or saved[-number:]
    missing = sorted(set(steps) - set(saved))
    if missing:
        raise command.UsageError(
            f"--steps must be saved steps: {', '.join(map(str, saved))}."
            f" Received: {', '.join(map(str, missing))}."
        )
    log = command.logger()
    if len(steps) < number:
        log.warning("%d %s asked for, %d saved.", number, kind, len(steps))
    folder.mkdir(exist_ok=True)
    output = str(folder / f"ckpt-{last or steps[-1]}")
    checkpoints.average([str(run / f"ckpt-{step}") for step in steps], output)
    log.info(
        "Averaged %d %s, steps %s.",
        len(steps),
        kind,
        ", ".join(map(str, steps)),
    )
    command.write(f"{output}\n")


def ends_of_epochs(run: pathlib.Path, number: int) -> list[int]:
    """Returns the steps of a run's last checkpoints at the ends of epochs."""
    steps = run_dir.epoch_ends(run)[-number:]
    if not steps:
        raise errors.UserError(
            "Expected checkpoints at the ends of epochs, ckpt-STEP.epoch: the "
            f"set has average_epochs={number}. Received: --output_dir={run}, "
            "which has none. Name the checkpoints with --n or --steps."
        )
    return steps


run = command.program(main)
