"""Reading TensorFlow's checkpoint files, whatever has happened to them.

TensorFlow checks the bytes of an index when it opens it, those of a tensor
when it reads it. What it does not check is what they ask for: a number in the
index, damaged or crafted, can ask for any amount of memory or end the process.
So the index is read here first. It is a table as LevelDB writes them: blocks of
entries, a block that says where they are, and a footer that says where that is.
"""

import contextlib
import math
import pathlib
import re
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence

import tensorflow as tf
from google.protobuf import message
from tensorflow.core.protobuf import tensor_bundle_pb2

from relpos_tf import errors
from relpos_tf.utils import paths

Variables = Mapping[str, tf.Variable]
UNREADABLE = (tf.errors.OpError, OSError, ValueError, RuntimeError, IndexError)
_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
# The footer: offset and size of two blocks as varints, zeros up to 40 bytes,
# and 8 bytes that say what the file is.
_FOOTER, _MAGIC = 48, bytes.fromhex("57fb808b247547db")
_LARGEST_RANK, _LARGEST_SIZE = 254, 2**62
_TRAILER = 5  # behind a block: how it is compressed, and its checksum


def open_checkpoint(prefix: str):
    """Returns TensorFlow's reader of a checkpoint.

    Raises:
        ValueError: the index is damaged. Besides, whatever TensorFlow raises:
            see `UNREADABLE`.
    """
    check_index(prefix)
    return tf.train.load_checkpoint(paths.plain(prefix))


@contextlib.contextmanager
def reading(prefix: str) -> Iterator[None]:
    """Says of a checkpoint that cannot be read that it is damaged."""
    try:
        yield
    except errors.UserError:
        raise
    except UNREADABLE as error:
        message = f"Checkpoint {prefix} is damaged or not there."
        raise errors.UserError(message) from error


def is_readable(prefix: str) -> bool:
    """Says whether all that a checkpoint holds can be read."""
    try:
        reader = open_checkpoint(prefix)
        for name in reader.get_variable_to_shape_map():
            reader.get_tensor(name)
    except UNREADABLE:
        return False
    return True


def names(reader) -> dict[str, str]:
    """Returns {group/name: key}; in a key "/" is ".S" and "." is ".."."""
    return {
        re.sub(
            r"\.[.S]", lambda m: "./"[m[0] == ".S"], key.removesuffix(_SUFFIX)
        ): key
        for key in reader.get_variable_to_shape_map()
        if key.endswith(_SUFFIX) and not key.startswith("save_counter")
    }


def flat(groups: Mapping[str, Variables]) -> dict[str, tf.Variable]:
    return {f"{g}/{n}": v for g, vs in groups.items() for n, v in vs.items()}


def assign(
    reader,
    prefix: str,
    groups: Mapping[str, Variables],
    keys: Mapping[str, str],
    optional: Collection[str] = (),
) -> None:
    """Sets variables; compares and reads everything before it sets anything.

    Args:
        reader: What `open_checkpoint` returned.
        prefix: str. The checkpoint, for messages.
        groups: {group: {name: variable}}.
        keys: {group/name: key}, all of the checkpoint that must be in them.
        optional: Names that need not be among the keys.

    Raises:
        UserError: naming what is missing, not wanted, or of another kind.
    """
    shapes = reader.get_variable_to_shape_map()
    dtypes = reader.get_variable_to_dtype_map()
    expected = {
        name: variable
        for name, variable in flat(groups).items()
        if name in keys or name not in optional
    }
    kinds = {
        name: f"{name} is {dtypes[key].name} and not {variable.dtype.name}"
        for name, key in keys.items()
        if (variable := expected.get(name)) is not None
        and dtypes[key] != variable.dtype
    }
    check_shapes(
        prefix,
        {name: variable.shape for name, variable in expected.items()},
        {name: shapes[key] for name, key in keys.items()},
        kinds,
    )
    # Damage shows only when a tensor is read.
    values = {name: reader.get_tensor(keys[name]) for name in expected}
    for name, variable in expected.items():
        variable.assign(values[name])


def check_shapes(
    prefix: str,
    expected: Mapping[str, Sequence[int]],
    found: Mapping[str, Sequence[int]],
    others: Mapping[str, str] | None = None,
) -> None:
    """Compares what a model needs with what a checkpoint holds.

    Args:
        prefix: str. The checkpoint, for messages.
        expected: {name: shape}.
        found: {name: shape}.
        others: {name: what else is wrong with it}.

    Raises:
        UserError: naming what is missing, not wanted, or of another kind.
    """
    problems = dict(others or {})
    for name in expected.keys() | found.keys():
        if name not in found:
            problems[name] = f"{name} is missing"
        elif name not in expected:
            problems[name] = f"{name} is not wanted"
        elif list(found[name]) != list(expected[name]):
            there, here = list(found[name]), list(expected[name])
            problems[name] = f"{name} has shape {there} and not {here}"
    if problems:
        more = f" and {len(problems) - 5} more" if len(problems) > 5 else ""
        raise errors.UserError(
            f"Checkpoint {prefix} does not fit: "
            f"{'; '.join(sorted(problems.values())[:5])}{more}."
        )


def check_index(prefix: str) -> None:
    """Refuses an index that promises what its files do not hold.

    Raises:
        ValueError: it does, or is damaged.
        OSError: a file is not there.
    """
    path = f"{prefix}.index"
    try:
        _check_entries(prefix, _entries(pathlib.Path(path).read_bytes()))
    except (
        IndexError,
        TypeError,
        ValueError,
        message.DecodeError,
    ) as error:
        raise ValueError(f"{path} is damaged: {error}") from error


def _check_entries(prefix: str, entries: Iterator[tuple[bytes, bytes]]) -> None:
    """Compares every entry of an index with the sizes of the data files."""
    key, content = next(entries, (b"none", b""))
    if key:
        raise ValueError("It has no header.")
    header = tensor_bundle_pb2.BundleHeaderProto.FromString(content)
    count = header.num_shards
    left = {}  # bytes of each data file that are nobody's so far
    for _, content in entries:
        entry = tensor_bundle_pb2.BundleEntryProto.FromString(content)
        shard = entry.shard_id
        if not 0 <= shard < count:
            raise ValueError(f"It names data file {shard} of {count}.")
        if shard not in left:
            path = f"{prefix}.data-{shard:05d}-of-{count:05d}"
            left[shard] = pathlib.Path(path).stat().st_size
        left[shard] -= _size(entry)
        if left[shard] < 0:
            raise ValueError("It promises more than its data files hold.")


def _size(entry: tensor_bundle_pb2.BundleEntryProto) -> int:
    """Returns the bytes that a tensor takes in its data file.

    Raises:
        ValueError: that is not what its shape says.
    """
    sizes = [dim.size for dim in entry.shape.dim]
    # TensorFlow ends the process where a shape is impossible or too large.
    if (
        entry.shape.unknown_rank
        or len(sizes) > _LARGEST_RANK
        or min(sizes, default=0) < 0
        or math.prod(max(size, 1) for size in sizes) > _LARGEST_SIZE
    ):
        raise ValueError("An entry has an impossible shape.")
    dtype = tf.dtypes.as_dtype(entry.dtype)
    # Of a text, at least a byte.
    each = 1 if dtype == tf.string else dtype.size
    size = each * math.prod(sizes)
    fits = size == entry.size or dtype == tf.string and size < entry.size
    if not fits or entry.slices:
        raise ValueError(
            f"An entry promises {size} bytes, and has {entry.size}."
        )
    return entry.size


def _entries(table: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yields the keys and values of a table in their order."""
    if len(table) < _FOOTER or not table.endswith(_MAGIC):
        raise ValueError("It is no index of a checkpoint.")
    _, at = _handle(table, len(table) - _FOOTER)
    place, _ = _handle(table, at)
    end = 0
    for _, handle in _block(table, place):
        place, _ = _handle(handle, 0)
        if place.start < end:
            raise ValueError("Its blocks are not in order.")
        end = place.stop
        yield from _block(table, place)


def _block(table: bytes, place: slice) -> Iterator[tuple[bytes, bytes]]:
    """Yields the keys and values of a block.

    Each key begins with some bytes of the one before it.
    """
    if place.stop + _TRAILER > len(table):
        raise ValueError("It points beyond its end.")
    if table[place.stop]:
        raise ValueError("It is compressed.")
    data = table[place]
    # At its end, the places where whole keys start, 4 bytes each.
    count = int.from_bytes(data[-4:], "little")
    end = len(data) - 4 - 4 * count
    at, key = 0, b""
    while at < end:
        shared, at = _varint(data, at)
        added, at = _varint(data, at)
        size, at = _varint(data, at)
        if shared > len(key) or at + added + size > end:
            raise ValueError("An entry does not end within its block.")
        key = key[:shared] + data[at : at + added]
        yield key, data[at + added : at + added + size]
        at += added + size


def _handle(data: bytes, at: int) -> tuple[slice, int]:
    """Returns the place that is written at a place, and where that ends."""
    offset, at = _varint(data, at)
    size, at = _varint(data, at)
    return slice(offset, offset + size), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Returns the number at a place, seven bits a byte, and where it ends."""
    value = shift = 0
    while data[at] >= 128 and shift < 64:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
    return value | data[at] << shift, at + 1
