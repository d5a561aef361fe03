"""A model and its tokenizer as a SavedModel: text in, text out.

The SavedModel loads with `tensorflow` and `tensorflow_text`, without this
package. docs/export.md describes how to use it.

Shapes: N lines, S source length, B beams, T target length.
"""

import pathlib
from typing import Any

import tensorflow as tf

from relpos_tf.data import graph_casing
from relpos_tf.data import graph_escaping
from relpos_tf.data import graph_tokenizers
from relpos_tf.data import tokenizer as tokenizer_lib
from relpos_tf.decoding import decode_hparam
from relpos_tf.decoding import engines
from relpos_tf.decoding import search as search_lib
from relpos_tf.export import folders
from relpos_tf.models import transformer
from relpos_tf.utils import graphs
from relpos_tf.utils import text

_LINES = tf.TensorSpec([None], tf.string, "inputs")
_OUTPUTS = "outputs", "scores", "beam_outputs", "beam_scores"
# What export_info.json says of the format.
_INFO = {"format": "saved_model", "requires": ["tensorflow", "tensorflow_text"]}


class TextTranslator(tf.Module):
    """The module that is saved: tokenizer, beam search, model.

    Args:
        model: `transformer.Transformer`.
        tokenizer: `tokenizer.Tokenizer` with a piece for each id.
        decode_hparams: Constants of the graph.
    """

    def __init__(
        self,
        model: transformer.Transformer,
        tokenizer: tokenizer_lib.AnyTokenizer,
        decode_hparams: decode_hparam.Completed,
    ):
        super().__init__(name="text_translator")
        # The model must not be tracked: TensorFlow 1's loader could not load
        # the SavedModel then. TensorFlow tracks every attribute that holds
        # something trackable, so this is a function.
        self._search = lambda inputs, limits: search_lib.search(
            model,
            inputs,
            limits,
            beam_size=decode_hparams.beam_size,
            alpha=decode_hparams.alpha,
            n_best=decode_hparams.beam_size,
        )
        graph = graph_tokenizers.of(tokenizer)
        self._encode, self._decode = graph.encode, graph.decode
        self._decode_hparams = decode_hparams
        self.weights = [variable.value for variable in model.variables]
        self.tokenizer = graph.tokenizer

    @graphs.function(input_signature=[_LINES])
    def count_ids(self, lines: tf.Tensor) -> tf.Tensor:
        """Returns the number of ids of each line, EOS included: int32 `[N]`."""
        with tf.device("CPU"):
            ids, _ = graph_casing.of(stripped(lines), self._encode)
            return tf.cast(ids.row_lengths(), tf.int32)

    @graphs.function(input_signature=[_LINES])
    def translate(self, inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """Translates lines.

        Args:
            inputs: string `[N]`.

        Returns:
            dict: `outputs`, string `[N]`, and `scores`, float32 `[N]`, of the
            best translations; `beam_outputs`, string `[N, B]`, and
            `beam_scores`, float32 `[N, B]`, of all, best first.
        """
        # This calls the other signature, so that the search is saved once.
        details = self.details(inputs)
        return {name: details[name] for name in _OUTPUTS}

    @graphs.function(input_signature=[_LINES])
    def details(self, inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """Translates lines, and tells which translations are complete.

        Args:
            inputs: string `[N]`.

        Returns:
            dict: as from `translate`, and `is_complete`, bool `[N]`, False
            where the length limit cut the best translation off.
        """
        # The tokenizer's kernels exist for the CPU only.
        with tf.device("CPU"):
            lines = stripped(inputs)
            ids, write = graph_casing.of(lines, self._encode)
            sizes = tf.cast(ids.row_lengths(), tf.int32)  # [N]
            limits = sizes + self._decode_hparams.extra_length
            limits = tf.where(lines == "", 0, limits)  # [N]
            # Attention needs at least one position.
            ids = ids.to_tensor(0)  # [N, S]
            ids = tf.pad(
                ids, [[0, 0], [0, tf.cast(tf.size(ids) == 0, tf.int32)]]
            )
        targets, scores = self._search(ids, limits)  # [N, B, T], [N, B]
        has_end = tf.reduce_any(targets[:, 0] == text.EOS_ID, axis=1)  # [N]
        with tf.device("CPU"):
            # With T = 0, a size of -1 would be ambiguous.
            n, b, t = tf.unstack(tf.shape(targets))
            texts = self._decode(tf.reshape(targets, [n * b, t]))  # [N * B]
            texts = tf.strings.regex_replace(texts, engines.LINE_END, " ")
            texts = write(tf.reshape(texts, tf.shape(scores)))  # [N, B]
        return {
            "outputs": texts[:, 0],
            "scores": scores[:, 0],
            "beam_outputs": texts,
            "beam_scores": scores,
            "is_complete": has_end | (limits == 0),
        }


def stripped(lines: tf.Tensor) -> tf.Tensor:
    """Removes `spelling.BLANKS` around lines, string `[N]`.

    Invalid UTF-8 becomes U+FFFD, as in Python.
    """
    blanks = f"^{engines.BLANK}|{engines.BLANK}$"
    return tf.strings.regex_replace(graph_escaping.valid(lines), blanks, "")


def export_saved_model(
    run_dir_or_checkpoint: str | pathlib.Path,
    export_dir: str | pathlib.Path,
    **search: Any,
) -> pathlib.Path:
    """Writes a SavedModel, whole or not at all.

    The signature `serving_default` is `TextTranslator.translate`, and
    `details` is `TextTranslator.details`. `export_info.json` in the same
    folder describes the model and its settings.

    Args:
        run_dir_or_checkpoint: A run's directory, or a checkpoint, see
            `checkpoints.candidates`.
        export_dir: Folder to write. An earlier export there is replaced.
        **search: See `folders.load`.

    Returns:
        `export_dir`.

    Raises:
        UserError: the run is not complete, a setting is impossible, or
            `export_dir` holds something else.
    """
    export_dir = folders.check(export_dir)
    engine, decode_hparams = folders.load(run_dir_or_checkpoint, **search)
    module = TextTranslator(engine.model, engine.tokenizer, decode_hparams)
    with folders.replacing(
        export_dir, engine, decode_hparams, dict(_INFO), False
    ) as partial:
        tf.saved_model.save(
            module,
            str(partial),
            signatures={
                "serving_default": module.translate,
                "details": module.details,
            },
        )
    return export_dir
