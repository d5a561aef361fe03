"""Prepares the data of a problem: tokenizer, TFRecord shards, test lines.

    relpos-datagen --problem=translate_ende_wmt14 --num_shards=100
    relpos-datagen --registry_help

The trainer does the same before it trains. Data that are prepared already stay
as they are without --generate_data, which test sets that have come to --tmp_dir
since then need.
"""

from relpos_tf import registry
from relpos_tf.bin import command
from relpos_tf.utils import paths

FLAGS = command.Flags()
FLAGS.define_string("problem", None, "Name of the data set to prepare.")
FLAGS.define_string("data_dir", "data", "Folder to write to.")
FLAGS.define_string(
    "tmp_dir",
    "downloads",
    "Folder of raw files; missing ones are downloaded to it.",
)
FLAGS.define_integer(
    "num_shards",
    0,
    "Number of TFRecord files of the training data; 0: the problem's own "
    "number.",
    lower_bound=0,
    upper_bound=10_000,
)
FLAGS.define_bool(
    "generate_data", False, "Prepare the data again even if they are there."
)
FLAGS.define_string(
    "usr_dir", None, "Folder of your own registrations, imported."
)
FLAGS.define_bool("registry_help", False, "List problems and hparams sets.")


def main():
    """Prepares the data."""
    if FLAGS.usr_dir:
        with command.flag_value("usr_dir"):
            registry.import_usr_dir(FLAGS.usr_dir)
    if FLAGS.registry_help:
        command.show_registry()
        return
    command.require(FLAGS, "problem", "data_dir")
    with command.flag_value("problem"):
        problem = registry.problem(FLAGS.problem)
    log = command.logger()
    with command.flag_value("data_dir"):
        paths.check_name(FLAGS.data_dir)
    if problem.is_prepared(FLAGS.data_dir) and not FLAGS.generate_data:
        log.info("%s is already prepared in %s.", problem.name, FLAGS.data_dir)
        return
    with command.flag_value("data_dir"):  # before anything is downloaded
        paths.check_folder(FLAGS.data_dir)
    command.import_tensorflow()
    problem.prepare_anew(
        FLAGS.data_dir, FLAGS.tmp_dir, FLAGS.num_shards or None
    )
    log.info("%s is prepared in %s.", problem.name, FLAGS.data_dir)


def run():
    """Runs the command."""
    command.run(main)


if __name__ == "__main__":
    run()
