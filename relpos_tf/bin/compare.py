r"""Compares hparams sets: trains them alike, and says which is better.

  relpos-compare --problem=translate_ende_multi30k --seeds=1,2,3 \
      --hparams_sets=transformer_relative_tiny,transformer_tiny \
      --train_steps=1000 --output_dir=runs/compared
  relpos-compare --preset=table2 --problem=translate_ende_multi30k \
      --train_steps=1000 --output_dir=runs/table2
  relpos-compare --runs=runs/relative,runs/absolute --output_dir=runs/compared \
      --outputs=marian=marian.de
  relpos-compare --diff --hparams_sets=transformer_base,transformer_relative

Runs are trained in OUTPUT_DIR/runs/LABEL-seedN, one after another. Runs of one
seed see the same batches in the same order. The same command again resumes
where the last one stopped. --print_commands prints the commands that train the
runs, for several GPUs or machines. Then every model translates the test set,
and report.html and report.json in OUTPUT_DIR compare scores, significance,
speed and memory. With --runs, nothing is trained; directories LABEL-seedN are
the runs of one label, and LABEL=DIR gives a different label.

--grid="learning_rate_constant=0.7,1,1.4" tunes every set alike: each is trained
at each point with the first seed and scored on the development set; its best
point is trained with all seeds and scored on the test set. Several fields have
semicolons between them; the grid is their product.

Presets derive from one set with relative positions (--hparams_sets, default
transformer_relative_tiny): table1, relative, absolute or both; table2, the
clipping distance k; table3, a^K and a^V; length, five kinds of positions,
trained on sentences up to --train_max_length; depth, k of 1, 2 and 16 with 1, 2
and 4 layers; localness, Gaussian biases; positions, all schemes: Shaw's, these
with sinusoids, sinusoids, SHAPE, learned, T5's bias, ALiBi, rotary,
KERPLE, FIRE, Transformer-XL, convolutional, localness, sinusoids in the encoder
only, none.
"""

import pathlib
import sys
from collections.abc import Sequence
from typing import Any

from relpos_tf import registry
from relpos_tf.bin import command
from relpos_tf.bin import scores
from relpos_tf.comparison import grid as grid_lib
from relpos_tf.comparison import outputs as outputs_lib
from relpos_tf.comparison import runs as runs_lib
from relpos_tf.comparison import variants as variants_lib
from relpos_tf.problems import test_sets
from relpos_tf.training import run_config
from relpos_tf.utils import locks
from relpos_tf.utils import paths
from relpos_tf.utils import signals
from relpos_tf.utils import terminal

FLAGS = command.Flags()

command.define_problem_flags(FLAGS, "")
FLAGS.define_lists(
    hparams_sets="Names of sets; LABEL=NAME gives its own label. With "
    "--preset, one set.",
    outputs="LABEL=FILE: translations of the test set by a different system, a "
    "line for each line, beside the runs; LABEL:TEST_SET=FILE, of a further "
    "test set. Several files of a label are several trainings; * and ? match "
    "as in a shell.",
)
FLAGS.define_lists(
    segment_scores="NAME:LABEL/SEED=FILE: scores of a metric from elsewhere, "
    "such as COMET, a number for each line of the test set; NAME:LABEL=FILE of "
    "a different system. They are compared as BLEU is.",
)
FLAGS.define_enum(
    "preset",
    None,
    list(variants_lib.PRESETS),
    "A comparison from the paper or from related work, in place of sets.",
)
FLAGS.define_strings(
    hparams="Changes: LABEL:name=value,name=value;LABEL:name=value. Changes "
    "without a label apply to all.",
    grid="Values to choose from on the development set, for each set: "
    "name=value,value;name=value,value (quote the semicolon).",
    runs="Directories of finished runs, or LABEL=DIR, in place of training; * "
    "and ? match as in a shell.",
    baseline="Label that comes first in the report. Of more than four labels, "
    "each is compared with the first. Default: the first that is named.",
    output_dir="Folder for the runs and the report.",
)
FLAGS.define_bools(
    diff="Print only which hparams differ.",
    print_commands="Print a command of the trainer for each run that is not "
    "finished, and train nothing. Without this flag, the same command takes "
    "finished runs as they are, and reports. With --grid, print the runs of "
    "all points, or, once these are finished, the others of the best points.",
)
FLAGS.define_integers(
    train_steps="Updates of each run. 0: train_steps of the sets.",
    train_max_length="Train on pairs of at most this number of pieces a side. "
    "0: max_length of the sets.",
)
FLAGS.define_fields(run_config.RunConfig, "local_eval_frequency")
FLAGS.define_numbers("seeds", ["1"], "Random seeds, each for all sets.")
FLAGS.define_bool(
    "use_test_set",
    True,
    "Score on the test split, if the problem has one. --nouse_test_set: on "
    "the development split.",
)
scores.define_tokenizer(FLAGS)
scores.define_scale(FLAGS)
FLAGS.needs(
    "diff=false",  # what only a report needs
    *"print_commands segment_scores grid baseline outputs seeds scale".split(),
    *"train_steps local_eval_frequency use_test_set bleu_tokenize".split(),
)
FLAGS.join(";", "hparams", "grid")
FLAGS.join(",", "runs")
FLAGS.needs(
    "runs=",  # what only training needs
    *"hparams_sets preset problem grid hparams train_max_length".split(),
    *"train_steps local_eval_frequency seeds tmp_dir print_commands".split(),
)


def main() -> int:
    """Compares; returns the exit code."""
    check_flags()
    limits = length_limits()
    variants = [] if FLAGS.runs else make_variants()
    with command.flag_value("grid"):
        grid = FLAGS.grid and grid_lib.expand(FLAGS.grid, variants)
    with command.flag_value("runs"):
        runs = runs_lib.find(FLAGS.runs)
    with command.flag_value("outputs"):
        outputs = outputs_lib.parse(FLAGS.outputs)
        labels = [one.label for one in variants]
        labels += dict.fromkeys(run.label for run in runs)
        labels += dict.fromkeys(one.label for one in outputs)
        variants_lib.check_labels(labels)
    if FLAGS.baseline and FLAGS.baseline not in labels:
        raise command.UsageError(
            f"--baseline must be one of the labels {', '.join(labels)}. "
            f"Received: {FLAGS.baseline}."
        )
    if FLAGS.diff:
        by_label = {one.label: one.hparams for one in variants}
        by_label |= {run.label: run.files.read_hparams() for run in runs}
        differences = variants_lib.differences(by_label)
        command.write(variants_lib.differences_table(differences))
        return 0
    command.require(FLAGS, "output_dir")
    folder = pathlib.Path(FLAGS.output_dir)
    with command.flag_value("output_dir"):
        paths.check_folder(folder)
    # Before training, since a package may be missing.
    from relpos_tf.comparison import report as report_lib

    train_steps, tried = 0, list[dict[str, Any]]()
    if variants:
        command.require(FLAGS, "problem", "seeds")
        runs, train_steps = make_runs(variants, folder / "runs", grid)
    if FLAGS.scale:
        scores.check_scale(
            FLAGS.scale,
            command.make_problem(FLAGS).target_language
            if variants
            else test_sets.problem_of(runs[0].files)["target_language"],
        )
    if FLAGS.print_commands and print_unfinished(runs, train_steps):
        return 0
    with signals.caught():
        try:
            locks.acquire_exclusive(folder)
            if grid:
                variants, tried = tune(runs, grid, train_steps, folder)
                runs, _ = make_runs(variants, folder / "runs")
            if FLAGS.print_commands:
                if not print_unfinished(runs, train_steps):
                    command.logger().info("All runs are finished.")
                return 0
            if variants:
                runs_lib.train(
                    runs, trainer_flags(), train_steps, folder / "logs"
                )
            code = report(runs, train_steps, limits, folder, tried, outputs)
            written = ", ".join(map(str, report_lib.paths(folder)))
            command.logger().info("Wrote %s.", written)
            return code
        except KeyboardInterrupt:
            command.logger().info(
                "Stopped. The same command resumes:\n  %s",
                command.command_line(),
            )
            raise


def check_flags() -> None:
    """Raises UsageError for contradictory or missing flags."""
    if not (FLAGS.hparams_sets or FLAGS.preset or FLAGS.runs):
        raise command.UsageError(
            "one of --hparams_sets, --preset and --runs is required: the sets "
            "or runs to compare."
        )
    if FLAGS.preset and len(FLAGS.hparams_sets) > 1:
        raise command.UsageError(
            "--preset derives all from one set. Received: --hparams_sets="
            f"{','.join(FLAGS.hparams_sets)}."
        )
    if FLAGS.preset == "length" and not FLAGS.train_max_length:
        raise command.UsageError(
            "--preset=length needs --train_max_length: it trains on sentences "
            "up to that length and tests on longer ones."
        )
    command.check_train_steps(FLAGS)
    if FLAGS.problem == "translate_files":
        command.require(FLAGS, *command.TEXTS)
    elif FLAGS.problem:
        with command.flag_value("problem"):
            registry.problem(FLAGS.problem)


def make_variants() -> list[variants_lib.Variant]:
    """Returns the variants of --hparams_sets or --preset."""
    more = ""
    if FLAGS.train_max_length:
        more = f"max_length={FLAGS.train_max_length}"
    sets, changes = FLAGS.hparams_sets, FLAGS.hparams
    with command.flag_value("hparams_sets"):
        for item in sets:
            registry.hparams(item.rpartition("=")[2])
        if not FLAGS.preset:
            variants_lib.check_labels([s.rpartition("=")[0] or s for s in sets])
    with command.flag_value("hparams"):
        if not FLAGS.preset:
            return variants_lib.of_sets(sets, changes, more)
        base = sets[0] if sets else variants_lib.DEFAULT_BASE
        return variants_lib.of_preset(FLAGS.preset, base, changes, more)


def length_limits() -> list[int]:
    """Returns upper limits of source lengths, in pieces; none: quartiles."""
    if FLAGS.preset != "length":
        return []
    longest = FLAGS.train_max_length
    return [longest, 3 * longest // 2, 2 * longest]


def make_runs(
    variants: Sequence[variants_lib.Variant],
    folder: pathlib.Path,
    grid: Sequence[variants_lib.Variant] = (),
) -> tuple[list[runs_lib.Run], int]:
    """Returns all runs, seed by seed, and the updates of each.

    With a grid, they are the runs of its points with the first seed.
    """
    steps = {FLAGS.train_steps or one.hparams.train_steps for one in variants}
    if len(steps) > 1:
        raise command.UsageError(
            "--train_steps is required, because the sets differ in it: "
            f"{', '.join(f'{n:,}' for n in sorted(steps))}."
        )
    train_steps = steps.pop()
    seeds = FLAGS.numbers("seeds")
    if grid:
        variants, seeds = grid, seeds[:1]
    runs = runs_lib.of_variants(
        variants, seeds, folder, trainer_flags(), train_steps
    )
    has_begun = any(run.files.has_hparams() for run in runs)
    if FLAGS.problem == "translate_files" and has_begun:
        runs_lib.check_text(runs, FLAGS.data_dir, command.make_problem(FLAGS))
    return runs, train_steps


def print_unfinished(runs: Sequence[runs_lib.Run], train_steps: int) -> bool:
    """Prints the commands that train the runs; returns whether there are any.

    They hold in the folder in which this command is called.
    """
    waiting = [x for x in runs if not runs_lib.is_finished(x, train_steps)]
    for run in waiting:
        words = runs_lib.arguments(run, trainer_flags(), train_steps)
        command.write(f"{command.call_of('trainer', *words)}\n")
    return bool(waiting)


def trainer_flags() -> dict[str, Any]:
    """Returns the flags of the trainer, but --usr_dir, that all runs share."""
    own = "problem data_dir tmp_dir local_eval_frequency bleu_tokenize".split()
    if FLAGS.problem == "translate_files":
        own += [*command.FILE_FLAGS, "vocab_size"]
    return {name: getattr(FLAGS, name) for name in own}


def tune(
    runs: list[runs_lib.Run],
    grid: list[variants_lib.Variant],
    train_steps: int,
    folder: pathlib.Path,
) -> tuple[list[variants_lib.Variant], list[dict[str, Any]]]:
    """Returns each variant at its best point, and what was tried."""
    from relpos_tf.comparison import tuning

    runs_lib.train(runs, trainer_flags(), train_steps, folder / "logs")
    tokenize = scores.asked_tokenizer(FLAGS, runs[0].files)
    return tuning.choose(
        tuning.score(runs, grid, train_steps, FLAGS.data_dir, folder, tokenize)
    )


def report(
    runs: list[runs_lib.Run],
    train_steps: int,
    limits: list[int],
    folder: pathlib.Path,
    tried: list[dict[str, Any]],
    outputs: Sequence[outputs_lib.Output],
) -> int:
    """Scores the models and writes the report; returns the exit code."""
    from relpos_tf.comparison import collection
    from relpos_tf.comparison import report as report_lib

    content = collection.collect(
        runs,
        train_steps,
        FLAGS.data_dir,
        folder,
        use_test_set=FLAGS.use_test_set,
        outputs=outputs,
        tuning=tried,
        segments=FLAGS.segment_scores,
        limits=limits,
        command=command.command_line(),
        baseline=FLAGS.baseline,
        tokenize=scores.asked_tokenizer(FLAGS, runs[0].files),
        scale=FLAGS.scale,
    )
    report_lib.write(content, folder)
    for warning in content["warnings"]:
        command.logger().warning("%s", warning)
    command.write(report_lib.table(content))
    command.write(terminal.wrapped(f"{content['verdict']}\n", sys.stdout))
    return int(bool(content["missing"]))


run = command.program(main)
