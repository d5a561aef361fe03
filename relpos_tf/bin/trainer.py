r"""Trains a Transformer with relative or absolute positions.

  relpos-trainer
      trains transformer_relative_tiny on the built-in phrases, in minutes

  relpos-trainer --problem=translate_ende_multi30k \
      --hparams_set=transformer_relative_small --tmp_dir=downloads

  relpos-trainer --problem=translate_files \
      --train_source=train.en --train_target=train.de \
      --dev_source=dev.en --dev_target=dev.de \
      --hparams_set=transformer_relative_small --output_dir=runs/mine

The same command again resumes a run that was stopped. The run's directory holds
all files that relpos-decoder and relpos-export need. It stands for its result:
the average of its end, else its newest checkpoint. RUN/best is the checkpoint
of the best BLEU in training, RUN/ckpt-STEP any other.
"""

import dataclasses
import os
import platform

from relpos_tf import registry
from relpos_tf.bin import command
from relpos_tf.bin import scores
from relpos_tf.models import run_dir
from relpos_tf.training import run_config
from relpos_tf.utils import locks
from relpos_tf.utils import paths
from relpos_tf.utils import signals

FLAGS = command.Flags()

command.define_problem_flags(FLAGS, "translate_ende_phrases")
FLAGS.define_strings(
    output_dir="The run's directory. Default: runs/PROBLEM-HPARAMS_SET.",
    hparams="Changes to the set: name=value,name=value.",
    warm_start_from="Run or checkpoint whose weights a new run starts from.",
)
FLAGS.define_bools(
    generate_data="Prepare the data again, even if they are there.",
    eval_use_test_set="Evaluate on the test split instead of the development "
    "split.",
    deterministic="Use deterministic operations only.",
    xla_compile="Compile gradients with XLA, for GPUs: it takes seconds for "
    "each new shape and makes steps on CPUs slower.",
    profile="Write a profile of ten steps for TensorBoard.",
    registry_help="List problems and hparams sets.",
    check_env="Print versions and devices, and test each device.",
)
FLAGS.define_integers(
    train_steps="Total number of updates, including those before an "
    "interruption. 0: the set's train_steps.",
    save_checkpoints_secs="Also save a checkpoint every N seconds. 0: never.",
    eval_early_stopping_steps="Stop after this number of steps without an "
    "improvement. 0: never.",
    worker_gpu="Number of GPUs. 0: all that are visible.",
)
FLAGS.define_integer(
    "eval_steps",
    100,
    "Batches of a teacher-forced evaluation, at most. 0: all.",
    lower_bound=0,
)
FLAGS.define_integer(
    "random_seed", 1, "Seed of weights, data order and dropout.", lower_bound=0
)
command.define_eval_frequency(FLAGS)
FLAGS.define_integer(
    "keep_checkpoint_max",
    20,
    "Number of checkpoints to keep, besides the one with the best BLEU; at "
    "least average_checkpoints.",
    lower_bound=1,
)
FLAGS.define_integer(
    "log_step_count_steps",
    100,
    "Log every N steps; a terminal shows every step.",
    lower_bound=1,
)
FLAGS.define_enum("model", "transformer", ["transformer"], "The architecture.")
FLAGS.define_string(
    "hparams_set",
    "transformer_relative_tiny",
    "Name of a set of hyper-parameters; --registry_help lists them.",
)
FLAGS.define_enum(
    "schedule",
    "continuous_train_and_eval",
    ["continuous_train_and_eval", "train", "evaluate"],
    "Train and evaluate, train only, or score the result of --output_dir.",
)
FLAGS.define_enum(
    "eval_early_stopping_metric",
    "loss",
    list(run_config.METRICS),
    "The metric that must improve.",
)
FLAGS.define_float(
    "eval_early_stopping_metric_delta",
    None,
    "The smallest change that counts as an improvement. Default: 0.1; for "
    "teacher_forced_accuracy, a fraction, 0.001.",
)
FLAGS.define_bool(
    "eval_early_stopping_metric_minimize",
    None,
    "Whether lower values are better. Default: true only for the loss.",
)
FLAGS.define_integer(
    "num_logical_cpus",
    1,
    "Split the CPU into N devices, to try replicas without GPUs.",
    lower_bound=1,
    upper_bound=128,
)
scores.define_tokenizer(FLAGS)
FLAGS.join(",", "hparams")
FLAGS.needs("schedule!=train", "eval_steps", "eval_use_test_set")
FLAGS.needs(
    "schedule!=evaluate",
    *"train_steps save_checkpoints_secs local_eval_frequency profile".split(),
    *"keep_checkpoint_max log_step_count_steps random_seed xla_compile".split(),
)
FLAGS.needs("schedule=continuous_train_and_eval", "eval_early_stopping_steps")
FLAGS.needs(
    "eval_early_stopping_steps",
    *"eval_early_stopping_metric eval_early_stopping_metric_delta".split(),
    "eval_early_stopping_metric_minimize",
)


def main() -> int | None:
    if FLAGS.registry_help:
        return command.show_registry()
    if FLAGS.check_env:
        return check_environment()
    problem = command.make_problem(FLAGS)
    hparams = make_hparams()
    check_evaluation(problem)
    output_dir = FLAGS.output_dir or os.path.join(
        "runs", f"{FLAGS.problem}-{FLAGS.hparams_set}"
    )
    with signals.caught():
        try:
            return train(problem, hparams, output_dir)
        except KeyboardInterrupt:
            command.logger().info(
                "Stopped; saved up to step %d. Run again with:\n  %s",
                max(run_dir.all_steps(output_dir), default=0),
                command.command_line(),
            )
            raise


def train(problem, hparams, output_dir: str) -> None:
    """Trains, averages and scores; or only scores, with --schedule=evaluate."""
    with signals.held():  # An interrupted import leads to strange errors.
        tf = command.import_tensorflow(num_logical_cpus=FLAGS.num_logical_cpus)
        from relpos_tf.models import checkpoints
        from relpos_tf.training import devices
        from relpos_tf.training import hosts as hosts_lib
        from relpos_tf.training import run_setup
        from relpos_tf.training import trainer as trainer_lib

    if FLAGS.deterministic:
        tf.config.experimental.enable_op_determinism()
    is_scored_only = FLAGS.schedule == "evaluate"  # on one host
    if is_scored_only:
        scored = checkpoints.resolve(output_dir)  # raises if there is none
        output_dir = str(run_dir.run_of(scored).path)
    config = make_config()
    strategy = devices.strategy(
        FLAGS.worker_gpu, several_hosts=not is_scored_only
    )
    hosts = hosts_lib.Hosts(strategy)
    run_setup.check_same_start(hosts, FLAGS.flag_values_dict(), hparams)
    start = FLAGS.warm_start_from
    if run_dir.RunDir(output_dir).is_trained():
        start = output_dir  # The run that it started from is no longer needed.
    elif start:
        checkpoints.resolve(start)  # raises if there is none
    problem = run_setup.with_tokenizer_of(problem, FLAGS.data_dir, start)
    if hosts.is_chief:  # The others only read.
        check_folders(problem, output_dir)
    run_setup.prepare_data(
        hosts, problem, FLAGS.data_dir, FLAGS.tmp_dir, FLAGS.generate_data
    )
    if hosts.is_chief:
        locks.acquire_exclusive(output_dir)
    if is_scored_only:
        run, hparams = run_setup.open_trained_run(
            output_dir, problem, FLAGS.data_dir, hparams
        )
    else:
        run, hparams = run_setup.open_run(
            hosts,
            output_dir,
            problem,
            FLAGS.data_dir,
            hparams,
            command.flags_text(FLAGS),
        )
    trainer = trainer_lib.Trainer(
        hparams, problem, FLAGS.data_dir, run, hosts, config
    )
    if is_scored_only:
        run_setup.describe_model(trainer)
        trainer.score(scored)
        return
    run_setup.describe(problem, FLAGS.data_dir, trainer)
    trainer.train()
    trainer.end()
    call = command.call_of("decoder", f"--output_dir={output_dir}")
    command.logger().info("Translate with: %s", call)


def make_config() -> run_config.RunConfig:
    """Returns the configuration of the run that the flags describe."""
    names = [field.name for field in dataclasses.fields(run_config.RunConfig)]
    return run_config.RunConfig(
        **{name: getattr(FLAGS, name) for name in names if name in FLAGS},
        evaluate=FLAGS.schedule == "continuous_train_and_eval",
        eval_split="test" if FLAGS.eval_use_test_set else "dev",
    )


def check_evaluation(problem) -> None:
    """Refuses flags of an evaluation that cannot be made."""
    if FLAGS.eval_use_test_set and "test" not in problem.splits:
        advice = ""
        if FLAGS.problem == "translate_files":
            advice = ", or give --test_source and --test_target"
        raise command.UsageError(
            f"--eval_use_test_set: {problem.name} has no test set. Leave it "
            f"out{advice}."
        )


def check_folders(problem, output_dir: str) -> None:
    """Refuses folders that cannot be written, before anything is prepared."""
    with command.flag_value("output_dir"):
        paths.check_folder(output_dir)
    if FLAGS.generate_data or not problem.is_prepared(FLAGS.data_dir):
        with command.flag_value("data_dir"):
            paths.check_folder(FLAGS.data_dir)


def make_hparams():
    """Returns the set that the flags name, with its changes."""
    with command.flag_value("hparams_set"):
        hparams = registry.hparams(FLAGS.hparams_set)
    with command.flag_value("hparams"):
        return hparams.override(FLAGS.hparams)


def check_environment() -> int:
    """Prints versions and devices, and multiplies two matrices."""
    tf = command.import_tensorflow(num_logical_cpus=FLAGS.num_logical_cpus)
    command.write(f"platform: {platform.platform()}\n")
    for name, version in run_dir.versions().items():
        command.write(f"{name}: {version}\n")
    for device in tf.config.list_logical_devices():
        with tf.device(device.name):  # An error names a device without work.
            tf.matmul(*[tf.ones([64, 64])] * 2).numpy()
        command.write(f"{device.name}: works\n")
    return 0


run = command.program(main)
