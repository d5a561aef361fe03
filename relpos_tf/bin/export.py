r"""Exports a trained model, for use without this package.

  relpos-export --output_dir=runs/mine --export_dir=exported
      writes a SavedModel, text in and text out; it loads with tensorflow and
      tensorflow_text alone: see examples/load_export.py

  relpos-export --output_dir=runs/mine --export_dir=exported \
      --format=ctranslate2 --quantization=int8
      writes a folder for CTranslate2, tokens in and tokens out, with the
      tokenizer beside it; pip install 'relpos_tf[ctranslate2]' first

  relpos-export --output_dir=runs/mine --export_dir=exported \
      --format=litert --quantization=int8
      writes a folder for LiteRT, which runs on phones, ids in and ids out,
      with the tokenizer beside it: see examples/litert_translate.py;
      pip install 'relpos_tf[litert]' first

  relpos-export --output_dir=runs/mine --export_dir=packages \
      --format=argos --quantization=int8
      writes packages/translate-en_de-1_0.argosmodel, which Argos Translate
      installs; pip install 'relpos_tf[ctranslate2,argos]' first

relpos-decoder --export_dir translates with the first three. A run stands for
its result: the average of its end, else its newest checkpoint.
"""

from relpos_tf import errors
from relpos_tf.bin import command
from relpos_tf.decoding import decode_hparam
from relpos_tf.export import formats
from relpos_tf.models import run_dir
from relpos_tf.utils import extras
from relpos_tf.utils import signals

FLAGS = command.Flags()
FLAGS.define_strings(
    output_dir="The run's directory. Default: the newest run in runs/.",
    checkpoint_path="A checkpoint, such as runs/mine/ckpt-1000 or, that of the "
    "best BLEU in training, runs/mine/best; or a folder of averages.",
    export_dir="Folder to write. Default: export, export_ctranslate2, "
    "export_litert or export_argos, in the run's directory.",
    decode_hparams="beam_size=4,alpha=0.6,extra_length=50: the settings of "
    "the export. Default: those of the run.",
    language_pair="With --format=argos: source and target, as en-de. Default: "
    "the run's own.",
)
command.define_usr_dir(FLAGS)
FLAGS.define_enum("format", "saved_model", list(formats.ALL), "What to write.")
FLAGS.define_enum(
    "quantization",
    "none",
    list(formats.ALL["ctranslate2"].quantizations),
    "With --format=ctranslate2, litert and argos: how the weights are stored. "
    f"LiteRT has {', '.join(formats.ALL['litert'].quantizations)}.",
)
FLAGS.join(",", "decode_hparams")
FLAGS.exclusive("output_dir", "checkpoint_path")
for name in "quantization", "language_pair":
    FLAGS.needs(formats.with_option(name), name)
FLAGS.needs(formats.with_option("beam_size"), "decode_hparams")


def main() -> None:
    """Exports the model."""
    with command.flag_value("decode_hparams"):
        decode_hparams = decode_hparam.DecodeHParams.parse(FLAGS.decode_hparams)
        search = decode_hparams.search_settings()
        if decode_hparams != decode_hparam.DecodeHParams(**search):
            raise errors.UserError(
                f"only {', '.join(search)} are part of an export. "
                f"Received: {FLAGS.decode_hparams}."
            )
    if needs := formats.ALL[FLAGS.format].needs:
        extras.check(*needs)
    command.import_tensorflow()
    path = FLAGS.output_dir or FLAGS.checkpoint_path
    path = path or run_dir.latest_run("runs")
    name = f"export_{FLAGS.format}".removesuffix("_saved_model")
    with signals.caught():
        written = formats.export(
            FLAGS.format,
            path,
            FLAGS.export_dir or run_dir.run_of(path).path / name,
            quantization=FLAGS.quantization,
            language_pair=FLAGS.language_pair,
            **search,
        )
    command.logger().info("Exported %s to %s.", path, written)
    if FLAGS.format != "argos":
        call = command.call_of("decoder", f"--export_dir={written}")
        command.logger().info("Translate with:\n  %s", call)


run = command.program(main)
