"""Pairs of id sequences in TFRecord files.

A record is a `tf.train.Example` with two int64 lists, `inputs` and `targets`,
both ending in EOS. The file format frames every record as: length (8 bytes,
little endian), checksum (4), data, checksum (4).
"""

import contextlib
import itertools
import os
import pathlib
import random
import struct
from collections.abc import Iterable
from collections.abc import Sequence

import tensorflow as tf

from relpos_tf import errors

_HEADER_SIZE = 12
_FOOTER_SIZE = 4


def serialize(inputs: Sequence[int], targets: Sequence[int]) -> bytes:
    """Returns one pair as a serialized `tf.train.Example`."""
    features = {
        name: tf.train.Feature(int64_list=tf.train.Int64List(value=ids))
        for name, ids in (("inputs", inputs), ("targets", targets))
    }
    example = tf.train.Example(features=tf.train.Features(feature=features))
    return example.SerializeToString(deterministic=True)


def parse(serialized: tf.Tensor) -> dict[str, tf.Tensor]:
    """Parses one record, in a graph.

    Args:
        serialized: string [].

    Returns:
        `inputs` int32 [S] and `targets` int32 [T].
    """
    feature = tf.io.RaggedFeature(tf.int64)
    pair = tf.io.parse_single_example(
        serialized, {"inputs": feature, "targets": feature}
    )
    return {name: tf.cast(ids, tf.int32) for name, ids in pair.items()}


def write(
    pairs: Iterable[tuple[Sequence[int], Sequence[int]]],
    files: Sequence[str | pathlib.Path],
) -> int:
    """Deals pairs out to files in turn; returns their number.

    Args:
        pairs: (inputs, targets), ids ending in EOS.
        files: Paths, at least one.
    """
    count = 0
    with contextlib.ExitStack() as stack:
        writers = [
            stack.enter_context(tf.io.TFRecordWriter(str(path)))
            for path in files
        ]
        for pair, writer in zip(pairs, itertools.cycle(writers), strict=False):
            writer.write(serialize(*pair))
            count += 1
    return count


def shuffle_file(path: str | pathlib.Path, seed: int) -> None:
    """Rewrites a record file in another order; it must fit into memory."""
    # Corpora are written one after the other, and a training shuffle buffer
    # is too small to mix them.
    records = [record.numpy() for record in tf.data.TFRecordDataset(str(path))]
    random.Random(seed).shuffle(records)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)


def count_records(files: Iterable[str | pathlib.Path]) -> int:
    """Counts records by walking over their frames, without reading the data.

    Raises:
        UserError: a file is missing, cut short or not a TFRecord file; the
            message names it.
    """
    return sum(_count(pathlib.Path(path)) for path in files)


def _count(path: pathlib.Path) -> int:
    """Returns the number of records in one file."""
    if not path.is_file():
        raise errors.UserError(
            f"Expected a TFRecord file. Received: {path}, which does not "
            "exist. Run with --generate_data to write it."
        )
    size = os.path.getsize(path)
    count = position = 0
    with open(path, "rb") as file:
        while position < size:
            header = file.read(_HEADER_SIZE)
            position += _HEADER_SIZE + _FOOTER_SIZE
            if len(header) == _HEADER_SIZE:
                position += struct.unpack("<Q", header[:8])[0]
            if len(header) < _HEADER_SIZE or position > size:
                raise errors.UserError(
                    f"The TFRecord file {path} is damaged: record {count + 1} "
                    f"does not end within its {size} bytes. Delete its folder "
                    "and run with --generate_data."
                )
            file.seek(position)
            count += 1
    return count
