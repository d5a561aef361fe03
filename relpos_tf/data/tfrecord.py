"""Pairs of ids as the bytes of TFRecord files, without TensorFlow.

Shapes: N records, C bytes in all, D bytes of the longest record.

`records` describes the format and reads it. Here, the checksums of many
records are computed at once: a checksum is a sum, modulo 2, of one number for
each byte, which depends on the byte and on its distance from the end.

Reference:
    TensorFlow, `tensorflow/core/lib/io/record_writer.h`; Castagnoli et al.
    (1993), the polynomial of CRC-32C.
"""

import functools
import pathlib
from collections.abc import Sequence

import numpy as np

from relpos_tf.data import pieces
from relpos_tf.utils import files
from relpos_tf.utils import text

HEADER_SIZE, FOOTER_SIZE = 12, 4
_POLYNOMIAL = 0x82F63B78  # of CRC-32C, bits reversed
_START = 0xFFFFFFFF
_MASK = 0xA282EAD8
_EOS = pieces.varint(text.EOS_ID)
# Fields of protocol buffers whose value is a string of bytes.
_FIRST, _SECOND, _THIRD = 0x0A, 0x12, 0x1A


def serialize(inputs: bytes, targets: bytes) -> bytes:
    """Returns one pair as a serialized `tf.train.Example`.

    Args:
        inputs: Packed ids of the source, see `pieces.Packer`. EOS is added.
        targets: Packed ids of the target.
    """
    head, between = _around(len(inputs) + 1, len(targets) + 1)
    return b"".join((head, inputs, between, targets, _EOS))


@functools.lru_cache(1 << 16)
def _around(inputs: int, targets: int) -> tuple[bytes, bytes]:
    """Returns what stands before the two lists of a pair, by their sizes."""
    first = _entry("inputs", inputs)
    second = _entry("targets", targets)
    size = len(first) + inputs + len(second) + targets
    return _field(_FIRST, size) + first, _EOS + second


def _entry(name: str, size: int) -> bytes:
    """Returns what stands before a list of ids in the map of features.

    Args:
        name: str. Name of the feature.
        size: int. Bytes of its packed ids.
    """
    values = _field(_FIRST, size)
    numbers = _field(_THIRD, len(values) + size) + values
    feature = _field(_SECOND, len(numbers) + size) + numbers
    key = _field(_FIRST, len(name)) + name.encode()
    return _field(_FIRST, len(key) + len(feature) + size) + key + feature


def _field(tag: int, size: int) -> bytes:
    return bytes([tag]) + pieces.varint(size)


def tokenizer_mark(path: str | pathlib.Path) -> int:
    """Returns the number that marks the records of the tokenizer in a file."""
    return int(files.sha256(path)[:8], 16)


def mark(tokenizer: int) -> bytes:
    """Returns what marks a serialized pair with its tokenizer, at its end.

    Args:
        tokenizer: int. See `tokenizer_mark`.
    """
    # Two concatenated messages are one message with the fields of both.
    value = pieces.varint(tokenizer)
    entry = _entry("tokenizer", len(value))
    return _field(_FIRST, len(entry) + len(value)) + entry + value


def number_of_ids(packed: Sequence[bytes]) -> np.ndarray:
    """Returns the number of ids in each string of packed ids, EOS added."""
    sizes = np.fromiter(map(len, packed), np.int64, len(packed))  # [N]
    ends = np.frombuffer(b"".join(packed), np.uint8) < 0x80  # [C]
    # The last byte of each id ends it. Sums up to each byte, since a string
    # may be empty.
    sums = np.concatenate([[0], np.cumsum(ends)])  # [C + 1]
    limits = np.cumsum(sizes)  # [N]
    return sums[limits] - sums[limits - sizes] + 1


class Framed:
    """Serialized pairs with all that their files need.

    Args:
        serialized: Of `serialize`, at least one.
        addition: bytes. Of `mark`.

    Attributes:
        headers: uint8 [N, 12], what stands before each record.
        footers: uint8 [N, 4], what stands behind it.
        marked_headers: uint8 [N, 12], the same with the mark.
        marked_footers: uint8 [N, 4].
    """

    def __init__(self, serialized: Sequence[bytes], addition: bytes):
        sizes = np.fromiter(map(len, serialized), np.int64, len(serialized))
        self.headers = headers(sizes)
        self.marked_headers = headers(sizes + len(addition))
        states = _states(np.frombuffer(b"".join(serialized), np.uint8), sizes)
        self.footers = _as_bytes(_masked(states))
        self.marked_footers = _as_bytes(_masked(_appended(states, addition)))


def headers(sizes: np.ndarray) -> np.ndarray:
    """Returns what stands before records of these sizes, uint8 [N, 12]."""
    sizes = np.asarray(sizes, "<u8")  # [N]
    data = sizes.view(np.uint8)  # [8 N]
    states = _states(data, np.full(len(sizes), 8))
    return np.concatenate(
        [data.reshape(-1, 8), _as_bytes(_masked(states))], axis=1
    )  # [N, 12]


def are_sound(frames: Sequence[bytes]) -> bool:
    """Returns whether records with what surrounds them have right checksums."""
    sizes = np.fromiter(map(len, frames), np.int64, len(frames))  # [N]
    sizes -= HEADER_SIZE + FOOTER_SIZE
    if not frames or sizes.min() < 1:
        return not frames
    found = b"".join([frame[:HEADER_SIZE] for frame in frames])
    data = b"".join([frame[HEADER_SIZE:-FOOTER_SIZE] for frame in frames])
    sums = b"".join([frame[-FOOTER_SIZE:] for frame in frames])
    states = _states(np.frombuffer(data, np.uint8), sizes)
    return (
        found == headers(sizes).tobytes()
        and sums == _as_bytes(_masked(states)).tobytes()
    )


def _as_bytes(numbers: np.ndarray) -> np.ndarray:
    """Returns uint32 [N] as uint8 [N, 4], little endian."""
    return numbers.astype("<u4").view(np.uint8).reshape(-1, 4)


def _masked(states: np.ndarray) -> np.ndarray:
    """Returns the checksums of states, in TensorFlow's form, uint32 [N]."""
    sums = ~states
    return ((sums >> 15) | (sums << 17)) + np.uint32(_MASK)


@functools.cache
def _table() -> np.ndarray:
    """Returns the state after each byte, from zero, uint32 [256]."""
    states = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        states = (states >> 1) ^ (states & 1) * np.uint32(_POLYNOMIAL)
    return states


def _advanced(states: np.ndarray) -> np.ndarray:
    """Returns states after one more byte, which is zero."""
    return (states >> 8) ^ _table()[states & 0xFF]


class _Distances:
    """What a byte adds to a state, by its distance from the end."""

    tables = np.zeros([0, 256], np.uint32)
    starts = np.zeros([0], np.uint32)  # what the first state becomes

    @classmethod
    def reach(cls, longest: int) -> None:
        """Makes the tables for records of up to so many bytes."""
        known = len(cls.tables)
        if longest < known:
            return
        wanted = max(2 * known, longest + 1, 1024)
        tables = [*cls.tables, *([_table()] if not known else [])]
        starts = [*cls.starts, *([np.uint32(_START)] if not known else [])]
        for _ in range(wanted - len(tables)):
            tables.append(_advanced(tables[-1]))
            starts.append(_advanced(starts[-1]))
        cls.tables, cls.starts = np.stack(tables), np.array(starts, np.uint32)


def _states(data: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Returns the state of the checksum after each record, uint32 [N].

    Args:
        data: uint8 [C]. The records, one after the other.
        sizes: int64 [N]. Their bytes, at least one each.
    """
    _Distances.reach(int(sizes.max()))
    limits = np.cumsum(sizes)  # [N]
    distances = np.repeat((limits - 1).astype(np.int32), sizes)  # [C]
    distances -= np.arange(len(data), dtype=np.int32)
    added = _Distances.tables.ravel()[(distances << 8) | data]  # [C]
    sums = np.bitwise_xor.reduceat(added, limits - sizes)  # [N]
    return sums ^ _Distances.starts[sizes]


def _appended(states: np.ndarray, addition: bytes) -> np.ndarray:
    """Returns states [N] after the same bytes have been appended to each."""
    own = np.zeros([], np.uint32)
    for byte in addition:
        own = (own >> 8) ^ _table()[(own ^ byte) & 0xFF]
    result = np.full_like(states, own)
    for position in range(4):
        part = np.arange(256, dtype=np.uint32) << np.uint32(8 * position)
        for _ in addition:
            part = _advanced(part)
        result ^= part[(states >> np.uint32(8 * position)) & 0xFF]
    return result
