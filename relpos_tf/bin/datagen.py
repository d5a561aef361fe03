r"""Prepares the data of a problem: vocabulary, ids of all pairs, test lines.

    relpos-datagen --problem=translate_ende_wmt14
    relpos-datagen --problem=translate_files --data_dir=data \
        --train_source='part-*.en.gz' --train_target='part-*.de.gz' \
        --dev_source=dev.en --dev_target=dev.de
    relpos-datagen --registry_help

The trainer does the same before it trains. Prepared data stay as they are,
unless --generate_data is given, as after test sets were added to --tmp_dir. A
preparation that was stopped or killed starts again.
"""

from relpos_tf.bin import command
from relpos_tf.utils import paths
from relpos_tf.utils import signals

FLAGS = command.Flags()
command.define_problem_flags(FLAGS, None)
FLAGS.define_integer(
    "num_processes",
    0,
    "Processes that clean and encode the training text; 0: one for each core. "
    "The files do not depend on it.",
    lower_bound=0,
    upper_bound=1024,
)
FLAGS.define_bools(
    generate_data="Prepare the data again, even if they are there.",
    registry_help="List problems and hparams sets.",
)


def main() -> None:
    """Prepares the data."""
    command.require(FLAGS, "problem", "data_dir")
    problem = command.make_problem(FLAGS)
    if FLAGS.generate_data or not problem.is_prepared(FLAGS.data_dir):
        with command.flag_value("data_dir"):  # before anything is downloaded
            paths.check_folder(FLAGS.data_dir)
    folders = FLAGS.data_dir, FLAGS.tmp_dir
    with signals.caught():
        problem.prepare(*folders, FLAGS.num_processes, anew=FLAGS.generate_data)
    command.logger().info("%s is prepared in %s.", problem.name, FLAGS.data_dir)


run = command.program(main)
