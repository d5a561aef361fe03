"""Which pairs each training batch has, planned from their lengths.

Shapes: P pairs of a chunk.

The plan of an epoch is a function of seed, epoch, the lengths of all pairs and
the batching options, so that a run goes on from (epoch, position) without
reading the pairs before. It equals the order in which `batching` would read,
shuffle and sort the pairs themselves, as it did in earlier versions:

1. files are shuffled, and sixteen of them are read in turn, sixteen records of
   each (`interleaved`); with weights, `mixing` draws from the corpora;
2. records are shuffled in a window of 200,000;
3. neighbours are joined (`augmentation`, `pair_concatenation`);
4. pairs that are too long are left out, and the others are put into buckets by
   length; a bucket that is full is a batch;
5. batches are shuffled in a window of 64.

A plan is made as it is used: besides the index, memory holds the numbers of the
pairs of a window, of unfilled buckets and of some hundred batches.
"""

import collections
import dataclasses
import functools
import itertools
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from relpos_tf.data import draws
from relpos_tf.data import mixing
from relpos_tf.data import record_index

# Records held for shuffling. Smaller corpora are shuffled as a whole.
SHUFFLE_RECORDS = 200_000
# Batches held for shuffling. Buckets fill at different rates: without it,
# batches of short pairs would follow one another.
SHUFFLE_BATCHES = 64
INTERLEAVED_FILES = 16
BLOCK_LENGTH = 16
# What seeds are drawn for; `augmentation` and `mixing` use larger numbers.
BATCH_DRAW, FILE_DRAW, RECORD_DRAW = 1, 2, 3
SEEDS = 2**31 - 1  # Seeds are below this number.
_CHUNK = 1 << 16  # pairs that are planned at once, a multiple of a block
NO_PAIR = -1


@dataclasses.dataclass(frozen=True)
class Joining:
    """Which couples of neighbours become one pair.

    Attributes:
        share: float. The probability that a couple is joined.
        draw: int. What the seed is drawn for.
        block: int. Pairs of a block, an even number.
    """

    share: float
    draw: int
    block: int


@dataclasses.dataclass(frozen=True)
class Plan:
    """The batches of a corpus or of a mixture.

    Attributes:
        index: `record_index.RecordIndex` of all files.
        files: The files to read, or a `mixing.Mixture` of files.
        max_length: int. Longer pairs are left out.
        buckets: See `batching.boundaries_and_batch_sizes`.
        joining: `Joining`, or None.
    """

    index: record_index.RecordIndex
    files: Sequence[str] | mixing.Mixture
    max_length: int
    buckets: tuple[Sequence[int], Sequence[int]]
    joining: Joining | None = None

    def batches(self, seed: int, epoch: int) -> Iterator[np.ndarray]:
        """Yields the batches of an epoch.

        Yields:
            int64 [B, 2]. The numbers of the pairs in the index; a second one
            that is to be joined with the first, or -1.
        """
        seeds = np.array([seed, epoch], np.int64)
        batches = _bucketed(self._pairs(seeds), *self.buckets)
        batch_seed = int(seed_of(seeds, BATCH_DRAW))
        chunks = ([batch] for batch in batches)
        shuffled = draws.shuffled(
            chunks, SHUFFLE_BATCHES, batch_seed, SHUFFLE_BATCHES
        )
        yield from itertools.chain.from_iterable(shuffled)

    def shares(self, number: int) -> "list[Plan] | None":
        """Returns the plans of several hosts.

        Each host has every so many of the files of each corpus.

        Args:
            number: int. The number of hosts.

        Returns:
            A plan for each; None if a host would be without a pair of a corpus.
        """
        corpora = [self.files]
        if is_mixture := isinstance(self.files, mixing.Mixture):
            corpora = self.files.files
        plans = []
        for host in range(number):
            files = tuple(tuple(corpus[host::number]) for corpus in corpora)
            pairs = tuple(sum(map(self._count, own)) for own in files)
            if not all(pairs):
                return None
            own = files[0]
            if is_mixture:
                own = dataclasses.replace(self.files, files=files, pairs=pairs)
            plans.append(dataclasses.replace(self, files=own))
        return plans

    def is_empty(self) -> bool:
        """Returns whether all pairs are too long."""
        files = self.files
        if isinstance(files, mixing.Mixture):
            files = files.all_files()
        return not any(
            (self.index.lengths[slice(*self._span(path))] <= self.max_length)
            .all(axis=1)
            .any()
            for path in files
        )

    def _span(self, path: str) -> tuple[int, int]:
        """Returns the numbers of a file's records: the first, and the end."""
        file = self.index.files.index(path)
        return int(self.index.starts[file]), int(self.index.starts[file + 1])

    def _count(self, path: str) -> int:
        first, last = self._span(path)
        return last - first

    def _pairs(self, seeds: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
        """Yields numbers [P, 2] and lengths [P] of the pairs of an epoch."""
        if isinstance(self.files, mixing.Mixture):
            numbers = self.files.numbers(seeds, self._shuffled_records)
        else:
            numbers = self._shuffled_records(self.files, seeds)
        start = 0
        for chunk in cut(numbers, _CHUNK):
            lengths = self.index.lengths[chunk].astype(np.int64)
            pairs = np.stack([chunk, np.full_like(chunk, NO_PAIR)], axis=1)
            if self.joining:
                pairs, lengths = self._joined(pairs, lengths, seeds, start)
            start += len(chunk)
            longest = lengths.max(axis=1, initial=0)
            is_short = longest <= self.max_length
            yield pairs[is_short], longest[is_short]

    def _shuffled_records(
        self, files: Sequence[str], seeds: np.ndarray
    ) -> Iterator[np.ndarray]:
        """Yields the numbers of the records of some files, shuffled."""
        order = draws.permutation(seed_of(seeds, FILE_DRAW, 2), len(files))
        spans = [self._span(files[number]) for number in order]
        numbers = interleaved(spans, INTERLEAVED_FILES, BLOCK_LENGTH)
        shuffled = draws.shuffled(
            (chunk.tolist() for chunk in numbers),
            SHUFFLE_RECORDS,
            int(seed_of(seeds, RECORD_DRAW)),
        )
        for chunk in shuffled:
            yield np.array(chunk, np.int64)

    def _joined(self, pairs, lengths, seeds, start):
        """Joins couples of a chunk that begins at a block.

        Args:
            pairs: int64 [P, 2].
            lengths: int64 [P, 2].
            seeds: int64 [2]. (seed, epoch).
            start: int. The pairs before the chunk.

        Returns:
            `pairs` and `lengths` without the joined second ones.
        """
        block, couples = self.joining.block, len(pairs) // 2
        blocks = np.arange(start // block, -(-(start + len(pairs)) // block))
        folded = draws.fold_in(draws.for_use(seeds, self.joining.draw), blocks)
        drawn = draws.floats(folded, block // 2).ravel()[:couples]
        is_joined = drawn < np.float32(self.joining.share)
        total = lengths[: 2 * couples : 2] + lengths[1 : 2 * couples : 2] - 1
        is_joined &= (total <= self.max_length).all(axis=1)
        [couples] = np.nonzero(is_joined)
        pairs[2 * couples, 1] = pairs[2 * couples + 1, 0]
        lengths[2 * couples] = total[couples]
        keep = np.ones(len(pairs), bool)
        keep[2 * couples + 1] = False
        return pairs[keep], lengths[keep]


class Host(NamedTuple):
    """A host that trains, by default the only one.

    Attributes:
        index: int.
        number: int. The number of hosts.
        replicas: int. The replicas of each host.
    """

    index: int = 0
    number: int = 1
    replicas: int = 1


class Batch(NamedTuple):
    """A batch of an epoch.

    Attributes:
        epoch: int.
        position: int. Its number in the epoch, from 1, through all hosts.
        pairs: int64 [B, 2]. See `Plan.batches`.
    """

    epoch: int
    position: int
    pairs: np.ndarray


def following(
    plan: Plan, seed: int, epoch: int, position: int, host: Host
) -> Iterator[Batch]:
    """Yields the batches of a host that follow a position, for ever.

    Each of several hosts has files of its own, see `Plan.shares`. If there are
    too few of them, the hosts deal the batches of the whole plan.

    Args:
        plan: `Plan` of all hosts.
        seed: int.
        epoch: int. Epoch of the last batch that was used.
        position: int. Its number in the epoch; 0 starts the epoch.
        host: `Host`.
    """
    if host.number > 1 and (plans := plan.shares(host.number)):
        of_epoch = functools.partial(_of_share, plans, host, seed)
        yield from _endless(of_epoch, epoch, position)
        return
    whole = _endless(functools.partial(_whole, plan, seed), epoch, position)
    for number, batch in enumerate(whole):
        if number // host.replicas % host.number == host.index:
            yield batch


def _endless(of_epoch, epoch: int, position: int) -> Iterator[Batch]:
    """Yields the batches of all epochs that follow a position.

    Args:
        of_epoch: Function from an epoch and a position to the batches that
            follow it in the epoch.
        epoch: int.
        position: int.
    """
    yield from of_epoch(epoch, position)
    for number in itertools.count(epoch + 1):
        yield from of_epoch(number, 0)


def _whole(plan: Plan, seed: int, epoch: int, position: int) -> Iterator[Batch]:
    """Yields the batches of an epoch that follow a position."""
    batches = enumerate(plan.batches(seed, epoch), start=1)
    for number, pairs in itertools.islice(batches, position, None):
        yield Batch(epoch, number, pairs)


def _of_share(
    plans: Sequence[Plan], host: Host, seed: int, epoch: int, position: int
) -> Iterator[Batch]:
    """Yields the batches of a host's files that follow a position.

    All hosts have as many as the one with the most of them; the others end with
    batches without pairs.
    """

    def batch(number, pairs):
        return Batch(epoch, number * host.number + host.index + 1, pairs)

    done = position // host.number
    number = -1
    own_batches = plans[host.index].batches(seed, epoch)
    for number, pairs in enumerate(own_batches):
        if number >= done:
            yield batch(number, pairs)
    own = most = number + 1
    for index, other in enumerate(plans):
        if index != host.index:
            most = max(most, sum(1 for _ in other.batches(seed, epoch)))
    for number in range(max(own, done), most):
        yield batch(number, np.zeros([0, 2], np.int64))


def seed_of(seeds: np.ndarray, use: int, size: int | None = None) -> np.ndarray:
    """Returns the seed for one use, from (seed, epoch); or several of them."""
    drawn = draws.integers(draws.for_use(seeds, use), size or 1, SEEDS)
    return drawn if size else drawn[0]


def interleaved(
    spans: Sequence[tuple[int, int]], cycle: int, block: int
) -> Iterator[np.ndarray]:
    """Yields numbers of spans as `tf.data.Dataset.interleave` would.

    Args:
        spans: The first number of each span, and one past its last.
        cycle: int. Spans that are read at a time.
        block: int. Numbers that are taken of one before the next.
    """
    waiting = iter(spans)
    slots = collections.deque(itertools.islice(waiting, cycle))
    starts, sizes, total = [], [], 0
    while slots:
        slot = slots.popleft()
        size = min(block, slot[1] - slot[0])
        following = slot[0] + size, slot[1]
        if size < block:
            # The end of a span shows when it is read beyond. The next span
            # takes its place in the turn.
            following = next(waiting, None)
        if following is not None:
            slots.append(following)
        starts.append(slot[0])
        sizes.append(size)
        total += size
        if total >= _CHUNK:
            yield _ranges(starts, sizes)
            starts, sizes, total = [], [], 0
    yield _ranges(starts, sizes)


def _ranges(starts: Sequence[int], sizes: Sequence[int]) -> np.ndarray:
    """Returns the numbers of ranges, one range after the other."""
    sizes = np.array(sizes, np.int64)
    ends = np.cumsum(sizes)
    offsets = np.array(starts, np.int64) - (ends - sizes)
    return np.arange(sizes.sum()) + np.repeat(offsets, sizes)


def cut(chunks: Iterable[np.ndarray], size: int) -> Iterator[np.ndarray]:
    """Yields the same numbers in chunks of `size`, the last one of the rest."""
    waiting, total = [], 0
    for chunk in chunks:
        waiting.append(chunk)
        total += len(chunk)
        while total >= size:
            joined = np.concatenate(waiting)
            yield joined[:size]
            waiting, total = [joined[size:]], total - size
    if total:
        yield np.concatenate(waiting)


def _bucketed(
    pairs: Iterable[tuple[np.ndarray, np.ndarray]],
    boundaries: Sequence[int],
    batch_sizes: Sequence[int],
) -> Iterator[np.ndarray]:
    """Yields batches of pairs of similar length, when their bucket is full.

    At the end come the pairs that are left, bucket by bucket.

    Args:
        pairs: int64 [P, 2] and their lengths [P].
        boundaries: Limits between buckets.
        batch_sizes: Rows per bucket.
    """
    waiting = [np.zeros([0, 2], np.int64)] * len(batch_sizes)
    for chunk, lengths in pairs:
        buckets = np.searchsorted(boundaries, lengths, side="right")
        order = np.argsort(buckets, kind="stable")
        limits = np.searchsorted(buckets[order], range(len(batch_sizes) + 1))
        batches = []
        for bucket, rows in enumerate(batch_sizes):
            places = order[limits[bucket] : limits[bucket + 1]]
            old = len(waiting[bucket])
            found = np.concatenate([waiting[bucket], chunk[places]])
            number = len(found) // rows
            ends = range(rows, number * rows + 1, rows)
            batches += [
                (places[e - old - 1], found[e - rows : e]) for e in ends
            ]
            waiting[bucket] = found[number * rows :]
        batches.sort(key=lambda batch: batch[0])
        yield from (batch for _, batch in batches)
    yield from (rest for rest in waiting if len(rest))
