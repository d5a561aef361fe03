"""The index of a checkpoint, checked before TensorFlow reads it.

TensorFlow verifies the checksums of an index and of each tensor, but not the
numbers in the index: a damaged or crafted number can request any amount of
memory or end the process. The index is a LevelDB table: blocks of entries, a
block that lists their positions, and a footer with the position of that block.
"""

import math
import pathlib
from collections.abc import Iterator

import tensorflow as tf
from google.protobuf import message
from tensorflow.core.protobuf import tensor_bundle_pb2

# The footer: offset and size of two blocks as varints, zeros up to 40 bytes,
# and 8 bytes that identify a table.
_FOOTER, _MAGIC = 48, bytes.fromhex("57fb808b247547db")
_TRAILER = 5  # after a block: its compression and its checksum
_MAX_RANK, _MAX_ELEMENTS = 254, 2**62


def check(prefix: str) -> None:
    """Compares the index of a checkpoint with its data files.

    Raises:
        ValueError: the index is damaged, or promises more than the data files
            hold.
        OSError: a file is missing.
    """
    path = f"{prefix}.index"
    try:
        _check_entries(prefix, _entries(pathlib.Path(path).read_bytes()))
    except (IndexError, TypeError, ValueError, message.DecodeError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error


def _check_entries(prefix: str, entries: Iterator[tuple[bytes, bytes]]) -> None:
    """Compares every entry of an index with the sizes of the data files."""
    key, content = next(entries, (b"none", b""))
    if key:
        raise ValueError("It has no header.")
    header = tensor_bundle_pb2.BundleHeaderProto.FromString(content)
    count = header.num_shards
    left = {}  # the bytes of each data file that no entry has claimed
    for _, content in entries:
        entry = tensor_bundle_pb2.BundleEntryProto.FromString(content)
        shard = entry.shard_id
        if not 0 <= shard < count:
            raise ValueError(f"It names data file {shard} of {count}.")
        if shard not in left:
            path = f"{prefix}.data-{shard:05d}-of-{count:05d}"
            left[shard] = pathlib.Path(path).stat().st_size
        left[shard] -= _checked_size(entry)
        if left[shard] < 0:
            raise ValueError("It promises more than its data files hold.")


def _checked_size(entry: tensor_bundle_pb2.BundleEntryProto) -> int:
    """Returns the bytes of a tensor; raises ValueError unless its shape fits.

    TensorFlow ends the process if a shape is impossible or too large.
    """
    sizes = [dim.size for dim in entry.shape.dim]
    if (
        entry.shape.unknown_rank
        or len(sizes) > _MAX_RANK
        or min(sizes, default=0) < 0
        or math.prod(max(size, 1) for size in sizes) > _MAX_ELEMENTS
    ):
        raise ValueError("An entry has an impossible shape.")
    dtype = tf.dtypes.as_dtype(entry.dtype)
    # A string takes at least one byte.
    size = (1 if dtype == tf.string else dtype.size) * math.prod(sizes)
    fits = size == entry.size or (dtype == tf.string and size < entry.size)
    if not fits or entry.slices:
        raise ValueError(
            f"An entry promises {size} bytes, and has {entry.size}."
        )
    return entry.size


def _entries(table: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yields the keys and values of a table in their order."""
    if len(table) < _FOOTER or not table.endswith(_MAGIC):
        raise ValueError("It is no index of a checkpoint.")
    _, offset = _handle(table, len(table) - _FOOTER)  # skips the first block
    blocks, _ = _handle(table, offset)
    end = 0
    for _, handle in _block(table, blocks):
        block, _ = _handle(handle, 0)
        if block.start < end:
            raise ValueError("Its blocks are not in order.")
        end = block.stop
        yield from _block(table, block)


def _block(table: bytes, block: slice) -> Iterator[tuple[bytes, bytes]]:
    """Yields the keys and values of a block.

    An entry holds how many bytes its key shares with the key before it, and
    only the rest of the key.
    """
    if block.stop + _TRAILER > len(table):
        raise ValueError("It points beyond its end.")
    if table[block.stop]:
        raise ValueError("It is compressed.")
    data = table[block]
    # At the end: the offsets of the complete keys and their number, 4 bytes
    # each.
    end = len(data) - 4 - 4 * int.from_bytes(data[-4:], "little")
    offset, key = 0, b""
    while offset < end:
        shared, offset = _varint(data, offset)
        added, offset = _varint(data, offset)
        size, offset = _varint(data, offset)
        if shared > len(key) or offset + added + size > end:
            raise ValueError("An entry does not end within its block.")
        key = key[:shared] + data[offset : offset + added]
        offset += added + size
        yield key, data[offset - size : offset]


def _handle(data: bytes, offset: int) -> tuple[slice, int]:
    """Reads the position of a block; returns it and the offset after it."""
    start, offset = _varint(data, offset)
    size, offset = _varint(data, offset)
    return slice(start, start + size), offset


def _varint(data: bytes, offset: int) -> tuple[int, int]:
    """Reads a varint; returns the number and the offset after it."""
    value = shift = 0
    while data[offset] >= 128 and shift < 64:
        value |= (data[offset] & 127) << shift
        offset, shift = offset + 1, shift + 7
    return value | data[offset] << shift, offset + 1
