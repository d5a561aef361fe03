"""Which pairs each batch of an epoch has: a plan from the lengths alone.

Shapes: N pairs of the data, P pairs of an epoch, R rows of a slice, B rows of a
batch.

`batch_size` counts padded tokens on the longer side, as in tensor2tensor. Pairs
are sorted into buckets by the length of their longer side, EOS included; a
bucket holds the lengths from the previous limit up to, but without, its limit.

The batches of an epoch are a function of the data, the options, the seed and
the number of the epoch:

1. all pairs are shuffled; with weights, each corpus contributes its share;
2. pairs with more than `max_length` ids on a side are left out;
3. `pair_concatenation` joins neighbouring pairs;
4. the rows are sorted by bucket, in their order, and cut into batches;
5. the batches are shuffled.

Steps 2 to 5 process a slice of a million pairs at a time, so that memory stays
small. Rows that do not fill a batch are passed to the next slice.
"""

import dataclasses
import hashlib
import itertools
from collections.abc import Iterator
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

# Stands for the second pair of a row that has one pair.
NO_PAIR = -1
_SLICE = 1 << 20
# What a generator's numbers are drawn for.
_EPOCH, _PASS = 1, 2


class Buckets(NamedTuple):
    """Lengths that share a batch.

    Attributes:
        limits: The limit of each bucket, ascending; the last is `max_length`.
        rows: The rows of a batch of each bucket.
    """

    limits: Sequence[int]
    rows: Sequence[int]

    def of(self, lengths: np.ndarray) -> np.ndarray:
        """Returns the bucket of each length.

        Args:
            lengths: int [R].

        Returns:
            uint16 [R].
        """
        found = np.searchsorted(self.limits[:-1], lengths, side="right")
        return found.astype(np.uint16)


def buckets(
    batch_size: int,
    max_length: int,
    min_length_bucket: int = 8,
    length_bucket_step: float = 1.1,
) -> Buckets:
    """Returns tensor2tensor's buckets.

    A bucket has `batch_size // limit` rows, rounded down to a divisor of a
    highly composite number, as in tensor2tensor, which needed a window size
    that all batch sizes divide.

    Args:
        batch_size: int, positive. Padded tokens per batch, on the longer side.
        max_length: int, positive. Largest length in the last bucket.
        min_length_bucket: int, positive. Smallest length beyond the first
            bucket.
        length_bucket_step: float, at least 1. The ratio of consecutive limits,
            which are rounded down, and differ by at least one.

    Reference:
        tensor2tensor 1.15.7, `data_reader.batching_scheme`.
    """
    limits = []
    limit = min_length_bucket
    while limit < max_length:
        limits.append(limit)
        limit = max(limit + 1, int(limit * length_bucket_step))
    limits.append(max_length)
    rows = [max(1, batch_size // limit) for limit in limits]
    window = _highly_composite(3 * max(rows))
    return Buckets(
        limits,
        [next(d for d in range(r, 0, -1) if window % d == 0) for r in rows],
    )


class Corpus(NamedTuple):
    """Pairs that follow one another in the data.

    Attributes:
        pairs: int. Their number.
        tag: int. The number of ids in front of each source that are its tag.
        share: float or None. Its share of the pairs of an epoch, up to a
            factor. None: each pair comes once.
    """

    pairs: int
    tag: int = 0
    share: float | None = None


class Batch(NamedTuple):
    """One batch of training.

    Attributes:
        epoch: int. Its epoch, from 0.
        position: int. Its number in the epoch, from 1.
        rows: int64 [B, 2]. The numbers of the pairs; a second one that is
            joined to the first, or `NO_PAIR`.
    """

    epoch: int
    position: int
    rows: np.ndarray


@dataclasses.dataclass(frozen=True)
class Plan:
    """The order of training.

    Args:
        lengths: uint32 [N, 2], as of `token_files.TokenFile`.
        corpora: `Corpus` of all pairs in turn; all have a share, or none has.
        buckets: `Buckets`.
        pair_concatenation: float. The probability that two neighbours of one
            corpus become one row, if it is not too long.
        fills_batches: bool. Whether rows that fill no batch of their bucket
            are in one of the next, so that one batch alone may be smaller.
    """

    lengths: np.ndarray
    corpora: Sequence[Corpus]
    buckets: Buckets
    pair_concatenation: float = 0.0
    fills_batches: bool = False

    @property
    def max_length(self) -> int:
        """Most ids on a side."""
        return self.buckets.limits[-1]

    def fingerprint(self, seed: int) -> int:
        """Returns a positive int64, which a plan with other batches has not.

        Args:
            seed: int. See `following`.
        """
        options = *self.corpora, *self.buckets, self.pair_concatenation
        options += self.fills_batches, seed
        content = hashlib.sha256(self.lengths.data)
        content.update(repr(options).encode())
        return int.from_bytes(content.digest()[:7], "big")

    def following(
        self, seed: int, epoch: int = 0, position: int = 0
    ) -> Iterator[Batch]:
        """Yields the batches after one, for ever; reads no pair.

        Args:
            seed: int, not negative. Another seed gives another order.
            epoch: int. The epoch of the last batch that was used.
            position: int. Its number, from 1; 0: the beginning of the epoch.
        """
        for number in itertools.count(epoch):
            skipped = position if number == epoch else 0
            batches = self.epoch(seed, number, skipped)
            for place, rows in enumerate(batches, start=skipped + 1):
                yield Batch(number, place, rows)

    def epoch(
        self, seed: int, epoch: int, skipped: int = 0
    ) -> Iterator[np.ndarray]:
        """Yields the rows int64 [B, 2] of each batch of an epoch.

        Args:
            seed: int, not negative.
            epoch: int, from 0.
            skipped: int. The number of batches to leave out at the beginning.
        """
        draw = _generator(_EPOCH, seed, epoch)
        order = self._order(seed, epoch)
        draw.shuffle(order)
        waiting = np.zeros([0, 2], np.int64)
        for start in range(0, len(order), _SLICE):
            pairs = order[start : start + _SLICE].astype(np.int64)
            is_short = (self.lengths[pairs] <= self.max_length).all(axis=1)
            rows = self._joined(pairs[is_short], draw)
            is_last = start + _SLICE >= len(order)
            rows, batches, waiting = self._cut(
                np.concatenate([waiting, rows]), is_last
            )
            for number in draw.permutation(len(batches))[skipped:]:
                first, end = batches[number]
                yield rows[first:end]
            skipped = max(0, skipped - len(batches))

    def row_lengths(self, rows: np.ndarray) -> np.ndarray:
        """Returns the numbers of ids of both sides of rows.

        Args:
            rows: int64 [R, 2].

        Returns:
            int64 [R, 2].
        """
        lengths = self.lengths[rows[:, 0]].astype(np.int64)
        joined = rows[:, 1] != NO_PAIR
        second = self.lengths[rows[joined, 1]].astype(np.int64)
        lengths[joined] += second - 1  # EOS
        lengths[joined, 0] -= self.tags(rows[joined, 1])
        return lengths

    def tags(self, pairs: np.ndarray) -> np.ndarray:
        """Returns the number of ids of each source that are its tag.

        Args:
            pairs: int64 [B].

        Returns:
            int64 [B].
        """
        return np.array([c.tag for c in self.corpora])[self._corpus(pairs)]

    def _order(self, seed: int, epoch: int) -> np.ndarray:
        """Returns the pairs of an epoch, uint32 [P], corpus by corpus."""
        total = len(self.lengths)
        if self.corpora[0].share is None:
            return np.arange(total, dtype=np.uint32)
        taken, start = [], 0
        before, after = self._read(epoch), self._read(epoch + 1)
        for number, corpus in enumerate(self.corpora):
            first, last = before[number], after[number]
            # The corpus is read again and again, each time in another order;
            # an epoch continues where the one before ended.
            for again in range(first // corpus.pairs, -(-last // corpus.pairs)):
                draw = _generator(_PASS, seed, number, again)
                begin = again * corpus.pairs
                taken.append(
                    draw.permutation(corpus.pairs).astype(np.uint32)[
                        max(first - begin, 0) : last - begin
                    ]
                    + np.uint32(start)
                )
            start += corpus.pairs
        return np.concatenate(taken)

    def _read(self, epochs: int) -> list[int]:
        """Returns how many pairs of each corpus the first epochs have.

        Each next pair is of the corpus with the smallest (2 n + 1) / share, of
        which n have been read, as seats are given to parties (Webster's
        method). It counts pairs, so an epoch has as many as the data.
        """
        shares = [corpus.share or 0.0 for corpus in self.corpora]
        shares = [share / sum(shares) for share in shares]
        total = epochs * len(self.lengths)
        # No corpus lags behind its share by as many pairs as there are corpora.
        read = [max(0, int(s * total) - len(shares)) for s in shares]
        while sum(read) < total:
            due = [(2 * n + 1) / s for n, s in zip(read, shares, strict=True)]
            read[due.index(min(due))] += 1
        return read

    def _joined(self, pairs: np.ndarray, draw) -> np.ndarray:
        """Returns rows of pairs, some of which are joined.

        Args:
            pairs: int64 [P].
            draw: `np.random.Generator`.

        Returns:
            int64 [R, 2].
        """
        single = np.stack([pairs, np.full_like(pairs, NO_PAIR)], axis=1)
        if not self.pair_concatenation:
            return single
        corpus = self._corpus(pairs)
        order = np.argsort(corpus, kind="stable")
        firsts, seconds = order[:-1:2], order[1::2]
        wanted = draw.random(len(firsts)) < self.pair_concatenation
        rows = np.stack([pairs[firsts], pairs[seconds]], axis=1)
        fits = (self.row_lengths(rows) <= self.max_length).all(axis=1)
        joins = wanted & fits & (corpus[firsts] == corpus[seconds])
        single[firsts[joins], 1] = pairs[seconds[joins]]
        return np.delete(single, seconds[joins], axis=0)

    def _cut(
        self, rows: np.ndarray, is_last: bool
    ) -> tuple[np.ndarray, list[tuple[int, int]], np.ndarray]:
        """Cuts rows into batches of one bucket each.

        Args:
            rows: int64 [R, 2].
            is_last: bool. Whether what fills no batch is a smaller one.

        Returns:
            The rows, sorted by bucket; the first row and the end of each batch;
            the rows that fill no batch.
        """
        bucket = self.buckets.of(self.row_lengths(rows).max(axis=1, initial=0))
        rows = rows[np.argsort(bucket, kind="stable")]
        counts = np.bincount(bucket, minlength=len(self.buckets.rows))
        batches, left, start = [], [rows[:0]], 0
        ends = np.cumsum(counts).tolist()
        for end, size in zip(ends, self.buckets.rows, strict=True):
            begins = range(start, end - size + 1, size)
            batches += [(begin, begin + size) for begin in begins]
            whole = start + len(begins) * size
            if is_last and self.fills_batches and end < len(rows):
                end = whole  # The others are in the next bucket's batches.
            elif whole < end and is_last:
                batches.append((whole, end))
            elif whole < end:
                left.append(rows[whole:end])
            start = end
        return rows, batches, np.concatenate(left)

    def _corpus(self, pairs: np.ndarray) -> np.ndarray:
        """Returns the number of each pair's corpus, int64 like `pairs`."""
        ends = np.cumsum([corpus.pairs for corpus in self.corpora])
        return np.searchsorted(ends, pairs, side="right")


def _generator(*numbers: int) -> np.random.Generator:
    """Returns the generator for a use, a seed and further numbers."""
    return np.random.Generator(
        np.random.Philox(np.random.SeedSequence(numbers))
    )


def _highly_composite(limit: int) -> int:
    """Returns the largest highly composite number up to `limit`.

    That is a number with more divisors than every smaller one.
    """
    divisors = [0] * (limit + 1)
    for divisor in range(1, limit + 1):
        for multiple in range(divisor, limit + 1, divisor):
            divisors[multiple] += 1
    return max(range(1, limit + 1), key=divisors.__getitem__)
