r"""Trains a Transformer with relative or absolute positions.

  python trainer.py
      trains transformer_relative_tiny on the built-in phrases, in minutes

  python trainer.py --problem=translate_ende_multi30k \
      --hparams_set=transformer_relative_small --tmp_dir=downloads

  python trainer.py --problem=translate_files \
      --train_source=train.en --train_target=train.de \
      --dev_source=dev.en --dev_target=dev.de \
      --hparams_set=transformer_relative_small --output_dir=runs/mine

The same command again goes on where the last one stopped. The run's directory
holds all that decoder.py and relpos_tf.bin.export need.
"""

import dataclasses
import os
import platform

from absl import flags

from relpos_tf import errors
from relpos_tf import registry
from relpos_tf.bin import command

FLAGS = flags.FlagValues()
_DEFINE = {"flag_values": FLAGS}

flags.DEFINE_string(
    "problem",
    "translate_ende_phrases",
    "What to learn; --registry_help lists the names. translate_files is text "
    "of your own.",
    **_DEFINE,
)
flags.DEFINE_string("data_dir", "data", "Folder of prepared data.", **_DEFINE)
flags.DEFINE_string(
    "tmp_dir",
    "downloads",
    "Folder of raw files; what is not there is downloaded to it.",
    **_DEFINE,
)
flags.DEFINE_string(
    "output_dir",
    "",
    "The run's directory. Default: runs/PROBLEM-HPARAMS_SET.",
    **_DEFINE,
)
flags.DEFINE_enum(
    "model", "transformer", ["transformer"], "The architecture.", **_DEFINE
)
flags.DEFINE_string(
    "hparams_set",
    "transformer_relative_tiny",
    "Name of a set of hyper-parameters; --registry_help lists them.",
    **_DEFINE,
)
flags.DEFINE_string(
    "hparams", "", "Changes to the set: name=value,name=value.", **_DEFINE
)
flags.DEFINE_string(
    "usr_dir", "", "Folder of your own registrations, imported.", **_DEFINE
)
flags.DEFINE_bool(
    "generate_data",
    False,
    "Prepare the data anew even if they are there.",
    **_DEFINE,
)
_FILE_FLAGS = {
    "train_source": "training text",
    "train_target": "its translation",
    "dev_source": "development text",
    "dev_target": "its translation",
    "test_source": "test text",
    "test_target": "its translation",
}
for _name, _text in _FILE_FLAGS.items():
    flags.DEFINE_string(_name, "", f"translate_files: {_text}.", **_DEFINE)
flags.DEFINE_integer(
    "vocab_size", 8000, "translate_files: pieces of the vocabulary.", **_DEFINE
)
flags.DEFINE_integer(
    "train_steps",
    0,
    "Updates in all, those of earlier runs included. 0: the set's own.",
    lower_bound=0,
    **_DEFINE,
)
flags.DEFINE_integer(
    "eval_steps",
    100,
    "Most batches of a teacher-forced evaluation. 0: all.",
    lower_bound=0,
    **_DEFINE,
)
flags.DEFINE_integer(
    "local_eval_frequency",
    1000,
    "Save and evaluate every so many steps.",
    lower_bound=1,
    **_DEFINE,
)
flags.DEFINE_integer(
    "save_checkpoints_secs",
    0,
    "Save every so many seconds as well. 0: never.",
    lower_bound=0,
    **_DEFINE,
)
flags.DEFINE_integer(
    "keep_checkpoint_max",
    20,
    "How many checkpoints to keep.",
    lower_bound=1,
    **_DEFINE,
)
flags.DEFINE_enum(
    "schedule",
    "continuous_train_and_eval",
    ["continuous_train_and_eval", "train", "evaluate"],
    "What to do; evaluate scores the newest checkpoint.",
    **_DEFINE,
)
flags.DEFINE_integer(
    "eval_early_stopping_steps",
    0,
    "Stop when the metric has not improved for so many steps. 0: never.",
    lower_bound=0,
    **_DEFINE,
)
flags.DEFINE_string(
    "eval_early_stopping_metric",
    "loss",
    "The metric: loss, bleu, chrf, exact_match or teacher_forced_accuracy.",
    **_DEFINE,
)
flags.DEFINE_float(
    "eval_early_stopping_metric_delta",
    0.1,
    "The least change that counts as an improvement.",
    **_DEFINE,
)
flags.DEFINE_bool(
    "eval_early_stopping_metric_minimize",
    True,
    "Whether less is better.",
    **_DEFINE,
)
flags.DEFINE_bool(
    "eval_use_test_set",
    False,
    "Evaluate on the test split instead of the development split.",
    **_DEFINE,
)
flags.DEFINE_string(
    "warm_start_from",
    "",
    "A run or checkpoint whose weights to start from.",
    **_DEFINE,
)
flags.DEFINE_integer(
    "random_seed", 1, "Decides weights, order and dropout.", **_DEFINE
)
flags.DEFINE_bool(
    "deterministic", False, "Only operations that never vary.", **_DEFINE
)
flags.DEFINE_integer(
    "worker_gpu",
    0,
    "Number of GPUs. 0: all that are visible.",
    lower_bound=0,
    **_DEFINE,
)
flags.DEFINE_integer(
    "log_step_count_steps",
    100,
    "Print progress every so many steps.",
    lower_bound=1,
    **_DEFINE,
)
flags.DEFINE_bool(
    "xla_compile",
    False,
    "Compile with XLA: faster steps, seconds for each new shape.",
    **_DEFINE,
)
flags.DEFINE_bool(
    "profile", False, "Write a profile of ten steps for TensorBoard.", **_DEFINE
)
flags.DEFINE_integer(
    "num_logical_cpus",
    1,
    "Split the CPU into so many devices, to try replicas without GPUs.",
    lower_bound=1,
    **_DEFINE,
)
flags.DEFINE_bool(
    "registry_help", False, "List problems and hparams sets.", **_DEFINE
)
flags.DEFINE_bool(
    "check_env", False, "Print versions and devices, and compute.", **_DEFINE
)


def main() -> int | None:
    log = command.logger()
    if FLAGS.usr_dir:
        with command.flag_value("usr_dir"):
            registry.import_usr_dir(FLAGS.usr_dir)
    if FLAGS.registry_help:
        return command.show_registry()
    if FLAGS.check_env:
        return check_environment()
    problem = make_problem()
    hparams = make_hparams()
    output_dir = FLAGS.output_dir or os.path.join(
        "runs", f"{FLAGS.problem}-{FLAGS.hparams_set}"
    )
    tf = command.import_tensorflow(num_logical_cpus=FLAGS.num_logical_cpus)
    from relpos_tf import devices  # these bring TensorFlow
    from relpos_tf import run_setup
    from relpos_tf import settings as settings_lib
    from relpos_tf import training

    if FLAGS.deterministic:
        tf.config.experimental.enable_op_determinism()
    strategy = devices.strategy(FLAGS.worker_gpu)
    problem = run_setup.with_tokenizer_of(
        problem, FLAGS.data_dir, FLAGS.warm_start_from
    )
    run_setup.prepare_data(
        problem, FLAGS.data_dir, FLAGS.tmp_dir, anew=FLAGS.generate_data
    )
    run, hparams = run_setup.open_run(
        output_dir, problem, FLAGS.data_dir, hparams, FLAGS.flags_into_string()
    )
    settings = settings_lib.Settings(
        **{
            field.name: getattr(FLAGS, field.name)
            for field in dataclasses.fields(settings_lib.Settings)
            if field.name in FLAGS
        },
        evaluate=FLAGS.schedule == "continuous_train_and_eval",
        eval_split="test" if FLAGS.eval_use_test_set else "dev",
    )
    trainer = training.Trainer(
        hparams, problem, FLAGS.data_dir, run, strategy, settings
    )
    run_setup.describe(trainer, problem, strategy)
    if FLAGS.schedule == "evaluate":
        trainer.evaluate()
        return None
    try:
        trainer.train()
    except KeyboardInterrupt:
        log.info(
            "Stopped at step %d. The same command goes on from there.",
            trainer.step,
        )
        return None
    path = trainer.average() or output_dir
    flag = "output_dir" if path == output_dir else "checkpoint_path"
    log.info("Translate with: python decoder.py --%s=%s", flag, path)
    return None


def make_problem():
    """Returns the problem that the flags name."""
    if FLAGS.problem != "translate_files":
        given = [name for name in _FILE_FLAGS if getattr(FLAGS, name)]
        if given:
            raise command.UsageError(
                f"--{given[0]} goes with --problem=translate_files. "
                f"Received: --problem={FLAGS.problem}."
            )
        with command.flag_value("problem"):
            return registry.problem(FLAGS.problem)
    command.require(FLAGS, *list(_FILE_FLAGS)[:4])
    from relpos_tf.problems import translate

    paths = {name: getattr(FLAGS, name) or None for name in _FILE_FLAGS}
    return translate.files_problem(**paths, vocab_size=FLAGS.vocab_size)


def make_hparams():
    """Returns the set that the flags name, with its changes."""
    with command.flag_value("hparams_set"):
        hparams = registry.hparams(FLAGS.hparams_set)
    with command.flag_value("hparams"):
        return hparams.override(FLAGS.hparams)


def check_environment() -> int:
    """Prints versions and devices, and multiplies two matrices."""
    tf = command.import_tensorflow(num_logical_cpus=FLAGS.num_logical_cpus)
    from relpos_tf import run_dir

    command.write(f"platform: {platform.platform()}\n")
    for name, version in run_dir.versions().items():
        command.write(f"{name}: {version}\n")
    for device in tf.config.list_logical_devices():
        with tf.device(device.name):
            total = float(tf.reduce_sum(tf.matmul(*[tf.ones([64, 64])] * 2)))
        good = total == 64.0**3
        command.write(f"{device.name}: {'works' if good else 'is wrong'}\n")
        if not good:
            raise errors.UserError(f"{device.name} cannot multiply matrices.")
    return 0


def run() -> None:
    command.run(main)


if __name__ == "__main__":
    run()
