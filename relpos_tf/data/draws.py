"""TensorFlow's random numbers in NumPy: the order of training pairs.

Shapes: N seeds, M numbers of a seed, G groups of four numbers.

A run that goes on needs the order of the pairs before its position, too.
TensorFlow computes it one by one; here it takes a tenth of the time. All
functions return what TensorFlow's operations return, bit for bit, so that the
order is that of earlier versions.

Reference:
    Salmon et al. (2011), Parallel Random Numbers: As Easy as 1, 2, 3, the
    generator Philox4x32-10; TensorFlow, `tsl/lib/random/philox_random.h`.
"""

import itertools
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_INCREMENTS = 0x9E3779B9, 0xBB67AE85
_ROUNDS = 10
# The key of the generator that scrambles the seeds of stateless operations.
_SCRAMBLER = 0x02461E293EC8F720
_GRAPH_SEED = 1  # of the graph in which the order was drawn
_T = TypeVar("_T")


def fold_in(seeds: np.ndarray, data: int | np.ndarray) -> np.ndarray:
    """Returns the seeds of `tf.random.experimental.stateless_fold_in`.

    Args:
        seeds: int64 [2].
        data: int64 [] or [N].

    Returns:
        int64 [2] or [N, 2].
    """
    data = np.asarray(data, np.int64)
    first = _bits(seeds, 2).view(np.int64)  # [1]
    return np.stack([np.broadcast_to(first[0], data.shape), data], axis=-1)


def for_use(seeds: np.ndarray, use: int) -> np.ndarray:
    """Returns seeds as `fold_in` does for a number of 32 bits, int64 [2].

    Args:
        seeds: int64 [2].
        use: int. What the seeds are for.
    """
    return np.array([_bits(seeds, 1).view(np.int32)[0], use], np.int64)


def integers(seeds: np.ndarray, size: int, limit: int) -> np.ndarray:
    """Returns numbers from 0 up to, but without, a limit.

    Args:
        seeds: int64 [2] or [N, 2].
        size: int. Numbers for each seed, M.
        limit: int.

    Returns:
        int64 [M] or [N, M], as of `tf.random.stateless_uniform`.
    """
    drawn = _bits(seeds, 2 * size).view(np.uint64)
    return (drawn % np.uint64(limit)).astype(np.int64)


def floats(seeds: np.ndarray, size: int) -> np.ndarray:
    """Returns float32 numbers from 0 to 1; see `integers`."""
    drawn = _bits(seeds, size) & np.uint32(0x7FFFFF) | np.uint32(0x3F800000)
    return drawn.view(np.float32) - np.float32(1)


def doubles(seeds: np.ndarray, size: int) -> np.ndarray:
    """Returns float64 numbers from 0 to 1; see `integers`."""
    halves = _bits(seeds, 2 * size).astype(np.uint64)
    high, low = halves[..., ::2] & np.uint64(0xFFFFF), halves[..., 1::2]
    drawn = np.uint64(1023 << 52) | high << np.uint64(32) | low
    return drawn.view(np.float64) - 1


def permutation(seeds: np.ndarray, size: int) -> np.ndarray:
    """Returns 0 to `size` - 1 in the order of `stateless_shuffle`.

    Args:
        seeds: int64 [2].
        size: int.

    Returns:
        int64 [size].
    """
    parts = _swapped([range(size)], iter([_bits(seeds, size)]), size)
    return np.array([*itertools.chain.from_iterable(parts)], np.int64)


def shuffled(
    chunks: Iterable[Sequence[_T]], window: int, seed: int, block: int = 1 << 16
) -> Iterator[list[_T]]:
    """Yields elements in the order of `tf.data.Dataset.shuffle`.

    That is a Fisher-Yates shuffle with a window: the element at position i is
    swapped with a random one of the positions i to i + window - 1.

    Args:
        chunks: Sequences of elements, in order.
        window: int. The size of the buffer.
        seed: int. The seed of the operation.
        block: int. Elements that are shuffled at once, a multiple of four.

    Yields:
        Lists of elements.
    """
    # The operation draws the two seeds of its first pass.
    own = next(_stream(_GRAPH_SEED, seed, 4))
    random = _stream(int(own[0]), int(own[1]), block)
    yield from _swapped(chunks, random, window)


def _swapped(
    chunks: Iterable[Sequence[_T]], random: Iterator[np.ndarray], window: int
) -> Iterator[list[_T]]:
    """Yields shuffled elements; see `shuffled`.

    Args:
        chunks: Sequences of elements.
        random: uint32 arrays.
        window: int.
    """
    chunks = iter(chunks)
    ahead = []  # the elements that follow those yielded, as far as needed
    for drawn in random:
        while len(ahead) < len(drawn) + window:
            chunk = next(chunks, None)
            if chunk is None:
                break
            ahead += chunk
        if not ahead:
            return
        left = len(ahead)  # at the end; else more than the window
        drawn = drawn[:left]
        places = np.arange(len(drawn))
        others = places + drawn % np.minimum(window, left - places)
        for place, other in enumerate(others.tolist()):
            element = ahead[other]
            ahead[other] = ahead[place]
            ahead[place] = element
        yield ahead[: len(drawn)]
        del ahead[: len(drawn)]


def _bits(seeds: np.ndarray, size: int) -> np.ndarray:
    """Returns the random bits of stateless operations, uint32 [N, size].

    Args:
        seeds: int64 [2] or [N, 2].
        size: int.
    """
    seeds = np.asarray(seeds, np.int64).view(np.uint64)  # [N, 2]
    scrambled = _philox(
        np.uint64(_SCRAMBLER), seeds[..., :1], seeds[..., 1:]
    ).view(np.uint64)  # [N, 2]
    groups = np.arange(-(-size // 4), dtype=np.uint64)
    return np.ascontiguousarray(
        _philox(scrambled[..., :1], groups, scrambled[..., 1:])[..., :size]
    )


def _stream(key: int, high: int, size: int) -> Iterator[np.ndarray]:
    """Yields the uint32 numbers of a generator, `size` at a time."""
    for start in itertools.count(0, size // 4):
        groups = np.arange(start, start + size // 4, dtype=np.uint64)
        yield _philox(np.uint64(key), groups, np.uint64(high))


def _philox(key: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Returns the numbers of counters, uint32 [N, 4 G].

    Args:
        key: uint64 [N, 1] or [].
        low: uint64 [N, G] or [G]. The lower half of each counter.
        high: uint64 [N, 1] or []. The upper half.
    """
    half, mask = np.uint64(32), np.uint64(0xFFFFFFFF)
    key, low, high = np.broadcast_arrays(key, low, high)
    counter = [low & mask, low >> half, high & mask, high >> half]
    keys = [key & mask, key >> half]
    for _ in range(_ROUNDS):
        first = counter[0] * _MULTIPLIERS[0]
        second = counter[2] * _MULTIPLIERS[1]
        counter = [
            (second >> half) ^ counter[1] ^ keys[0],
            second & mask,
            (first >> half) ^ counter[3] ^ keys[1],
            first & mask,
        ]
        keys = [
            (k + np.uint64(i)) & mask
            for k, i in zip(keys, _INCREMENTS, strict=True)
        ]
    result = np.stack(counter, axis=-1).astype(np.uint32)  # [N, G, 4]
    return result.reshape(*result.shape[:-2], -1)  # [N, 4 G]
