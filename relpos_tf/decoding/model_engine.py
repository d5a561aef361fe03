"""An engine of a model: a search with every setting, prefixes and attention.

Shapes: N lines, S source length, P prefix length, B beams, T target length.
"""

import functools
import pathlib
import re
import threading
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from relpos_tf.data import tokenizer as tokenizer_lib
from relpos_tf.decoding import constraints
from relpos_tf.decoding import decode_hparam
from relpos_tf.decoding import engines
from relpos_tf.decoding import loading
from relpos_tf.decoding import one_line
from relpos_tf.decoding import sampling
from relpos_tf.decoding import search as search_lib
from relpos_tf.models import transformer
from relpos_tf.utils import graphs


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


class ModelEngine(engines.IdEngine):
    """An `engines.Engine` of a model and its tokenizer.

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
        self._programs = {}
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
        self, items: list[engines.Item], prefixes: list[str]
    ) -> list[engines.Item]:
        """Adds the beginnings of the translations."""
        encoded = self.tokenizer.encode_batch([p.strip() for p in prefixes])
        return [
            item._replace(prefix=tuple(ids[:-1]))  # without EOS
            for item, ids in zip(items, encoded, strict=True)
        ]

    def translate(
        self,
        items: list[engines.Item],
        decode_hparams: decode_hparam.DecodeHParams,
        n_best: int,
    ) -> list[engines.Translation]:
        """Translates lines in one batch."""
        found = self._find_one(items, decode_hparams, n_best)
        if found is None:
            found = self._find(items, decode_hparams, n_best)
        ids, scores = found  # [N, B, T], [N, B]
        return [
            engines.Translation(
                [self._text(row) for row in rows],
                row_scores,
                tokenizer_lib.EOS_ID in rows[0],
                rows,
            )
            for rows, row_scores in zip(
                ids[:, :n_best].tolist(),
                scores[:, :n_best].tolist(),
                strict=True,
            )
        ]

    def _find(self, items, decode_hparams, n_best):
        """Searches for the translations of lines: two arrays."""
        has_prefix = any(item.prefix for item in items)
        function = self.function(decode_hparams, n_best, has_prefix)
        # TensorFlow warns of functions that are traced often, but not of
        # concrete ones; a graph for each of several settings is wanted.
        ids, scores = function.get_concrete_function()(
            _make_batch(items, decode_hparams)
        )
        return ids.numpy(), scores.numpy()

    def _find_one(self, items, decode_hparams, n_best):
        """Searches for one line alone, as quickly as `_find` or None."""
        if (
            len(items) != 1
            or items[0].prefix
            or not decode_hparams.is_plain
            or not one_line.is_possible()
        ):
            return None
        beam_size = decode_hparams.beam_size
        n_best = 1 if n_best == 1 else beam_size  # for fewer programs
        with self._lock:
            if (beam_size, n_best) not in self._programs:
                self._programs[beam_size, n_best] = one_line.Programs(
                    one_line.make_function(self.model, beam_size, n_best)
                )
            programs = self._programs[beam_size, n_best]
        (item,) = items
        limit = item.limit(decode_hparams.extra_length)
        return programs.translate(item.content, limit, decode_hparams.alpha)

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
        self, items: list[engines.Item], translations: list[engines.Translation]
    ) -> list[engines.Translation]:
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
            engines.Attention(
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
        return re.sub(engines.LINE_END, " ", self.tokenizer.decode(ids))


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


def load(run_dir_or_checkpoint: str | pathlib.Path) -> ModelEngine:
    """Loads the engine of a run, or of one checkpoint.

    Raises:
        UserError: neither is there, or it is not complete.
    """
    return ModelEngine(
        loading.load_model(run_dir_or_checkpoint),
        loading.load_tokenizer(run_dir_or_checkpoint),
    )
