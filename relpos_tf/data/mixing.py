"""Training pairs of several corpora, in given shares.

An epoch has as many pairs as all corpora together. For each of them a corpus is
drawn, with a probability in proportion to its weight, and then its next pair. A
corpus that is exhausted starts again, in another order. The next epoch goes on
about where this one has ended, so that all pairs of a large corpus with a small
weight are used sooner or later.

The order is a function of (seed, epoch) alone, as in `batching`.
"""

import dataclasses
import itertools
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from relpos_tf.data import draws

# Draws that are made at once.
_BLOCK = 1024
_BLOCKS = 64  # that are drawn together
# What a seed is drawn for; `batching` and `augmentation` use other numbers.
_CORPUS_DRAW, _FIRST_PASS = 201, 1000

Read = Callable[[Sequence[str], tf.Tensor], tf.data.Dataset]


@dataclasses.dataclass(frozen=True)
class Mixture:
    """Corpora, and how often their pairs are drawn.

    Args:
        files: The TFRecord files of each corpus.
        pairs: The number of pairs of each corpus, at least one.
        weights: The weight of each corpus, above zero.
    """

    files: tuple[tuple[str, ...], ...]
    pairs: tuple[int, ...]
    weights: tuple[float, ...]

    def all_files(self) -> list[str]:
        """Returns the files of all corpora."""
        return [path for files in self.files for path in files]

    def shares(self) -> list[float]:
        """Returns the probability that a pair is of each corpus.

        Example:

        >>> Mixture((("a",), ("b",)), (30, 10), (1, 4)).shares()
        [0.2, 0.8]
        """
        return [weight / sum(self.weights) for weight in self.weights]

    def passes(self) -> list[float]:
        """Returns how often each corpus is read in an epoch, on average.

        Example:

        >>> Mixture((("a",), ("b",)), (30, 10), (1, 4)).passes()
        [0.2666..., 3.2]
        """
        return [
            share * sum(self.pairs) / pairs
            for share, pairs in zip(self.shares(), self.pairs, strict=True)
        ]

    def records(self, seeds: tf.Tensor, read: Read) -> tf.data.Dataset:
        """Returns the serialized records of one epoch.

        Args:
            seeds: int64 [2], (seed, epoch).
            read: Function from files and seeds to their shuffled records.
        """
        streams = [
            self._stream(corpus, seeds, read)
            for corpus in range(len(self.files))
        ]
        return tf.data.Dataset.choose_from_datasets(streams, self._draws(seeds))

    def numbers(
        self,
        seeds: np.ndarray,
        read: Callable[[Sequence[str], np.ndarray], Iterator[np.ndarray]],
    ) -> Iterator[np.ndarray]:
        """Yields the numbers of one epoch's records, in the order of `records`.

        Args:
            seeds: int64 [2], (seed, epoch).
            read: Function from files and seeds to chunks of the numbers of
                their shuffled records.
        """
        streams = [
            _Taken(self._passes(corpus, seeds, read))
            for corpus in range(len(self.files))
        ]
        total = sum(self.pairs)
        limits = np.cumsum(self.shares())[:-1]
        folded = draws.for_use(seeds, _CORPUS_DRAW)
        # As many blocks at once as make a chunk.
        for start in range(0, -(-total // _BLOCK), _BLOCKS):
            left = total - start * _BLOCK
            seeds = draws.fold_in(folded, np.arange(start, start + _BLOCKS))
            drawn = draws.doubles(seeds, _BLOCK).ravel()[:left]
            corpora = np.searchsorted(limits, drawn, side="right")
            result = np.empty(len(corpora), np.int64)
            for corpus, stream in enumerate(streams):
                [places] = np.nonzero(corpora == corpus)
                result[places] = stream.take(len(places))
            yield result

    def _passes(self, corpus: int, seeds: np.ndarray, read) -> Iterator:
        """Yields the endless record numbers of a corpus, from an epoch on."""
        first, start = self._begin(corpus, int(seeds[1]))
        for number in itertools.count(first):
            pass_seeds = np.array([seeds[0], number], np.int64)
            folded = draws.for_use(pass_seeds, _FIRST_PASS + corpus)
            for chunk in read(self.files[corpus], folded):
                yield chunk[start:]
                start = max(0, start - len(chunk))

    def _begin(self, corpus: int, epoch):
        """Returns in which pass an epoch begins, and after how many pairs.

        Args:
            corpus: int.
            epoch: int, or int64 [].
        """
        # What the epochs before have used, on average.
        used = epoch * round(self.shares()[corpus] * sum(self.pairs))
        return used // self.pairs[corpus], used % self.pairs[corpus]

    def _draws(self, seeds: tf.Tensor) -> tf.data.Dataset:
        """Returns the number of the corpus of each pair of an epoch."""
        total = sum(self.pairs)
        limits = np.cumsum(self.shares())[:-1]
        folded = tf.random.experimental.stateless_fold_in(seeds, _CORPUS_DRAW)

        def block(number):
            drawn = tf.random.stateless_uniform(
                [_BLOCK],
                tf.random.experimental.stateless_fold_in(folded, number),
                dtype=tf.float64,
            )
            return tf.searchsorted(
                tf.constant(limits, tf.float64),
                drawn,
                side="right",
                out_type=tf.int64,
            )

        blocks = tf.data.Dataset.range(-(-total // _BLOCK)).map(block)
        return blocks.unbatch().take(total)

    def _stream(
        self, corpus: int, seeds: tf.Tensor, read: Read
    ) -> tf.data.Dataset:
        """Returns the endless records of a corpus, from an epoch on."""
        seed, epoch = seeds[0], seeds[1]
        first, start = self._begin(corpus, epoch)

        def one_pass(number):
            folded = tf.random.experimental.stateless_fold_in(
                tf.stack([seed, number]), _FIRST_PASS + corpus
            )
            skipped = tf.where(tf.equal(number, first), start, 0)
            return read(self.files[corpus], folded).skip(skipped)

        passes = tf.data.Dataset.range(first, tf.int64.max)
        return passes.flat_map(one_pass)


class _Taken:
    """Takes numbers from chunks, as many as asked for.

    Args:
        chunks: Endless iterator of arrays.
    """

    def __init__(self, chunks: Iterator[np.ndarray]):
        self._chunks = chunks
        self._left = np.zeros(0, np.int64)

    def take(self, number: int) -> np.ndarray:
        """Returns the next numbers."""
        found, size = [self._left], len(self._left)
        while size < number:
            found.append(next(self._chunks))
            size += len(found[-1])
        joined = np.concatenate(found)
        self._left = joined[number:]
        return joined[:number]
