"""Engines translate batches of lines; a model is one.

`translator` decides which lines form a batch. `saved_model_engine` and
`ctranslate2_engine` translate with exports.

Shapes: N lines, S source length, P prefix length, B beams, T target length.
"""

import functools
import re
import threading
from typing import Any
from typing import NamedTuple
from typing import Protocol

import numpy as np
import tensorflow as tf

from relpos_tf.data import tokenizer as tokenizer_lib
from relpos_tf.decoding import beam_search
from relpos_tf.decoding import constraints
from relpos_tf.decoding import decode_hparam
from relpos_tf.decoding import sampling
from relpos_tf.decoding import search as search_lib
from relpos_tf.models import transformer
from relpos_tf.utils import graphs

EXPORT_INFO = "export_info.json"
# What ends a line, which byte pieces can spell. Also for RE2.
LINE_END = r"[\r\n]"
# What `str.isspace` calls blank, for RE2, whose own classes are ASCII.
BLANK = (
    r"[\t-\r\x1c-\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}"
    r"\x{202f}\x{205f}\x{3000}]*"
)


class Item(NamedTuple):
    """One line, ready to be translated."""

    content: Any  # the line as its engine needs it
    size: int  # number of ids, EOS included
    number: int = 0  # the line's number, which decides what is drawn for it
    prefix: tuple[int, ...] = ()  # ids that its translation begins with

    def limit(self, extra_length: int) -> int:
        """Returns the largest number of ids of the line's translation."""
        return max(self.size, len(self.prefix)) + extra_length


class Attention(NamedTuple):
    """The attention of a translation to its source.

    Attributes:
        source: list of str. The source's pieces, EOS last.
        target: list of str. The translation's pieces.
        weights: float32 array, layers x heads x target x source. Row t holds
            the weights with which piece t was predicted; each sums to 1.
    """

    source: list[str]
    target: list[str]
    weights: np.ndarray


class Translation(NamedTuple):
    """The best translations of one line."""

    texts: list[str]  # best first, "" where fewer were found than wanted
    scores: list[float]  # `beam_search.NO_HYPOTHESIS` where fewer were found
    is_complete: bool  # False if the length limit cut the best one off
    ids: list[list[int]] = []  # of each text, if the engine knows them
    attention: list[Attention | None] = []  # of each text, if wanted


class Engine(Protocol):
    """The interface between `Translator` and a model or an export."""

    def complete(
        self, decode_hparams: decode_hparam.DecodeHParams
    ) -> decode_hparam.DecodeHParams:
        """Replaces None by the engine's own values.

        Raises:
            UserError: the engine cannot translate so.
        """

    def items(self, lines: list[str]) -> list[Item]:
        """Prepares lines, without the blanks around them."""

    def truncate(self, item: Item, size: int) -> Item:
        """Returns a line cut to `size` ids, of which EOS is the last.

        Raises:
            UserError: the engine cannot cut lines.
        """

    def translate(
        self,
        items: list[Item],
        decode_hparams: decode_hparam.DecodeHParams,
        n_best: int,
    ) -> list[Translation]:
        """Translates lines in one batch.

        Raises:
            UserError: a line is too long.
            ResourceExhaustedError: the batch does not fit into memory.
        """


def blank_translation(n_best: int) -> Translation:
    """Returns the translation of a blank line."""
    scores = [0.0] + [beam_search.NO_HYPOTHESIS] * (n_best - 1)
    return Translation([""] * n_best, scores, True, attention=[None] * n_best)


def is_blank(line: str) -> bool:
    """Returns whether a line is empty or all white space."""
    return not line or line.isspace()


class _Batch(NamedTuple):
    """The arguments of a traced search."""

    sources: tf.Tensor  # int32 [N, S]
    limits: tf.Tensor  # int32 [N]
    prefixes: tf.Tensor  # int32 [N, P]
    numbers: tf.Tensor  # int32 [N]
    alpha: tf.Tensor  # float32 []
    temperature: tf.Tensor  # float32 []
    top_p: tf.Tensor  # float32 []
    seed: tf.Tensor  # int32 []


_SIGNATURE = _Batch(
    sources=tf.TensorSpec([None, None], tf.int32),
    limits=tf.TensorSpec([None], tf.int32),
    prefixes=tf.TensorSpec([None, None], tf.int32),
    numbers=tf.TensorSpec([None], tf.int32),
    alpha=tf.TensorSpec([]),
    temperature=tf.TensorSpec([]),
    top_p=tf.TensorSpec([]),
    seed=tf.TensorSpec([], tf.int32),
)


class IdEngine:
    """What engines of models from ids to ids share: their lines are ids.

    Attributes:
        tokenizer: `tokenizer.Tokenizer`.
    """

    tokenizer: tokenizer_lib.AnyTokenizer

    def items(self, lines: list[str]) -> list[Item]:
        """Turns lines into ids, without the blanks around them."""
        # Training pairs have no such blanks.
        encoded = self.tokenizer.encode_batch([line.strip() for line in lines])
        return [Item(ids, len(ids)) for ids in encoded]

    def truncate(self, item: Item, size: int) -> Item:
        """Returns a line cut to `size` ids, of which EOS is the last."""
        ids = [*item.content[: size - 1], tokenizer_lib.EOS_ID]
        return item._replace(content=ids, size=len(ids))


class ModelEngine(IdEngine):
    """An `Engine` of a model and its tokenizer.

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
        self, decode_hparams: decode_hparam.DecodeHParams
    ) -> decode_hparam.DecodeHParams:
        """Replaces None by the values of the model's hparams.

        Raises:
            UserError: there are more beams than pieces.
        """
        decode_hparams = decode_hparams.fill(self.model.hparams)
        decode_hparams.check_beam_size(self.model.hparams.vocab_size)
        return decode_hparams

    def with_prefixes(
        self, items: list[Item], prefixes: list[str]
    ) -> list[Item]:
        """Adds the beginnings of the translations."""
        encoded = self.tokenizer.encode_batch([p.strip() for p in prefixes])
        return [
            item._replace(prefix=tuple(ids[:-1]))  # without EOS
            for item, ids in zip(items, encoded, strict=True)
        ]

    def translate(
        self,
        items: list[Item],
        decode_hparams: decode_hparam.DecodeHParams,
        n_best: int,
    ) -> list[Translation]:
        """Translates lines in one batch."""
        has_prefix = any(item.prefix for item in items)
        function = self.function(decode_hparams, n_best, has_prefix)
        # TensorFlow warns of functions that are traced often, but not of
        # concrete ones; a graph for each of several settings is wanted.
        ids, scores = function.get_concrete_function()(
            _make_batch(items, decode_hparams)
        )  # [N, B, T], [N, B]
        return [
            Translation(
                [self._text(row) for row in rows],
                row_scores,
                tokenizer_lib.EOS_ID in rows[0],
                rows,
            )
            for rows, row_scores in zip(
                ids[:, :n_best].numpy().tolist(),
                scores[:, :n_best].numpy().tolist(),
                strict=True,
            )
        ]

    def function(
        self,
        decode_hparams: decode_hparam.DecodeHParams,
        n_best: int = 1,
        has_prefix: bool = False,
    ):
        """Returns a `tf.function`: ids `[N, B, T]` and scores `[N, B]`.

        There is one for all settings that share a graph, traced once for all
        shapes.
        """
        if not decode_hparams.is_random and n_best > 1:
            n_best = decode_hparams.beam_size  # for fewer graphs
        key = (
            n_best,
            has_prefix,
            decode_hparams.beam_size,
            decode_hparams.min_length,
            decode_hparams.no_repeat_ngram_size,
            decode_hparams.sampling_method,
            decode_hparams.sampling_keep_top_k,
        )
        with self._lock:
            if key not in self._functions:
                self._functions[key] = self._make_function(
                    decode_hparams, n_best, has_prefix
                )
            return self._functions[key]

    def _make_function(self, decode_hparams, n_best, has_prefix):
        def search(batch):
            limits = constraints.Limits(
                batch.limits,
                batch.prefixes if has_prefix else None,
                decode_hparams.min_length,
                decode_hparams.no_repeat_ngram_size,
            )
            if decode_hparams.is_random:
                return search_lib.sample(
                    self.model,
                    batch.sources,
                    limits,
                    batch.numbers,
                    how=sampling.Sampling(
                        batch.temperature,
                        decode_hparams.sampling_keep_top_k,
                        batch.top_p,
                        batch.seed,
                    ),
                    alpha=batch.alpha,
                    n_best=n_best,
                )
            return search_lib.search(
                self.model,
                batch.sources,
                limits,
                beam_size=decode_hparams.beam_size,
                alpha=batch.alpha,
                n_best=n_best,
            )

        return graphs.function(search, input_signature=[_SIGNATURE])

    def with_attention(
        self, items: list[Item], translations: list[Translation]
    ) -> list[Translation]:
        """Adds the attention of each translation of each line."""
        pieces = self.tokenizer.pieces()
        pairs = [
            (item.content, [i for i in ids if i])
            for item, translation in zip(items, translations, strict=True)
            for ids in translation.ids
        ]
        weights = self._attention(
            padded([source for source, _ in pairs]),
            padded([target for _, target in pairs]),
        ).numpy()  # [N * B, layers, heads, T, S]
        attention = iter(
            Attention(
                [pieces[i] for i in source],
                [pieces[i] for i in target],
                row[:, :, : len(target), : len(source)],
            )
            for (source, target), row in zip(pairs, weights, strict=True)
        )
        return [
            translation._replace(
                attention=[next(attention) for _ in translation.ids]
            )
            for translation in translations
        ]

    @functools.cached_property
    def _attention(self):
        return graphs.function(
            self.model.attention,
            input_signature=[tf.TensorSpec([None, None], tf.int32)] * 2,
        )

    def _text(self, ids: list[int]) -> str:
        return re.sub(LINE_END, " ", self.tokenizer.decode(ids))


def _make_batch(items, decode_hparams) -> _Batch:
    limits = [item.limit(decode_hparams.extra_length) for item in items]
    return _Batch(
        sources=padded([item.content for item in items]),
        limits=tf.constant(limits, tf.int32),
        prefixes=padded([item.prefix for item in items]),
        numbers=tf.constant([item.number for item in items], tf.int32),
        alpha=tf.constant(decode_hparams.alpha, tf.float32),
        temperature=tf.constant(decode_hparams.sampling_temp, tf.float32),
        top_p=tf.constant(decode_hparams.sampling_top_p, tf.float32),
        seed=tf.constant(decode_hparams.random_seed, tf.int32),
    )


def padded(rows: list[list[int]]) -> tf.Tensor:
    """Returns rows of ids as one tensor, int32 `[N, S]`, padded with 0."""
    sizes = [len(row) for row in rows]
    ids = np.zeros([len(rows), max(sizes, default=0)], np.int32)
    for row, size, values in zip(ids, sizes, rows, strict=True):
        row[:size] = values
    return tf.constant(ids)
