"""Converts a model directory of tensor2tensor into a run.

    relpos-import_t2t --t2t_dir=t2t_train/mine --output_dir=runs/mine

The run can translate, be exported and be trained further. The model
directory holds hparams.json and checkpoints model.ckpt-STEP; the vocabulary,
vocab.*.subwords, is there or in the data_dir of the training.
"""

from relpos_tf import hparam
from relpos_tf import registry
from relpos_tf.bin import command
from relpos_tf.utils import signals

FLAGS = command.Flags()
FLAGS.define_strings(
    t2t_dir="The model directory of tensor2tensor.",
    checkpoint="Prefix of a checkpoint. Default: the newest. Example: "
    "t2t_train/mine/avg/model.ckpt-250000.",
    output_dir="The run to write. It replaces an earlier import there.",
    vocab_file="The subword vocabulary, if it is elsewhere.",
)
FLAGS.define_integer(
    "target_space_id",
    0,
    "The target space of the problem: 0 in all translation problems of "
    "tensor2tensor 1.15; earlier versions had others.",
    lower_bound=0,
    upper_bound=hparam.TARGET_SPACES - 1,
)


def main() -> None:
    """Imports the model and prints the commands that can follow."""
    command.require(FLAGS, "t2t_dir", "output_dir")
    command.import_tensorflow()
    from relpos_tf.t2t import t2t_import  # this imports TensorFlow

    with signals.caught():
        result = t2t_import.import_run(
            FLAGS.t2t_dir,
            FLAGS.output_dir,
            checkpoint=FLAGS.checkpoint or None,
            vocab_file=FLAGS.vocab_file or None,
            target_space_id=FLAGS.target_space_id,
        )
    log = command.logger()
    number = sum(len(names) for names in result.used.values())
    log.info(
        "Read %s: %d variables of the model; ignored %d others. Both are "
        "listed in %s/%s.",
        result.checkpoint,
        number,
        len(result.ignored),
        FLAGS.output_dir,
        t2t_import.RECORD,
    )
    for note in result.notes:
        log.warning("%s", note)
    log.info("Train on with:\n  %s", training_command(result.hparams))
    if result.has_vocabulary:
        call = command.call_of("decoder", f"--output_dir={FLAGS.output_dir}")
        log.info("Translate with:\n  %s", call)
        return
    log.warning(
        "No vocabulary, vocab.*.subwords, was found: %s cannot translate text. "
        "Import again with --vocab_file.",
        FLAGS.output_dir,
    )


def training_command(hparams: hparam.HParams) -> str:
    """Returns the command that continues the training of the model."""
    sets = {
        name: registry.hparams(name).replace(vocab_size=hparams.vocab_size)
        for name in registry.list_hparams()
        if name.endswith("_t2t")
    }
    closest = min(
        sets, key=lambda name: len(hparam.differences(sets[name], hparams))
    )
    differences = hparam.differences(sets[closest], hparams)
    changes = ",".join(
        f"{name}={value}"
        for name, (_, value) in differences.items()
        if hparams.has_effect(name)
    )
    return command.call_of(
        "trainer",
        "--problem=...",
        f"--hparams_set={closest}",
        *([f"--hparams={changes}"] if changes else []),
        f"--warm_start_from={FLAGS.output_dir}",
    )


run = command.program(main)
