"""What turns a batch of lines into translations.

Engines take lines in any order and say how long they are; `translator` decides
which lines go together. A model is one; `export_engine` and
`ctranslate2_engine` have others.

Shapes: N lines, S source length, B beams, T target length.
"""

import functools
import re
import threading
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from relpos_tf import errors
from relpos_tf.data import tokenizer as tokenizer_lib
from relpos_tf.decoding import beam_search
from relpos_tf.decoding import constraints
from relpos_tf.decoding import decode_hparam
from relpos_tf.decoding import sampling
from relpos_tf.decoding import search as search_lib
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
    number: int = 0  # which line it is, for those drawn at random
    prefix: tuple[int, ...] = ()  # ids that its translation begins with


class Translation(NamedTuple):
    """All that is known of one line's translation."""

    texts: list[str]  # best first, "" where there are fewer than asked for
    scores: list[float]  # `beam_search.NO_HYPOTHESIS` where there are fewer
    is_complete: bool  # False where the length limit cut the best one off
    ids: list[list[int]] = []  # of each text, where the engine knows them
    looks: list[Any] = []  # `Attention` of each text, where it is wanted


class Attention(NamedTuple):
    """Where a translation looked.

    Attributes:
        source: list of str. The source's pieces, EOS last.
        target: list of str. The translation's.
        weights: float32 array, layers x heads x target x source. Row t holds
            the weights with which piece t was predicted; each sums to 1.
    """

    source: list[str]
    target: list[str]
    weights: np.ndarray


def nothing(n_best: int) -> Translation:
    """Returns the translation of a blank line."""
    scores = [0.0] + [beam_search.NO_HYPOTHESIS] * (n_best - 1)
    return Translation([""] * n_best, scores, True, looks=[None] * n_best)


def is_blank(line: str) -> bool:
    """Says whether a line is empty or all white space."""
    return not line or line.isspace()


def check_beam_size(
    settings: decode_hparam.DecodeHParams, vocab_size: int
) -> None:
    """Raises UserError if there are more beams than pieces."""
    if settings.beam_size > vocab_size:
        raise errors.UserError(
            "`beam_size` must be at most the number of pieces, "
            f"{vocab_size}. Received: {settings.beam_size}."
        )


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
        self._lock = threading.Lock()

    def complete(
        self, wanted: decode_hparam.DecodeHParams
    ) -> decode_hparam.DecodeHParams:
        """Fills what is not set with the values of the model's hparams.

        Raises:
            UserError: more beams than pieces.
        """
        hparams = self.model.hparams
        settings = wanted.fill(hparams)
        check_beam_size(settings, hparams.vocab_size)
        return settings

    def items(self, lines: list[str]) -> list[Item]:
        """Turns lines into ids, without the blanks around them.

        Training has seen none there.
        """
        encoded = self.tokenizer.encode_batch([line.strip() for line in lines])
        return [Item(ids, len(ids)) for ids in encoded]

    def with_prefixes(
        self, items: list[Item], prefixes: list[str]
    ) -> list[Item]:
        """Adds what translations begin with."""
        encoded = self.tokenizer.encode_batch([p.strip() for p in prefixes])
        return [
            item._replace(prefix=tuple(ids[:-1]))  # without EOS
            for item, ids in zip(items, encoded, strict=True)
        ]

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
        # A graph for each of several settings is wanted: TensorFlow warns of
        # functions that are traced often, but not of graphs asked for.
        function = self.function(
            settings, n_best, any(item.prefix for item in items)
        ).get_concrete_function()
        limits = [
            max(item.size, len(item.prefix)) + settings.extra_length
            for item in items
        ]
        ids, scores = function(
            padded([item.content for item in items]),
            tf.constant(limits, tf.int32),
            padded([item.prefix for item in items]),
            tf.constant([item.number for item in items], tf.int32),
            tf.constant(settings.alpha, tf.float32),
            tf.constant(settings.sampling_temp, tf.float32),
            tf.constant(settings.sampling_top_p, tf.float32),
            tf.constant(settings.random_seed, tf.int32),
        )  # [N, B, T], [N, B]
        is_complete = tf.reduce_any(ids[:, 0] == tokenizer_lib.EOS_ID, axis=1)
        return [
            Translation([self._text(i) for i in beams], points, good, beams)
            for beams, points, good in zip(
                ids[:, :n_best].numpy().tolist(),
                scores[:, :n_best].numpy().tolist(),
                is_complete.numpy().tolist(),
                strict=True,
            )
        ]

    def function(
        self,
        settings: decode_hparam.DecodeHParams,
        n_best: int = 1,
        has_prefix: bool = False,
    ):
        """Returns the traced search: ids `[N, B, T]` and scores `[N, B]`.

        Made once for what decides its graph, and traced once for all shapes.
        """
        if not settings.is_random and n_best > 1:
            n_best = settings.beam_size  # then as few graphs as may be
        names = (
            "beam_size",
            "min_length",
            "no_repeat_ngram_size",
            "sampling_method",
            "sampling_keep_top_k",
        )
        key = n_best, has_prefix, *(getattr(settings, n) for n in names)
        with self._lock:
            if key not in self._functions:
                self._functions[key] = self._make_function(
                    settings, n_best, has_prefix
                )
            return self._functions[key]

    def _make_function(self, settings, n_best, has_prefix):
        def search(inputs, lengths, prefix, numbers, alpha, temp, top_p, seed):
            limits = constraints.Limits(
                lengths,
                prefix if has_prefix else None,
                settings.min_length,
                settings.no_repeat_ngram_size,
            )
            arguments = {"alpha": alpha, "n_best": n_best}
            if settings.is_random:
                how = sampling.Sampling(
                    temp, settings.sampling_keep_top_k, top_p, seed
                )
                return search_lib.sample(
                    self.model, inputs, limits, numbers, how=how, **arguments
                )
            return search_lib.search(
                self.model,
                inputs,
                limits,
                beam_size=settings.beam_size,
                **arguments,
            )

        rows, scalar = tf.TensorSpec([None], tf.int32), tf.TensorSpec([])
        ids = tf.TensorSpec([None, None], tf.int32)
        signature = [ids, rows, ids, rows, scalar, scalar, scalar]
        signature.append(tf.TensorSpec([], tf.int32))
        return tf.function(search, input_signature=signature)

    def attention(
        self, items: list[Item], found: list[Translation]
    ) -> list[list[Attention]]:
        """Returns where each translation of each line looked."""
        pieces = self.tokenizer.pieces()
        pairs = [
            (item.content, [i for i in ids if i])
            for item, one in zip(items, found, strict=True)
            for ids in one.ids
        ]
        weights = self._attention(
            padded([source for source, _ in pairs]),
            padded([target for _, target in pairs]),
        ).numpy()  # [N * B, L, H, T, S]
        looks = iter(
            Attention(
                [pieces[i] for i in source],
                [pieces[i] for i in target],
                one[:, :, : len(target), : len(source)],
            )
            for (source, target), one in zip(pairs, weights, strict=True)
        )
        return [[next(looks) for _ in one.ids] for one in found]

    @functools.cached_property
    def _attention(self):
        return tf.function(
            self.model.attention,
            input_signature=[tf.TensorSpec([None, None], tf.int32)] * 2,
        )

    def _text(self, ids: list[int]) -> str:
        return re.sub(LINE_END, " ", self.tokenizer.decode(ids))


def padded(rows: list[list[int]]) -> tf.Tensor:
    """Returns rows of ids as one tensor, int32 `[N, S]`, padded with 0."""
    sizes = [len(row) for row in rows]
    ids = np.zeros([len(rows), max(sizes, default=0)], np.int32)
    for row, size, values in zip(ids, sizes, rows, strict=True):
        row[:size] = values
    return tf.constant(ids)
