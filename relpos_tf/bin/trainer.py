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

import contextlib
import dataclasses
import glob
import hashlib
import os
import platform
import re

from relpos_tf import fields
from relpos_tf import hparam
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
FLAGS.define_enum("model", "transformer", ["transformer"], "The architecture.")
FLAGS.define_string(
    "hparams_set",
    "transformer_relative_tiny",
    "Name of a set of hyper-parameters; --registry_help lists them.",
)
FLAGS.define_strings(
    hparams="Changes to the set: name=value,name=value.",
    output_dir="The run's directory. Default: runs/PROBLEM-HPARAMS_SET.",
    warm_start_from="Run or checkpoint whose weights a new run starts from.",
)
FLAGS.join(",", "hparams")
FLAGS.define_fields(run_config.RunConfig)
FLAGS.needs("schedule!=evaluate", "warm_start_from")
FLAGS.needs("warm_start_from=", "vocab_size")
scores.define_tokenizer(FLAGS)
FLAGS.define_integers(worker_gpu="Number of GPUs. 0: all that are visible.")
FLAGS.define_integer(
    "num_logical_cpus",
    1,
    "Split the CPU into N devices, to try replicas; above 1, without GPUs.",
    lower_bound=1,
    upper_bound=128,
)
FLAGS.needs("num_logical_cpus=1", "worker_gpu")
FLAGS.needs("schedule!=evaluate", "num_logical_cpus", "worker_gpu")
FLAGS.define_bools(
    generate_data="Prepare the data again, even if they are there.",
    deterministic="Use deterministic operations only.",
    registry_help="List problems and hparams sets.",
    check_env="Print versions and devices, and test each device.",
)


def main() -> None:
    """Trains, or tests the environment."""
    if FLAGS.check_env:
        check_environment()
        return
    problem = command.make_problem(FLAGS)
    hparams = make_hparams()
    if FLAGS.eval_use_test_set and "test" not in problem.splits:
        raise command.UsageError(
            f"--eval_use_test_set: {problem.name} has no test set. Leave it "
            "out; or for translate_files give --test_source and --test_target."
        )
    output_dir = FLAGS.output_dir or os.path.join(
        "runs", f"{FLAGS.problem}-{FLAGS.hparams_set}"
    )
    with signals.caught():
        try:
            train(problem, hparams, output_dir)
        except KeyboardInterrupt:
            step = max(run_dir.all_steps(output_dir), default=0)
            kept = f"saved up to step {step}" if step else "no step is saved"
            if FLAGS.schedule == "evaluate":
                kept = "no score is saved"
            again = command.command_line()
            command.logger().info(
                "Stopped; %s. Run again with:\n  %s", kept, again
            )
            raise


def train(problem, hparams, output_dir: str) -> None:
    """Trains, averages and scores; or only scores, with --schedule=evaluate."""
    config = FLAGS.record(run_config.RunConfig)
    if FLAGS.xla_compile is not False:
        prepare_xla(os.path.join(output_dir, "xla"))
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
    strategy = devices.strategy(
        FLAGS.worker_gpu, several_hosts=not is_scored_only
    )
    hosts = hosts_lib.Hosts(strategy)
    run_setup.check_same_start(hosts, FLAGS.flag_values_dict(), hparams)
    run, start = run_dir.RunDir(output_dir), FLAGS.warm_start_from
    if run.is_trained():
        check_resumed(run)
        start = output_dir  # The run that it started from is no longer needed.
        config = dataclasses.replace(config, random_seed=FLAGS.random_seed)
    elif start:
        with command.flag_value("warm_start_from"):
            found = checkpoints.resolve(start)  # raises if there is none
            run_setup.check_same_model(start, hparams)
        config = dataclasses.replace(config, warm_start_from=found)
    problem = run_setup.with_tokenizer_of(problem, FLAGS.data_dir, start)
    if hosts.is_chief:  # The others only read.
        check_folders(problem, output_dir)
    # Not again, from the run's flags.txt.
    anew, FLAGS["generate_data"].value = FLAGS.generate_data, False
    run_setup.share_data(hosts, problem, FLAGS.data_dir, FLAGS.tmp_dir, anew)
    if hosts.is_chief:
        locks.acquire_exclusive(output_dir)
        command.log_to(os.path.join(output_dir, run_dir.LOG))
    vocab_size = problem.manifest(FLAGS.data_dir)["vocab_size"]
    hparams = hparams.replace(vocab_size=vocab_size)
    if run.is_trained():
        hparams = with_training_of(run, hparams)
    if is_scored_only:
        run_setup.check_same_run(run, hparams, problem, FLAGS.data_dir)
    else:
        hosts.chief_writes(
            lambda: run_setup.write_run(
                run, hparams, problem, FLAGS.data_dir, command.flags_text(FLAGS)
            ),
            run.has_hparams,
            f"--output_dir={output_dir}",
        )
    trainer = trainer_lib.Trainer(
        hparams, problem, FLAGS.data_dir, run, hosts, config
    )
    run_setup.describe(problem, FLAGS.data_dir, trainer)
    if is_scored_only:
        trainer.score(scored)
        return
    trainer.train()
    trainer.end()
    # Without a name, the decoder takes the newest run.
    own = [f"--output_dir={output_dir}"] if FLAGS.output_dir else []
    call = command.call_of("decoder", *own)
    command.logger().info("Translate with:\n  %s", call)


def check_resumed(run: run_dir.RunDir) -> None:
    """Refuses what only a new run can have; flags.txt keeps the run's own."""
    own = {"warm_start_from": "", **run.read_flags()}
    for name in own.keys() & {"random_seed", "vocab_size", "warm_start_from"}:
        given = str(FLAGS[name].value) if name in FLAGS.typed else ""
        if given not in ("", own[name]):
            raise command.UsageError(
                f"--{name} has no effect: {run.path} is trained with "
                f"{own[name] or 'none'}. Leave it out or name a new folder."
            )
        FLAGS[name].value = FLAGS[name].parser.parse(own[name])


def with_training_of(
    run: run_dir.RunDir, hparams: hparam.HParams
) -> hparam.HParams:
    """Returns the hparams with those of the run's training if it is over."""
    steps = max(run_dir.all_steps(run.path), default=0)
    total = FLAGS.train_steps or hparams.train_steps
    own = run.read_hparams().to_dict()
    names = list(own)
    names = names[names.index("activation_dtype") : names.index("beam_size")]
    free = "train_steps"
    if FLAGS.schedule == "evaluate":
        names += ["average_checkpoints", "average_epochs"]
        free = "batch_size"
    elif steps < total:
        return hparams
    kept = {name: own[name] for name in names if name != free}
    for name, value in fields.parse(FLAGS.hparams, hparam.HParams).items():
        if value != kept.get(name, value):
            raise command.UsageError(
                f"--hparams: `{name}` has no effect: {run.path} is trained."
            )
    return hparams.replace(**kept)


def prepare_xla(folder: str) -> None:
    """Has XLA compile quickly and keep its programs, by the environment.

    Programs are for one kind of processors, so each kind has its folder.
    """
    about = []
    for path in ("/proc/cpuinfo", *glob.glob("/proc/driver/nvidia/gpus/*/i*")):
        with contextlib.suppress(OSError), open(path, encoding="utf-8") as file:
            about += sorted({s for s in file if s.startswith(("flags", "Mod"))})
    kind = hashlib.sha256("".join(about).encode()).hexdigest()[:8]
    # On an H200, a shape takes 34 s with these flags, and 97 s without.
    quick = "--xla_gpu_autotune_level=0 --xla_gpu_enable_triton_gemm=false"
    os.environ.setdefault("XLA_FLAGS", quick)
    # TensorFlow splits its flags at blanks that are not quoted.
    name = re.sub(r'(["\\])', r"\\\1", f"{folder}/{kind}")
    own = f'--tf_xla_persistent_cache_directory="{name}"'
    os.environ.setdefault("TF_XLA_FLAGS", own)


def check_folders(problem, output_dir: str) -> None:
    """Refuses folders that cannot be written, before anything is prepared."""
    with command.flag_value("output_dir"):
        paths.check_folder(output_dir)
    if FLAGS.generate_data or not problem.is_prepared(FLAGS.data_dir):
        with command.flag_value("data_dir"):
            paths.check_folder(FLAGS.data_dir)


def make_hparams() -> hparam.HParams:
    """Returns the set that the flags name, with its changes."""
    command.check_train_steps(FLAGS)
    with command.flag_value("hparams_set"):
        hparams = registry.hparams(FLAGS.hparams_set)
    with command.flag_value("hparams"):
        return hparams.override(FLAGS.hparams)


def check_environment() -> None:
    """Prints versions and devices, and multiplies two matrices."""
    tf = command.import_tensorflow(num_logical_cpus=FLAGS.num_logical_cpus)
    from relpos_tf.training import devices

    found = {"platform": platform.platform(), **run_dir.versions()}
    found["trains on"] = devices.description()
    found["GPUs used"] = str(len(tf.config.list_logical_devices("GPU")))
    pays = "faster" if devices.is_bfloat16_faster() else "not faster"
    found["bfloat16"] = f"{pays} than float32 here"
    for name, version in found.items():
        command.write(f"{name}: {version}\n")
    for device in tf.config.list_logical_devices():
        with tf.device(device.name):  # An error names a device without work.
            tf.matmul(*[tf.ones([64, 64])] * 2).numpy()
        command.write(f"{device.name}: works\n")


run = command.program(main)
