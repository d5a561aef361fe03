"""An engine of a model: a search with every setting, prefixes and attention.

A search for one line spends most of its time on starting some 500 small
operations for each id. With `jit_compile`, XLA makes one program of them, which
takes half of the time. XLA needs seconds for a program, and one for each length
of the source, so lines are padded to a few sizes. A program has room for some
ids of the translation, and its time grows with them; a search that needs more
is done again in the usual way.

Shapes: N lines, S source length, P prefix length, B beams, T target length.
"""

import functools
import pathlib
import threading
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from relpos_tf.data import tokenizer as tokenizer_lib
from relpos_tf.decoding import constraints
from relpos_tf.decoding import decode_hparam
from relpos_tf.decoding import engines
from relpos_tf.decoding import loading
from relpos_tf.decoding import sampling
from relpos_tf.decoding import search as search_lib
from relpos_tf.models import checkpoints
from relpos_tf.models import run_dir
from relpos_tf.models import transformer
from relpos_tf.utils import graphs
from relpos_tf.utils import text as text_lib

# Numbers of ids to which a line is padded for XLA. Longer lines take the usual
# search, in which the products outweigh the starting of operations.
SIZES = (16, 24, 32, 48, 64)
# How many ids more than the padded source a program has room for: enough for
# nearly all searches, which continue after the best translation has been found.
ROOM = 24


# The arguments of a traced search.
_BATCH = {
    "sources": tf.TensorSpec([None, None], tf.int32),
    "limits": tf.TensorSpec([None], tf.int32),
    "prefixes": tf.TensorSpec([None, None], tf.int32),
    "numbers": tf.TensorSpec([None], tf.int32),
    "alpha": tf.TensorSpec([]),
    "temperature": tf.TensorSpec([]),
    "top_p": tf.TensorSpec([]),
    "seed": tf.TensorSpec([], tf.int32),
}
# Padded sources and translations.
_PAIRS = [tf.TensorSpec([None, None], tf.int32)] * 2


class ModelEngine(engines.Engine):
    """An `engines.Engine` of a model and its tokenizer.

    Args:
        model: The model.
        tokenizer: The tokenizer that it was trained with.
        jit_compile: Whether XLA compiles the search for the best translation
            of a line that is translated alone: at the first line of each of
            `SIZES`, for each number of beams. Longer lines, prefixes,
            `min_length`, `no_repeat_ngram_size` and sampling take the usual
            search, and so does a line whose search is not over after `ROOM` ids
            more than its padded source has.
    """

    is_steerable = True

    def __init__(
        self,
        model: transformer.Transformer,
        tokenizer: tokenizer_lib.AnyTokenizer,
        jit_compile: bool = False,
    ):
        self.model = model
        self.tokenizer = tokenizer
        self.longest_source = model.hparams.max_length
        self._jit_compile = jit_compile
        self._functions: dict[tuple, Any] = {}
        self._lock = threading.Lock()

    def complete(
        self, decode_hparams: decode_hparam.DecodeHParams
    ) -> decode_hparam.Completed:
        """Replaces None by the values of the model's hparams.

        Raises:
            UserError: there are more beams than pieces.
        """
        decode_hparams = decode_hparams.fill(self.model.hparams)
        decode_hparams.check_beam_size(self.model.hparams.vocab_size)
        return decode_hparams

    def translate(
        self, items: list[engines.Item], decode_hparams: decode_hparam.Completed
    ) -> list[engines.Translation]:
        """Translates lines in one batch."""
        found = self._find(items, decode_hparams)
        ids, scores = (part.numpy().tolist() for part in found)
        found = zip(items, map(zip, ids, scores), strict=True)
        return [self.translation(*one, decode_hparams) for one in found]

    def _find(self, items, decode_hparams):
        """Searches: ids `[N, B, T]` and scores `[N, B]`."""
        longest = max(item.size for item in items)
        has_prefix = any(item.prefix for item in items)
        is_usual = (
            has_prefix
            or decode_hparams.is_random
            or decode_hparams.min_length
            or decode_hparams.no_repeat_ngram_size
        )
        is_alone = len(items) == decode_hparams.n_best == 1
        sizes = [0]  # not compiled
        if self._jit_compile and is_alone and not is_usual:
            sizes = [size for size in SIZES if size >= longest][:1] + sizes
        for size in sizes:
            function = self.function(decode_hparams, has_prefix, size)
            # TensorFlow warns of functions that are traced often, but not of
            # concrete ones; a graph for each of several settings is wanted.
            found = function.get_concrete_function()(
                _make_batch(items, decode_hparams, size or longest)
            )
            if found[1][0, 0] > engines.NO_HYPOTHESIS:
                break
        return found

    def warm_up_steps(self) -> list[Callable[[], Any]]:
        """Returns functions that compile the searches for single lines."""
        if not self._jit_compile:
            return []
        settings = self.complete(decode_hparam.DecodeHParams())
        lines = [[engines.Item([text_lib.EOS_ID] * n, n)] for n in SIZES]
        return [functools.partial(self._find, one, settings) for one in lines]

    def function(
        self,
        decode_hparams: decode_hparam.Completed,
        has_prefix: bool = False,
        size: int = 0,
    ) -> Any:
        """Returns a `tf.function`: ids `[N, B, T]` and scores `[N, B]`.

        There is one for all settings that share a graph, traced once for all
        shapes.

        Args:
            decode_hparams: The settings.
            has_prefix: bool. Whether translations have given beginnings.
            size: int. The ids of the padded source of a single line, for which
                XLA compiles a program with room for `ROOM` ids more. 0: for
                any lines, without XLA.
        """
        decode_hparams = decode_hparams.merged()  # for fewer graphs
        signature = _BATCH
        if size:
            source = tf.TensorSpec([1, size], tf.int32)
            limit = tf.TensorSpec([1], tf.int32)
            signature = _BATCH | {"sources": source, "limits": limit}

        def search(batch: dict[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
            limits = constraints.Constraints(
                batch["limits"],
                batch["prefixes"] if has_prefix else None,
                decode_hparams.min_length,
                decode_hparams.no_repeat_ngram_size,
            )
            if not decode_hparams.is_random:
                return search_lib.search(
                    self.model,
                    batch["sources"],
                    limits,
                    beam_size=decode_hparams.beam_size,
                    alpha=batch["alpha"],
                    n_best=decode_hparams.n_best,
                    max_length=size + ROOM if size else None,
                )
            return search_lib.sample(
                self.model,
                batch["sources"],
                limits,
                batch["numbers"],
                how=sampling.Sampling(
                    batch["temperature"],
                    decode_hparams.sampling_keep_top_k,
                    batch["top_p"],
                    batch["seed"],
                ),
                alpha=batch["alpha"],
                n_best=decode_hparams.n_best,
            )

        with self._lock:
            return self._functions.setdefault(
                (*decode_hparams.graph, has_prefix, size),
                graphs.function(
                    search,
                    input_signature=[signature],
                    jit_compile=True if size else None,
                ),
            )

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
                self.word_numbers(source),
                self.word_numbers(target),
            )
            for (source, target), row in zip(pairs, weights, strict=True)
        )
        return [
            translation._replace(
                attention=[next(attention) for _ in translation.ids]
            )
            for translation in translations
        ]

    def log_probabilities(
        self, pairs: Sequence[tuple[str, str]]
    ) -> list[tuple[float, int]]:
        """Returns the log-probabilities of given translations.

        Args:
            pairs: Pairs of a line and a translation of it.

        Returns:
            For each pair, the natural logarithm of the translation's
            probability, and its number of tokens, with EOS.
        """
        sources, targets = (
            list(map(self.encode, lines)) for lines in zip(*pairs, strict=True)
        )
        found = [0.0] * len(pairs)
        sizes = list(map(max, map(len, sources), map(len, targets)))
        for batch in engines.make_batches(sizes):
            log_probs = self._log_probabilities(
                padded([sources[i] for i in batch]),
                padded([targets[i] for i in batch]),
            )
            for i, value in zip(batch, log_probs.numpy(), strict=True):
                found[i] = float(value)
        return list(zip(found, map(len, targets), strict=True))

    @functools.cached_property
    def _attention(self):
        return graphs.function(
            lambda *ids: tf.stack(
                self.model.attention_weights(*ids)["cross"], axis=1
            ),
            input_signature=_PAIRS,
        )

    @functools.cached_property
    def _log_probabilities(self):
        function = functools.partial(search_lib.log_probabilities, self.model)
        return graphs.function(function, input_signature=_PAIRS)


def _make_batch(items, decode_hparams, size):
    """Returns the tensors of `_BATCH`, with sources of `size` ids."""
    limits = [item.limit(decode_hparams.extra_length) for item in items]
    return {
        "sources": padded([item.content for item in items], size),
        "limits": tf.constant(limits),
        "prefixes": padded([item.prefix for item in items]),
        "numbers": tf.constant([item.number for item in items]),
        "alpha": tf.constant(decode_hparams.alpha, tf.float32),
        "temperature": tf.constant(decode_hparams.sampling_temp, tf.float32),
        "top_p": tf.constant(decode_hparams.sampling_top_p, tf.float32),
        "seed": tf.constant(decode_hparams.random_seed),
    }


def padded(rows: Sequence[Sequence[int]], size: int | None = None) -> tf.Tensor:
    """Returns rows of ids as one tensor, int32 `[N, S]`, padded with 0."""
    return tf.constant(keras.utils.pad_sequences(rows, size, padding="post"))


def load(
    run_dir_or_checkpoint: str | pathlib.Path, jit_compile: bool = False
) -> ModelEngine:
    """Loads the engine of a run, or of one checkpoint.

    Args:
        run_dir_or_checkpoint: See `loading.load_model`.
        jit_compile: See `ModelEngine`.

    Raises:
        UserError: neither is there, or it is not complete.
    """
    prefix = checkpoints.resolve(run_dir_or_checkpoint)
    engine = ModelEngine(
        loading.load_model(prefix), loading.load_tokenizer(prefix), jit_compile
    )
    engine.name = prefix
    engine.longest_source = run_dir.run_of(prefix).longest_source()
    return engine
