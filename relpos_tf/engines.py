"""What turns a batch of lines into translations: a model, or a SavedModel.

Both take lines in any order and say how long they are; `translator` decides
which lines go together.

Shapes: N lines, S source length, B beams, T target length.
"""

import json
import pathlib
import re
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from relpos_tf import beam_search
from relpos_tf import decode_hparam
from relpos_tf import decoding
from relpos_tf import errors
from relpos_tf import tokenizer as tokenizer_lib
from relpos_tf.models import transformer

EXPORT_INFO = "export_info.json"
# What a line of output must not hold, or it would be two; byte pieces can
# spell it. Also for RE2.
LINE_END = r"[\r\n]"
# What `str.isspace` calls blank, for RE2, whose own classes are ASCII.
BLANK = (
    r"[\t-\r\x1c-\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}"
    r"\x{202f}\x{205f}\x{3000}]*"
)


class Item(NamedTuple):
    """One line, ready to be translated."""

    content: Any  # what the engine made of the line
    size: int  # its ids, EOS included


class Translation(NamedTuple):
    """All that is known of one line's translation."""

    texts: list[str]  # best first, "" where there are fewer than asked for
    scores: list[float]  # `beam_search.NO_HYPOTHESIS` where there are fewer
    is_complete: bool  # False where the length limit cut the best one off


def nothing(n_best: int) -> Translation:
    """Returns the translation of a blank line."""
    scores = [0.0] + [beam_search.NO_HYPOTHESIS] * (n_best - 1)
    return Translation([""] * n_best, scores, True)


def is_blank(line: str) -> bool:
    """Says whether a line is empty or all white space."""
    return not line or line.isspace()


class ModelEngine:
    """A model and its tokenizer.

    Args:
        model: `transformer.Transformer`.
        tokenizer: `tokenizer.Tokenizer`, of as many pieces.
    """

    def __init__(
        self,
        model: transformer.Transformer,
        tokenizer: tokenizer_lib.AnyTokenizer,
    ):
        self.model = model
        self.tokenizer = tokenizer
        self._functions = {}

    def settings(
        self, wanted: decode_hparam.DecodeHParams
    ) -> decode_hparam.DecodeHParams:
        """Fills what is not set with the values of the model's hparams.

        Raises:
            UserError: more beams than pieces.
        """
        hparams = self.model.hparams
        settings = wanted.fill(hparams)
        if settings.beam_size > hparams.vocab_size:
            raise errors.UserError(
                "`beam_size` must be at most the number of pieces, "
                f"{hparams.vocab_size}. Received: {settings.beam_size}."
            )
        return settings

    def items(self, lines: list[str]) -> list[Item]:
        """Turns lines into ids, without the blanks around them.

        Training has seen none there.
        """
        encoded = self.tokenizer.encode_batch([line.strip() for line in lines])
        return [Item(ids, len(ids)) for ids in encoded]

    def truncate(self, item: Item, size: int) -> Item:
        """Returns the first `size` ids of a line, EOS being the last."""
        ids = [*item.content[: size - 1], tokenizer_lib.EOS_ID]
        return Item(ids, len(ids))

    def translate(
        self,
        items: list[Item],
        settings: decode_hparam.DecodeHParams,
        n_best: int,
    ) -> list[Translation]:
        """Translates lines in one batch."""
        limits = [item.size + settings.extra_length for item in items]
        ids, scores = self.function(settings.beam_size, n_best > 1)(
            padded([item.content for item in items]),
            tf.constant(limits, tf.int32),
            tf.constant(settings.alpha, tf.float32),
        )  # [N, B, T], [N, B]
        is_complete = tf.reduce_any(ids[:, 0] == tokenizer_lib.EOS_ID, axis=1)
        return [
            Translation([self._text(beam) for beam in beams], points, good)
            for beams, points, good in zip(
                ids[:, :n_best].numpy().tolist(),
                scores[:, :n_best].numpy().tolist(),
                is_complete.numpy().tolist(),
                strict=True,
            )
        ]

    def function(self, beam_size: int, all_beams: bool):
        """Returns the traced search: ids `[N, B, T]` and scores `[N, B]`.

        Made once for each pair of arguments, and traced once for all shapes.
        """
        key = beam_size, all_beams
        if key not in self._functions:
            n_best = beam_size if all_beams else 1

            def search(inputs, limits, alpha):
                return decoding.search(
                    self.model,
                    inputs,
                    limits,
                    beam_size=beam_size,
                    alpha=alpha,
                    n_best=n_best,
                )

            self._functions[key] = tf.function(
                search,
                input_signature=[
                    tf.TensorSpec([None, None], tf.int32),
                    tf.TensorSpec([None], tf.int32),
                    tf.TensorSpec([], tf.float32),
                ],
            )
        return self._functions[key]

    def _text(self, ids: list[int]) -> str:
        return re.sub(LINE_END, " ", self.tokenizer.decode(ids))


class ExportEngine:
    """A SavedModel that `export.export_saved_model` wrote.

    Args:
        folder: str or path. The SavedModel.

    Raises:
        UserError: there is none, or it is damaged.
    """

    def __init__(self, folder: str | pathlib.Path):
        path = pathlib.Path(folder, EXPORT_INFO)
        try:
            self.info = json.loads(path.read_text(encoding="utf-8"))
            self._module = tf.saved_model.load(str(folder))
        except (OSError, ValueError) as error:
            reason = " ".join(str(error).split())
            raise errors.UserError(
                "Expected a SavedModel made by relpos_tf.bin.export. "
                f"Received: {folder} ({reason})."
            ) from error
        self._function = self._module.signatures["serving_default"]

    def settings(
        self, wanted: decode_hparam.DecodeHParams
    ) -> decode_hparam.DecodeHParams:
        """Returns the settings of the export.

        Raises:
            UserError: others are wanted.
        """
        fixed = self.info["decode_hparams"]
        for name, value in wanted.search_settings().items():
            if value not in (None, fixed[name]):
                raise errors.UserError(
                    f"This export was made with {name}={fixed[name]}. "
                    f"Received: {name}={value}. Export again, or translate "
                    "with the run."
                )
        return wanted.fill(decode_hparam.DecodeHParams(**fixed))

    def items(self, lines: list[str]) -> list[Item]:
        """Asks the SavedModel how long the lines are."""
        strings = [line.encode("utf-8", errors="replace") for line in lines]
        sizes = self._module.count_ids(tf.constant(strings)).numpy()
        return list(map(Item, strings, sizes.tolist()))

    def truncate(self, item: Item, size: int) -> Item:
        """Refuses: only ids can be cut, and here they are inside."""
        raise errors.UserError(
            f"`max_input_size` does not work with an export. Received: {size}."
        )

    def translate(
        self,
        items: list[Item],
        settings: decode_hparam.DecodeHParams,
        n_best: int,
    ) -> list[Translation]:
        """Translates lines in one batch."""
        del settings  # they are part of the graph
        outputs = self._function(
            inputs=tf.constant([item.content for item in items])
        )
        texts = outputs["beam_outputs"][:, :n_best].numpy().tolist()
        scores = outputs["beam_scores"][:, :n_best].numpy().tolist()
        return [
            Translation([text.decode() for text in beams], points, True)
            for beams, points in zip(texts, scores, strict=True)
        ]


def padded(rows: list[list[int]]) -> tf.Tensor:
    """Returns rows of ids as one tensor, int32 `[N, S]`, padded with 0."""
    sizes = [len(row) for row in rows]
    ids = np.zeros([len(rows), max(sizes, default=0)], np.int32)
    for row, size, values in zip(ids, sizes, rows, strict=True):
        row[:size] = values
    return tf.constant(ids)
