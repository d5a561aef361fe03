"""An engine of an exported SavedModel: text in, text out.

A SavedModel is a program that TensorFlow runs: load those alone whose maker
you trust.

Shapes: N lines, B beams.
"""

import pathlib
from collections.abc import Sequence

import tensorflow as tf
import tensorflow_text  # noqa: F401  # registers the tokenizer's operations

from relpos_tf.decoding import decode_hparam
from relpos_tf.decoding import engines
from relpos_tf.utils import paths


class SavedModelEngine(engines.ExportEngine):
    """An `engines.Engine` of a SavedModel.

    Args:
        folder: What `saved_model.export_saved_model` wrote.

    Raises:
        UserError: it is missing or damaged.
    """

    # Ids are inside the graph, and the settings of the search.
    fixed = *decode_hparam.EXPORTED, "no_repeat_ngram_size", "max_input_size"

    def __init__(self, folder: str | pathlib.Path):
        paths.check_name(folder)
        super().__init__(folder)
        # It keeps the weights.
        self._module = tf.saved_model.load(self.name)
        self._details = self._module.signatures["details"]
        self._count_ids = self._module.count_ids

    def items(
        self, lines: Sequence[str], prefixes: Sequence[str] = ()
    ) -> list[engines.Item]:
        """Encodes lines in UTF-8; the SavedModel counts their ids."""
        del prefixes
        strings = [line.encode("utf-8", errors="replace") for line in lines]
        sizes = self._count_ids(tf.constant(strings, tf.string)).numpy()
        return list(map(engines.Item, strings, sizes.tolist()))

    def translate(
        self, items: list[engines.Item], decode_hparams: decode_hparam.Completed
    ) -> list[engines.Translation]:
        """Translates lines in one batch."""
        found = self._details(
            inputs=tf.constant([item.content for item in items])
        )
        texts, scores, is_complete = (
            found[name].numpy().tolist()
            for name in ("beam_outputs", "beam_scores", "is_complete")
        )
        rows = [
            [engines.Hypothesis(text.decode(), score) for text, score in row]
            for row in map(zip, texts, scores)
        ]
        return [
            engines.translation(row, decode_hparams.n_best, is_whole)
            for row, is_whole in zip(rows, is_complete, strict=True)
        ]
