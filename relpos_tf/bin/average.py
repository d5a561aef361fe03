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
from relpos_tf.models import averages
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


def main() -> None:
    """Averages the checkpoints."""
    command.require(FLAGS, "output_dir")
    run = pathlib.Path(FLAGS.output_dir)
    with command.flag_value("output_dir"):
        paths.check_folder(run / run_dir.AVERAGE)
    saved = run_dir.all_steps(run)
    number = FLAGS.n
    steps = sorted(FLAGS.numbers("steps")) or (
        saved[-number:] if number else []
    )
    name = max(steps, default=0)
    if not steps:
        hparams = run_dir.RunDir(run).read_hparams()
        if not hparams.num_averaged:
            hparams = hparams.replace(average_checkpoints=DEFAULT_NUMBER)
        number, name = hparams.num_averaged, max(saved, default=0)
        steps = averages.chosen(run, hparams)
    if not steps:
        raise errors.UserError(
            "Expected a run with checkpoints, ckpt-STEP.npz, and with "
            "ckpt-STEP.epoch, at the ends of epochs, if its set has "
            f"average_epochs. Received: --output_dir={run}, which has none. "
            "Name the checkpoints with --n or --steps."
        )
    missing = sorted(set(steps) - set(saved))
    if missing:
        raise command.UsageError(
            f"--steps must be saved steps: {', '.join(map(str, saved))}."
            f" Received: {', '.join(map(str, missing))}."
        )
    if len(steps) < number:
        command.logger().warning(
            "%d checkpoints asked for, %d saved.", number, len(steps)
        )
    command.write(f"{averages.write(run, steps, name)}\n")


run = command.program(main)
