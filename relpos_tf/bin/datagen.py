r"""Prepares the data of a problem: tokenizer, TFRecord shards, test lines.

    relpos-datagen --problem=translate_ende_wmt14 --num_shards=100
    relpos-datagen --problem=translate_files --data_dir=data \
        --train_source='part-*.en.gz' --train_target='part-*.de.gz' \
        --dev_source=dev.en --dev_target=dev.de
    relpos-datagen --registry_help

The trainer does the same before it trains. Data that are prepared already stay
as they are without --generate_data, which test sets that have come to --tmp_dir
since then need.

A preparation that was stopped or killed goes on where it was: the finished
parts lie in a hidden folder of --data_dir. Several machines share the work by
--num_tasks and --task_id, see docs/data.md.
"""

from relpos_tf import registry
from relpos_tf.bin import command
from relpos_tf.utils import paths
from relpos_tf.utils import processes

FLAGS = command.Flags()
FLAGS.define_string("problem", None, "Name of the data set to prepare.")
FLAGS.define_string("data_dir", "data", "Folder to write to.")
FLAGS.define_string(
    "tmp_dir",
    "downloads",
    "Folder of raw files; missing ones are downloaded to it.",
)
command.define_file_flags(FLAGS)
FLAGS.define_integer(
    "num_shards",
    0,
    "Number of TFRecord files of the training data, of each corpus if there "
    "are weights or tags; 0: the problem's own number.",
    lower_bound=0,
    upper_bound=10_000,
)
FLAGS.define_integer(
    "num_processes",
    0,
    "Processes that clean and encode the training text; 0: one for each core. "
    "The files do not depend on it.",
    lower_bound=0,
    upper_bound=1024,
)
FLAGS.define_integer(
    "num_tasks",
    1,
    "Encode only a share of the training text, one of so many. The command "
    "without it, afterwards, encodes what is missing and writes the files.",
    lower_bound=1,
    upper_bound=10_000,
)
FLAGS.define_integer(
    "task_id", 0, "Which share, from 0, with --num_tasks.", lower_bound=0
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
    if FLAGS.task_id >= FLAGS.num_tasks:
        raise command.UsageError(
            f"--task_id={FLAGS.task_id} must be below "
            f"--num_tasks={FLAGS.num_tasks}."
        )
    problem = command.make_problem(FLAGS)
    log = command.logger()
    with command.flag_value("data_dir"):
        paths.check_name(FLAGS.data_dir)
    if problem.is_prepared(FLAGS.data_dir) and not FLAGS.generate_data:
        log.info("%s is already prepared in %s.", problem.name, FLAGS.data_dir)
        if FLAGS.num_shards:
            check_num_shards(problem)
        return
    with command.flag_value("data_dir"):  # before anything is downloaded
        paths.check_folder(FLAGS.data_dir)
    arguments = (
        FLAGS.data_dir,
        FLAGS.tmp_dir,
        FLAGS.num_shards or None,
        FLAGS.num_processes or processes.available(),
    )
    if FLAGS.num_tasks > 1:
        share = FLAGS.task_id, FLAGS.num_tasks
        count = problem.prepare_share(*arguments, share)
        log.info(
            "Share %d of %d is encoded, %s pairs. When all are: the same "
            "command without --num_tasks and --task_id.",
            FLAGS.task_id,
            FLAGS.num_tasks,
            f"{count:,}",
        )
        return
    manifest = problem.prepare_anew(*arguments)
    from relpos_tf.problems import cleaning

    log.info("%s", cleaning.table(manifest["cleaning"]))
    log.info("%s is prepared in %s.", problem.name, FLAGS.data_dir)


def check_num_shards(problem) -> None:
    """Warns that prepared data keep another number of files than wanted."""
    corpora = problem.training_corpora(FLAGS.data_dir)
    number = len(corpora[0].paths)
    if FLAGS.num_shards != number:
        command.logger().warning(
            "The training data stay in %s. --num_shards=%d needs "
            "--generate_data, which prepares them again.",
            f"{number} file{'s' * (number > 1)}"
            + (" of each corpus" if len(corpora) > 1 else ""),
            FLAGS.num_shards,
        )


def run():
    """Runs the command."""
    command.run(main)


if __name__ == "__main__":
    run()
