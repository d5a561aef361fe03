"""Prepared pairs in two files, of which only what is asked for is read.

Shapes: N pairs, B pairs of a batch, S ids of the longest row.

`SPLIT.ids` has the ids of all pairs one after the other: of each pair first
the source, then the target, both ending in EOS. `SPLIT.lengths` has the
numbers of ids, `[N, 2]`. Both are little-endian arrays without a header; an id
takes two bytes, or four if the vocabulary is large. `manifest.json` beside them
has their sizes and checksums (`problems.manifest`).

The lengths are in memory; ids are read at their places. They are not mapped
into memory: if the file is cut meanwhile, the process would die of SIGBUS.
Nothing here imports TensorFlow.
"""

import contextlib
import os
import pathlib
import weakref
from collections.abc import Callable
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from relpos_tf import errors
from relpos_tf.utils import files

# Pairs whose place in the file is known; others are counted from there.
_BLOCK = 64
_LENGTH = np.dtype("<u4")


class Rows(NamedTuple):
    """The ids of several texts.

    Attributes:
        ids: int [total]. The ids of all texts one after the other, each text
            ending in EOS.
        lengths: int64 [N]. The numbers of ids, EOS included.
    """

    ids: np.ndarray
    lengths: np.ndarray


def id_type(vocab_size: int) -> np.dtype:
    """Returns the type of ids: the smallest that has room for all."""
    return np.dtype("<u2" if vocab_size <= 1 << 16 else "<u4")


def names(split: str) -> tuple[str, str]:
    """Returns the names of a split's two files."""
    return f"{split}.ids", f"{split}.lengths"


def ranges(starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Returns the numbers of several ranges, one range after the other.

    Args:
        starts: int64 [N].
        sizes: int64 [N].

    Example:
    >>> ranges(np.array([5, 20]), np.array([2, 3])).tolist()
    [5, 6, 20, 21, 22]
    """
    ends = np.cumsum(sizes)
    offsets = np.repeat(starts - (ends - sizes), sizes)
    return np.arange(len(offsets)) + offsets


@contextlib.contextmanager
def writer(
    folder: pathlib.Path, split: str, vocab_size: int
) -> Iterator[Callable[[Rows, Rows], None]]:
    """Yields a function that writes the next pairs of a split.

    Args:
        folder: Gets the two files.
        split: str. The split's name.
        vocab_size: int. Ids are below it.
    """
    ids_name, lengths_name = names(split)

    def write(sources: Rows, targets: Rows) -> None:
        lengths = np.stack([sources.lengths, targets.lengths], axis=1)  # [N, 2]
        joined = np.concatenate([sources.ids, targets.ids])
        ends = np.cumsum(lengths, axis=0) + [0, len(sources.ids)]  # [N, 2]
        order = ranges((ends - lengths).ravel(), lengths.ravel())
        all_ids.write(joined[order].astype(id_type(vocab_size)).tobytes())
        all_lengths.write(lengths.astype(_LENGTH).tobytes())

    with (
        files.replacing(folder / ids_name) as all_ids,
        files.replacing(folder / lengths_name) as all_lengths,
    ):
        yield write


class TokenFile:
    """The pairs of a split.

    Args:
        folder: Has the two files.
        split: str. The split's name.
        vocab_size: int. That of the writer.

    Attributes:
        lengths: uint32 [N, 2]. The numbers of ids of both sides, EOS included.
    """

    def __init__(self, folder: pathlib.Path, split: str, vocab_size: int):
        self._path, lengths = (pathlib.Path(folder, n) for n in names(split))
        self.lengths = np.fromfile(lengths, _LENGTH).reshape(-1, 2)
        self._type = id_type(vocab_size)
        # Kept open: the name may be another file's by the next time.
        self._file = os.open(self._path, os.O_RDONLY)
        weakref.finalize(self, os.close, self._file)
        begins = np.arange(0, self.lengths.size, 2 * _BLOCK)
        sizes = np.add.reduceat(self.lengths.ravel(), begins, dtype=np.int64)
        # Where each block of pairs begins.
        self._bases = np.cumsum(sizes) - sizes

    def __len__(self) -> int:
        """Returns N."""
        return len(self.lengths)

    def starts(self, pairs: np.ndarray) -> np.ndarray:
        """Returns the places of the first ids of both sides.

        Args:
            pairs: int64 [B]. The numbers of the pairs.

        Returns:
            int64 [B, 2].
        """
        blocks = pairs // _BLOCK  # [B]
        others = blocks[:, np.newaxis] * _BLOCK + np.arange(_BLOCK)
        precede = others < pairs[:, np.newaxis]  # [B, _BLOCK]
        sizes = self.lengths[np.where(precede, others, 0)].sum(
            axis=2, dtype=np.int64
        )  # [B, _BLOCK]
        sources = self._bases[blocks] + (sizes * precede).sum(axis=1)  # [B]
        return np.stack([sources, sources + self.lengths[pairs, 0]], axis=1)

    def rows(self, starts: np.ndarray, sizes: np.ndarray) -> Rows:
        """Returns the ids at several places.

        Args:
            starts: int64 [B]. The places of the first ids.
            sizes: int64 [B]. The numbers of ids.

        Returns:
            `Rows` of int32 ids.

        Raises:
            UserError: the file has become shorter.
        """
        width = self._type.itemsize
        places = (width * np.stack([sizes, starts], axis=1)).tolist()
        content = b"".join(os.pread(self._file, *place) for place in places)
        if len(content) != width * sizes.sum():
            raise errors.UserError(
                f"{self._path} has become shorter while it is read. Delete its "
                "folder and run again, to prepare the data anew."
            )
        return Rows(np.frombuffer(content, self._type).astype(np.int32), sizes)


def padded(rows: Rows, length: int) -> np.ndarray:
    """Returns rows of ids, padded with 0.

    Args:
        rows: `Rows` of B texts.
        length: int. S, at least that of the longest row.

    Returns:
        int32 [B, S].
    """
    result = np.zeros([len(rows.lengths), length], np.int32)
    result[np.arange(length) < rows.lengths[:, np.newaxis]] = rows.ids
    return result
