"""Pairs of random ids with lengths about as of WMT's training text.

Shapes: B pairs that are made at once.

The same arguments give the same pairs. Nothing here imports TensorFlow.
"""

import pathlib
from collections.abc import Iterator

import common  # noqa: F401  (it finds this checkout's package)
import numpy as np

from relpos_tf.data import token_files

MEDIAN_IDS, MOST_IDS = 30, 250
SPREAD, SPREAD_OF_RATIO = 0.6, 0.2  # of the logarithms
AT_ONCE = 1 << 18
EOS, FIRST_PIECE = 1, 2


def lengths(number: int) -> Iterator[np.ndarray]:
    """Yields the numbers of ids, EOS included, uint32 [B, 2]."""
    draw = np.random.default_rng(1)
    for start in range(0, number, AT_ONCE):
        size = min(AT_ONCE, number - start)
        sources = MEDIAN_IDS * draw.lognormal(0, SPREAD, size)
        targets = sources * draw.lognormal(0, SPREAD_OF_RATIO, size)
        both = np.stack([sources, targets], axis=1)
        yield np.clip(both, 2, MOST_IDS).astype(np.uint32)


def write(folder: pathlib.Path, number: int, vocab: int) -> None:
    """Writes training pairs, to be opened by `token_files.TokenFile`."""
    draw = np.random.default_rng(2)
    with token_files.Writer(folder, "train", vocab) as writer:
        for block in lengths(number):
            sides = []
            for sizes in block.T.astype(np.int64):
                ends = np.cumsum(sizes)
                ids = draw.integers(FIRST_PIECE, vocab, ends[-1])
                ids[ends - 1] = EOS
                sides.append(token_files.Rows(ids, sizes))
            writer.add(*sides)


def write_lengths(folder: pathlib.Path, number: int) -> None:
    """Writes the lengths alone; they are enough to plan an epoch."""
    with open(folder / token_files.names("train")[1], "xb") as file:
        for block in lengths(number):
            file.write(block.astype("<u4").tobytes())


def read_lengths(folder: pathlib.Path) -> np.ndarray:
    """Maps the lengths uint32 [N, 2] of training pairs."""
    path = folder / token_files.names("train")[1]
    return np.memmap(path, "<u4", mode="r").reshape(-1, 2)
