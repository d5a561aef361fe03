"""Where the records of TFRecord files are, and how long their pairs are.

Shapes: N records, F files, M records that are asked for.

With an index, batches are planned without reading a pair, and a pair is read by
its number. It takes 12 bytes for each pair, and lies in the file `train.index`
beside the training files; it is made by the first training of a data set, and
mapped into memory, so that the system may drop its pages. Where it cannot be
written, it is made anew in memory each time.

The file: 8 bytes that name the format, the size of a description (8 bytes), the
description in JSON (name, bytes and records of each file, a checksum); for each
file the offsets of its records and its size, uint64; the ids of the sides of
each record, uint16 [N, 2]. All numbers are little endian.
"""

import array
import contextlib
import json
import logging
import os
import pathlib
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from relpos_tf.data import records
from relpos_tf.data import tfrecord
from relpos_tf.utils import files as files_lib

_FORMAT = b"relpos-1"
_HEAD = struct.Struct("<8sQ")
_BATCH = 4096
_LARGE = 10**8  # bytes that take more than a few seconds
# Most files that a reader has open. Systems allow 256 or more of a process.
_MOST_OPEN = 128
_log = logging.getLogger("relpos_tf")
# Lengths above are stored as this one.
LONGEST = 2**16 - 1


class RecordIndex:
    """The records of several files, numbered through all of them.

    Args:
        files: The paths.
        counts: int [F]. Records of each file.
        offsets: uint64 [N + F]. For each file, where its records begin, and
            where the last one ends.
        lengths: uint16 [N, 2]. Ids of the sides of each record.

    Attributes:
        files: The paths.
        starts: int64 [F + 1]. The number of the first record of each file, and
            of all records.
        lengths: uint16 [N, 2].
    """

    def __init__(self, files, counts, offsets, lengths):
        self.files = list(files)
        self.starts = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        self.lengths = lengths
        self._offsets = offsets

    def reader(self) -> "Reader":
        """Returns what reads records by their numbers."""
        return Reader(self)

    def places(self, numbers: np.ndarray) -> np.ndarray:
        """Returns the file, the offset and the bytes of records, int64 [M, 3].

        Args:
            numbers: int64 [M].
        """
        files = np.searchsorted(self.starts, numbers, side="right") - 1
        first = self._offsets[numbers + files].astype(np.int64)
        last = self._offsets[numbers + files + 1].astype(np.int64)
        return np.stack([files, first, last - first], axis=-1)


class Reader:
    """Reads records by their numbers, and opens only the files it needs.

    The files that were read last stay open.

    Args:
        index: `RecordIndex`.
    """

    def __init__(self, index: RecordIndex):
        self._index = index
        self._open = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        while self._open:
            os.close(self._open.popitem()[1])

    def read(self, numbers: np.ndarray) -> list[bytes]:
        """Returns serialized records, whose checksums are right.

        Args:
            numbers: int64 [M].

        Raises:
            ValueError: a record is damaged, or a file is missing.
        """
        frames = []
        for file, offset, size in self._index.places(numbers).tolist():
            frames.append(os.pread(self._descriptor(file), size, offset))
        if not tfrecord.are_sound(frames):
            raise ValueError("Damaged record, or an index of other files.")
        head, foot = tfrecord.HEADER_SIZE, tfrecord.FOOTER_SIZE
        return [frame[head:-foot] for frame in frames]

    def _descriptor(self, file: int) -> int:
        opened = self._open.pop(file, None)
        if opened is None:
            if len(self._open) >= _MOST_OPEN:
                os.close(self._open.pop(next(iter(self._open))))
            try:
                opened = os.open(self._index.files[file], os.O_RDONLY)
            except OSError as error:
                raise ValueError(str(error)) from error
        self._open[file] = opened  # the last of the dictionary
        return opened


def load(files: Sequence[str]) -> RecordIndex:
    """Returns the index of training files, and writes it if there is none.

    Args:
        files: Their paths, at least one.

    Raises:
        UserError: a file is missing or damaged.
    """
    path = pathlib.Path(files[0]).with_name(files_lib.INDEX)
    found = _read(path, files)
    if found is None:
        if all(map(os.path.isfile, files)):  # else reading them says which
            if sum(map(os.path.getsize, files)) > _LARGE:
                _log.info("Indexing the training pairs, once, in %s.", path)
        arrays = _scan(files)
        # Another user's data, a full disk: it is then made anew each time.
        with contextlib.suppress(OSError):
            _write(path, files, *arrays)
            found = _read(path, files)
        found = found or RecordIndex(files, *arrays)
    return found


def _described(files: Sequence[str]) -> list[list[Any]]:
    return [[os.path.basename(path), os.path.getsize(path)] for path in files]


def _read(path: pathlib.Path, files: Sequence[str]) -> RecordIndex | None:
    """Returns the index in a file; None if it is not that of these files."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        made = os.stat(path)
        with open(path, "rb") as file:
            name, size = _HEAD.unpack(file.read(_HEAD.size).ljust(_HEAD.size))
            if name != _FORMAT or size > made.st_size:
                return None
            known = json.loads(file.read(size))
        counts = known["counts"]
        number, start = sum(counts), _HEAD.size + size
        middle = start + 8 * (number + len(files))
        if (
            known["files"] != _described(files)
            or any(os.stat(f).st_mtime_ns > made.st_mtime_ns for f in files)
            or made.st_size != middle + 4 * number
        ):
            return None
        arrays = _empty(len(files))
        if number:
            arrays = (
                np.memmap(path, "<u8", "r", start, (number + len(files),)),
                np.memmap(path, "<u2", "r", middle, (number, 2)),
            )
        if known["crc32"] == _checksum(*arrays):
            return RecordIndex(files, counts, *arrays)
    return None


def _checksum(offsets: np.ndarray, lengths: np.ndarray) -> int:
    return zlib.crc32(lengths, zlib.crc32(offsets))


def _empty(number: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the offsets and lengths of files without records."""
    return np.zeros(number, "<u8"), np.zeros([0, 2], "<u2")


def _scan(
    files: Sequence[str],
) -> tuple[list[int], np.ndarray, np.ndarray]:
    """Reads all files; returns counts, offsets and lengths."""

    def sizes(serialized):
        pairs = records.parse_batch(serialized)
        columns = [
            tf.cast(tf.strings.length(serialized), tf.int64),
            *(pairs[name].row_lengths() for name in ("inputs", "targets")),
        ]
        return tf.stack(columns, axis=1)  # [N, 3]

    def sizes_of_file(number, path):
        batches = tf.data.TFRecordDataset(path).batch(_BATCH).map(sizes)
        return batches.map(lambda found: (number, found))

    dataset = tf.data.Dataset.from_tensor_slices(list(map(str, files)))
    dataset = dataset.enumerate().flat_map(sizes_of_file)
    # They grow in place: a list of batches would be copied at the end.
    counts, begun = [0] * len(files), 0
    offsets, lengths = array.array("Q"), array.array("H")
    around = tfrecord.HEADER_SIZE + tfrecord.FOOTER_SIZE
    batches = dataset.prefetch(tf.data.AUTOTUNE).as_numpy_iterator()
    for number, batch in records.guarded(batches, files):
        while begun <= number:
            offsets.append(0)
            begun += 1
        ends = offsets[-1] + np.cumsum(batch[:, 0] + around)
        counts[number] += len(batch)
        offsets.frombytes(ends.astype(np.uint64).tobytes())
        ids = np.minimum(batch[:, 1:], LONGEST)  # [N, 2]
        lengths.frombytes(ids.astype(np.uint16).tobytes())
    offsets.extend([0] * (len(files) - begun))
    return (
        counts,
        np.frombuffer(offsets, np.uint64).astype("<u8", copy=False),
        np.frombuffer(lengths, np.uint16)
        .astype("<u2", copy=False)
        .reshape(-1, 2),  # [N, 2]
    )


def _write(path, files, counts, offsets, lengths) -> None:
    """Writes an index, whole or not at all."""
    known = {
        "files": _described(files),
        "counts": counts,
        "crc32": _checksum(offsets, lengths),
    }
    known = json.dumps(known).encode()
    known = known.ljust(-(-len(known) // 8) * 8)
    with files_lib.replacing(path) as file:
        file.write(_HEAD.pack(_FORMAT, len(known)))
        file.write(known)
        file.write(offsets)
        file.write(lengths)
