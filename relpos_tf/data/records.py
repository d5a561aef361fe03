"""Pairs of id sequences in TFRecord files.

A record is a `tf.train.Example` with two int64 lists, `inputs` and `targets`,
both ending in EOS, and the number `tokenizer`, the mark of the tokenizer that
made the ids. Records of earlier versions have no mark. The file format frames
every record as: length (8 bytes, little endian), checksum (4), data,
checksum (4).

Reading happens in the graph. After an error, `guarded` reads the files once
more to name the damaged record.
"""

import contextlib
import itertools
import os
import pathlib
import random
import struct
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from google.protobuf import message

from relpos_tf import errors
from relpos_tf.data import tfrecord

_HEADER_SIZE = 12
_FOOTER_SIZE = 4
_LARGEST_ID = 2**31 - 1
_SIDES = "inputs", "targets"
_UNMARKED = -1
_FEATURES = {
    **dict.fromkeys(_SIDES, tf.io.RaggedFeature(tf.int64)),
    "tokenizer": tf.io.FixedLenFeature([], tf.int64, _UNMARKED),
}
_BATCH = 4096
_ANEW = "Prepare the data again with --generate_data."
# Errors of reading damaged records. TensorFlow quotes records in its messages,
# and a quotation may not be UTF-8.
_READ_ERRORS = (
    tf.errors.DataLossError,
    tf.errors.InvalidArgumentError,
    tf.errors.NotFoundError,
    UnicodeDecodeError,
)


def serialize(inputs: Sequence[int], targets: Sequence[int]) -> bytes:
    """Returns one pair as a serialized `tf.train.Example`."""
    features = {
        name: tf.train.Feature(int64_list=tf.train.Int64List(value=ids))
        for name, ids in zip(_SIDES, (inputs, targets), strict=True)
    }
    example = tf.train.Example(features=tf.train.Features(feature=features))
    return example.SerializeToString(deterministic=True)


def parse(serialized: tf.Tensor) -> dict[str, tf.Tensor]:
    """Parses one record, in a graph.

    Args:
        serialized: string [].

    Returns:
        `inputs` int32 [S], `targets` int32 [T] and `tokenizer` int64 [].
        A number beyond int32 becomes the largest or smallest int32, which is
        no id either.
    """
    pair = tf.io.parse_single_example(serialized, _FEATURES)
    sides = {name: tf.saturate_cast(pair[name], tf.int32) for name in _SIDES}
    return {**sides, "tokenizer": pair["tokenizer"]}


def parse_batch(serialized: tf.Tensor) -> dict[str, Any]:
    """Parses several records as `parse` does, in a graph.

    Args:
        serialized: string [N].

    Returns:
        `inputs` int32 [N, (S)] and `targets` int32 [N, (T)], ragged, and
        `tokenizer` int64 [N].
    """
    pairs = tf.io.parse_example(serialized, _FEATURES)
    sides = {
        name: tf.ragged.map_flat_values(
            tf.saturate_cast,
            pairs[name].with_row_splits_dtype(tf.int64),
            tf.int32,
        )
        for name in _SIDES
    }
    return {**sides, "tokenizer": pairs["tokenizer"]}


def checked(
    batch: dict[str, tf.Tensor],
    vocab_size: int | None,
    tokenizer: int | None,
) -> dict[str, tf.Tensor]:
    """Returns a batch, in a graph that fails at an invalid one.

    It fails if a row is empty or has a number that is no id. Without it, a GPU
    reads zeros for an id beyond the vocabulary.

    Args:
        batch: `inputs` int32 [B, S], `targets` int32 [B, T] and `tokenizer`
            int64 [N], of the records in the batch.
        vocab_size: int or None. Ids must be below it.
        tokenizer: int or None. The mark of the tokenizer in use, see
            `tokenizer_mark`. Records with another mark are invalid.

    Returns:
        `inputs` and `targets`.
    """
    checks = [
        tf.debugging.Assert(
            tf.reduce_all(_has_mark(batch["tokenizer"], tokenizer)),
            ["Records of another tokenizer"],
        )
    ]
    for name in _SIDES:
        ids = batch[name]
        good = tf.reduce_all(tf.reduce_any(ids != 0, axis=1))
        good &= tf.reduce_all(ids >= 0)
        if vocab_size is not None:
            good &= tf.reduce_all(ids < vocab_size)
        checks.append(tf.debugging.Assert(good, ["Damaged record:", name]))
    with tf.control_dependencies(checks):
        return {name: tf.identity(batch[name]) for name in _SIDES}


def tokenizer_mark(path: str | pathlib.Path) -> int:
    """Returns the number that marks the records of the tokenizer in a file."""
    return tfrecord.tokenizer_mark(path)


def write(
    pairs: Iterable[tuple[Sequence[int], Sequence[int]]],
    files: Sequence[str | pathlib.Path],
) -> int:
    """Writes pairs to files in turn; returns the number of pairs.

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
    # Corpora follow one another, and the shuffle buffer of training is too
    # small to mix them.
    records = list(_read(path))
    random.Random(seed).shuffle(records)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)


def mark(path: str | pathlib.Path, tokenizer: int) -> None:
    """Rewrites a record file so that each record has the tokenizer's mark.

    Args:
        path: A file that `write` wrote.
        tokenizer: int. See `tokenizer_mark`.
    """
    feature = tf.train.Feature(int64_list=tf.train.Int64List(value=[tokenizer]))
    features = tf.train.Features(feature={"tokenizer": feature})
    # Two concatenated messages are one message with the fields of both.
    addition = tf.train.Example(features=features).SerializeToString()
    unmarked = pathlib.Path(path).with_suffix(".unmarked")
    os.replace(path, unmarked)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in _read(unmarked):
            writer.write(record + addition)
    unmarked.unlink()


def _read(path: str | pathlib.Path) -> Iterator[bytes]:
    """Yields the records of a file, read in batches for speed."""
    batches = tf.data.TFRecordDataset(str(path)).batch(_BATCH)
    for batch in batches.as_numpy_iterator():
        yield from batch


def count_records(files: Iterable[str | pathlib.Path]) -> int:
    """Counts records by walking over their frames, without reading the data.

    Raises:
        UserError: a file is missing, cut short or not a TFRecord file; the
            message names it.
    """
    return sum(_count(pathlib.Path(path)) for path in files)


def guarded(
    batches: Iterable[Any],
    files: Sequence[str | pathlib.Path],
    vocab_size: int | None = None,
    tokenizer: int | None = None,
) -> Iterator[Any]:
    """Yields batches; a damaged record raises an error that names it.

    Args:
        batches: Batches of the files, as of `batching`.
        files: The TFRecord files.
        vocab_size: int or None. See `check`.
        tokenizer: int or None. See `check`.

    Raises:
        UserError: a record is damaged; see `check`.
    """
    try:
        yield from batches
    except _READ_ERRORS:
        check(files, vocab_size, tokenizer)
        raise  # The files are sound.


def check(
    files: Sequence[str | pathlib.Path],
    vocab_size: int | None = None,
    tokenizer: int | None = None,
) -> None:
    """Reads every record of every file.

    Args:
        files: TFRecord files.
        vocab_size: int or None. Ids must be below it.
        tokenizer: int or None. See `checked`.

    Raises:
        UserError: a record is damaged. The message names the first such file,
            and the record by its number, from 1.
    """
    files = [str(path) for path in files]
    largest = _LARGEST_ID if vocab_size is None else vocab_size - 1

    def is_sound(serialized):
        pairs = tf.io.parse_example(serialized, _FEATURES)
        return tf.reduce_all(
            [
                tf.reduce_all(ids.row_lengths() > 0)
                & tf.reduce_all((ids.values > 0) & (ids.values <= largest))
                for ids in (pairs[name] for name in _SIDES)
            ]
            + [tf.reduce_all(_has_mark(pairs["tokenizer"], tokenizer))]
        )

    def all_sound(path):
        return (
            tf.data.TFRecordDataset(path)
            .batch(_BATCH)
            .map(is_sound)
            .reduce(tf.constant(True), tf.logical_and)
        )

    sound = 0
    # One dataset of all files, which traces the two functions once.
    results = tf.data.Dataset.from_tensor_slices(files).map(all_sound)
    with contextlib.suppress(*_READ_ERRORS):
        for is_file_sound in results:
            if not is_file_sound:
                break
            sound += 1
    if sound < len(files):
        _raise_for_record(files[sound], largest, tokenizer)


def _has_mark(marks: tf.Tensor, tokenizer: int | None) -> tf.Tensor:
    """Returns which records have the tokenizer's mark, or none."""
    if tokenizer is None:
        return tf.ones_like(marks, tf.bool)
    return (marks == tokenizer) | (marks == _UNMARKED)


def _raise_for_record(path: str, largest: int, tokenizer: int | None) -> None:
    """Raises for the first damaged record of a file."""
    _check_exists(path)
    iterator = iter(tf.data.TFRecordDataset(path))
    for number in itertools.count(1):
        try:
            record = next(iterator).numpy()
            damage = _damage(record, largest)
            if not damage and not _has_mark(
                parse(record)["tokenizer"], tokenizer
            ):
                raise errors.UserError(
                    f"Record {number} of {path} was made with another "
                    "tokenizer than is in use, so its ids mean other pieces. "
                    f"{_ANEW}"
                )
        except StopIteration:
            return
        except _READ_ERRORS:
            damage = "its checksum does not fit, or the file ends within it"
        if damage:
            raise errors.UserError(
                f"Record {number} of {path} is damaged: {damage}. {_ANEW}"
            )


def _damage(record: bytes, largest: int) -> str:
    """Returns a description of the damage to a record, or nothing."""
    try:
        features = tf.train.Example.FromString(record).features.feature
    except message.DecodeError:
        return "it is no tf.train.Example"
    for name in _SIDES:
        # `features[name]` would add a missing name.
        if name not in features:
            return f"it has no `{name}`"
        if features[name].WhichOneof("kind") not in ("int64_list", None):
            return f"`{name}` is no list of int64"
        ids = features[name].int64_list.value
        if not ids:
            return f"`{name}` is empty"
        if min(ids) < 1 or max(ids) > largest:
            wrong = min(ids) if min(ids) < 1 else max(ids)
            return f"`{name}` has the id {wrong}, not one of 1 to {largest}"
    return ""


def _count(path: pathlib.Path) -> int:
    """Returns the number of records in one file."""
    _check_exists(path)
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
                    f"Record {count + 1} of {path} is damaged: it does not "
                    f"end within the file's {size} bytes. {_ANEW}"
                )
            file.seek(position)
            count += 1
    return count


def _check_exists(path: str | pathlib.Path) -> None:
    if not os.path.isfile(path):
        raise errors.UserError(
            f"Expected a TFRecord file. Received: {path}, which does not "
            f"exist. {_ANEW}"
        )
