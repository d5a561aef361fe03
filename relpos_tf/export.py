"""A model and its tokenizer as a SavedModel: text in, text out.

Shapes: N lines, S source length, B beams, T target length.

It needs `tensorflow` and `tensorflow_text` to load, and nothing of this
package.
"""

import json
import os
import pathlib
import shutil
import tempfile

import tensorflow as tf

from relpos_tf import checkpoints
from relpos_tf import decode_hparam
from relpos_tf import decoding
from relpos_tf import engines
from relpos_tf import errors
from relpos_tf import loading
from relpos_tf import run_dir
from relpos_tf import tokenizer as tokenizer_lib
from relpos_tf.models import transformer

_LINES = tf.TensorSpec([None], tf.string)


class TextTranslator(tf.Module):
    """What the SavedModel holds.

    Args:
        model: `transformer.Transformer`.
        tokenizer: `tokenizer.Tokenizer` of as many pieces.
        settings: `DecodeHParams` without None; part of the graph.
    """

    def __init__(
        self,
        model: transformer.Transformer,
        tokenizer: tokenizer_lib.AnyTokenizer,
        settings: decode_hparam.DecodeHParams,
    ):
        super().__init__(name="text_translator")
        # The model itself must not be tracked: the SavedModel would then not
        # load with TensorFlow 1's loader. Names with a leading underscore are
        # not tracked only if they hold nothing trackable, hence the lambdas.
        self._search = lambda inputs, limits: decoding.search(
            model,
            inputs,
            limits,
            beam_size=settings.beam_size,
            alpha=settings.alpha,
            n_best=settings.beam_size,
        )
        self._encode = tokenizer.encode_tf
        self._decode = tokenizer.decode_tf
        self._settings = settings
        self.weights = [variable.value for variable in model.variables]
        self.tokenizer = tokenizer.graph_tokenizer

    @tf.function(input_signature=[_LINES])
    def count_ids(self, lines):
        """Returns how many ids each line has, EOS included: int32 `[N]`."""
        with tf.device("CPU"):
            ids = self._encode(stripped(lines))
            return tf.cast(ids.row_lengths(), tf.int32)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "inputs")])
    def translate(self, inputs):
        """Translates lines.

        Args:
            inputs: string `[N]`.

        Returns:
            dict: `outputs`, string `[N]`, and `scores`, float32 `[N]`, of the
            best translations; `beam_outputs`, string `[N, B]`, and
            `beam_scores`, float32 `[N, B]`, of all, best first.
        """
        # The tokenizer's kernels exist for the CPU only.
        with tf.device("CPU"):
            lines = stripped(inputs)
            ids = self._encode(lines)
            sizes = tf.cast(ids.row_lengths(), tf.int32)  # [N]
            limits = sizes + self._settings.extra_length
            limits = tf.where(lines == "", 0, limits)  # [N]
            # Attention needs a position, also where there is no line.
            ids = ids.to_tensor(0)  # [N, S]
            ids = tf.pad(
                ids, [[0, 0], [0, tf.cast(tf.size(ids) == 0, tf.int32)]]
            )
        found, scores = self._search(ids, limits)  # [N, B, T], [N, B]
        with tf.device("CPU"):
            # Not -1: where T = 0, it could stand for any number.
            n, b, t = tf.unstack(tf.shape(found))
            texts = self._decode(tf.reshape(found, [n * b, t]))  # [N * B]
            texts = tf.strings.regex_replace(texts, engines.LINE_END, " ")
            texts = tf.reshape(texts, tf.shape(scores))  # [N, B]
        return {
            "outputs": texts[:, 0],
            "scores": scores[:, 0],
            "beam_outputs": texts,
            "beam_scores": scores,
        }


def stripped(lines: tf.Tensor) -> tf.Tensor:
    """Returns lines, string `[N]`, without blanks at their ends.

    Bytes that are not UTF-8 become U+FFFD, as in Python.
    """
    valid = tf.strings.unicode_transcode(
        lines, "UTF-8", "UTF-8", replace_control_characters=False
    )
    blanks = f"^{engines.BLANK}|{engines.BLANK}$"
    return tf.strings.regex_replace(valid, blanks, "")


def export_saved_model(
    run_dir_or_checkpoint: str | pathlib.Path,
    export_dir: str | pathlib.Path,
    beam_size: int | None = None,
    alpha: float | None = None,
    extra_length: int | None = None,
) -> pathlib.Path:
    """Writes a SavedModel, whole or not at all.

    Its signature `serving_default` maps `inputs` to what
    `TextTranslator.translate` returns. `export_info.json` in the same folder
    says what it was made of.

    Args:
        run_dir_or_checkpoint: A run's directory, for its newest checkpoint,
            or the prefix of a checkpoint.
        export_dir: Folder to write. An export that is there is replaced.
        beam_size: int. None here and below: the value in the hparams that the
            model was trained with.
        alpha: float. Of the length penalty.
        extra_length: int. How many ids more than its source a translation may
            have.

    Returns:
        `export_dir`.

    Raises:
        UserError: the run is not complete, a setting is impossible, or
            `export_dir` holds something else.
    """
    export_dir = pathlib.Path(export_dir)
    check_replaceable(export_dir)
    engine = engines.ModelEngine(
        loading.load_model(run_dir_or_checkpoint),
        loading.load_tokenizer(run_dir_or_checkpoint),
    )
    settings = engine.settings(
        decode_hparam.DecodeHParams(beam_size, alpha, extra_length)
    )
    module = TextTranslator(engine.model, engine.tokenizer, settings)
    info = {
        "format": "saved_model",
        "requires": ["tensorflow", "tensorflow_text"],
        "decode_hparams": settings.search_settings(),
        "checkpoint": str(checkpoints.resolve(run_dir_or_checkpoint)),
        "tokenizer_sha256": engine.tokenizer.fingerprint,
        "versions": run_dir.versions(),
        "hparams": engine.model.hparams.to_dict(),
    }
    export_dir.parent.mkdir(parents=True, exist_ok=True)
    partial = pathlib.Path(
        tempfile.mkdtemp(prefix=f".{export_dir.name}.", dir=export_dir.parent)
    )
    try:
        tf.saved_model.save(
            module,
            str(partial),
            signatures={"serving_default": module.translate},
        )
        (partial / engines.EXPORT_INFO).write_text(
            json.dumps(info, indent=2) + "\n", encoding="utf-8"
        )
        partial.chmod(0o755)  # mkdtemp lets nobody else in
        replace_folder(export_dir, partial)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return export_dir


def check_replaceable(export_dir: pathlib.Path) -> None:
    """Raises UserError if a folder holds anything but an export."""
    if export_dir.is_dir():
        is_export = (export_dir / engines.EXPORT_INFO).is_file()
        if is_export or not any(export_dir.iterdir()):
            return
    elif not export_dir.exists():
        return
    raise errors.UserError(
        "Expected a new folder, or an earlier export to replace. "
        f"Received: {export_dir}, which is something else."
    )


def replace_folder(target: pathlib.Path, source: pathlib.Path) -> None:
    """Renames `source` to `target`, and removes what was there."""
    old = source.with_name(f"{source.name}.old")
    if target.exists():
        os.rename(target, old)
    os.rename(source, target)
    shutil.rmtree(old, ignore_errors=True)
