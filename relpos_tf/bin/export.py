"""Exports a trained model as a SavedModel that translates text.

    relpos-export --output_dir=runs/mine --export_dir=exported

The folder loads with tensorflow and tensorflow_text alone, see
examples/load_export.py; decoder.py --export_dir translates with it too.
"""

import pathlib

from absl import flags

from relpos_tf import decode_hparam
from relpos_tf import errors
from relpos_tf.bin import command

FLAGS = flags.FlagValues()
flags.DEFINE_string(
    "output_dir",
    "",
    "The run's directory. Default: the newest run in runs/.",
    flag_values=FLAGS,
)
flags.DEFINE_string(
    "checkpoint_path",
    "",
    "One checkpoint instead of the newest, as in runs/mine/ckpt-1000.",
    flag_values=FLAGS,
)
flags.DEFINE_string(
    "export_dir",
    "",
    "Folder to write. Default: export in the run's directory.",
    flag_values=FLAGS,
)
flags.DEFINE_enum(
    "format",
    "saved_model",
    ["saved_model", "ctranslate2"],
    "What to write.",
    flag_values=FLAGS,
)
flags.DEFINE_string(
    "decode_hparams",
    "",
    "beam_size=4,alpha=0.6,extra_length=50: made part of the export. "
    "Default: the run's own.",
    flag_values=FLAGS,
)


def main() -> None:
    if FLAGS.format == "ctranslate2":
        raise errors.UserError("--format=ctranslate2 is not available yet.")
    if FLAGS.output_dir and FLAGS.checkpoint_path:
        raise command.UsageError(
            "--output_dir and --checkpoint_path exclude each other."
        )
    with command.flag_value("decode_hparams"):
        settings = decode_hparam.DecodeHParams.parse(FLAGS.decode_hparams)
        search = settings.search_settings()
        if settings != decode_hparam.DecodeHParams(**search):
            raise errors.UserError(
                f"only {', '.join(search)} are part of an export. "
                f"Received: {FLAGS.decode_hparams}."
            )
    command.import_tensorflow()
    from relpos_tf import export  # these bring TensorFlow
    from relpos_tf import loading
    from relpos_tf import run_dir

    path = FLAGS.output_dir or FLAGS.checkpoint_path
    path = path or run_dir.latest_run("runs")
    export_dir = FLAGS.export_dir or pathlib.Path(
        loading.run_of(path).path, "export"
    )
    export.export_saved_model(path, export_dir, **search)
    command.logger().info("Exported %s to %s.", path, export_dir)


def run() -> None:
    command.run(main)


if __name__ == "__main__":
    run()
