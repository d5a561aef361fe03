"""Reading TensorFlow's checkpoint files, whatever has happened to them.

TensorFlow checks the bytes of an index when it opens it, those of a tensor
when it reads it. What it does not check is how much the last 48 bytes of the
index tell it to read: a damaged number there would ask for any amount of
memory.
"""

import contextlib
import os
import re
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping

import tensorflow as tf

from relpos_tf import errors
from relpos_tf import paths

Variables = Mapping[str, tf.Variable]
UNREADABLE = (tf.errors.OpError, OSError, ValueError, RuntimeError, IndexError)
_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
# The footer: offset and size of two blocks as varints, zeros up to 40 bytes,
# and 8 bytes that say what the file is.
_FOOTER, _MAGIC = 48, bytes.fromhex("57fb808b247547db")


def open_checkpoint(prefix: str):
    """Returns TensorFlow's reader of a checkpoint.

    Raises:
        ValueError: the index is damaged. Besides, whatever TensorFlow raises:
            see `UNREADABLE`.
    """
    _check_footer(f"{prefix}.index")
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
    problems = [f"{n} is missing" for n in expected.keys() - keys.keys()]
    problems += [f"{n} is not wanted" for n in keys.keys() - expected.keys()]
    for name in expected.keys() & keys.keys():
        key, variable = keys[name], expected[name]
        there, here = shapes[key], variable.shape.as_list()
        if list(there) != here:
            problems.append(f"{name} has shape {there} and not {here}")
        elif dtypes[key] != variable.dtype:
            kind = variable.dtype.name
            problems.append(f"{name} is {dtypes[key].name} and not {kind}")
    if problems:
        more = f" and {len(problems) - 5} more" if len(problems) > 5 else ""
        raise errors.UserError(
            f"Checkpoint {prefix} does not fit: "
            f"{'; '.join(sorted(problems)[:5])}{more}."
        )
    # Damage shows only when a tensor is read.
    values = {name: reader.get_tensor(keys[name]) for name in expected}
    for name, variable in expected.items():
        variable.assign(values[name])


def _check_footer(path: str) -> None:
    """Refuses an index whose blocks would lie outside the file."""
    with open(path, "rb") as file:
        length = file.seek(0, os.SEEK_END)
        file.seek(max(length - _FOOTER, 0))
        footer = file.read()
    if len(footer) < _FOOTER or not footer.endswith(_MAGIC):
        raise ValueError(f"{path} is no index of a checkpoint.")
    at = 0
    for _ in range(2):
        offset, at = _varint(footer, at)
        size, at = _varint(footer, at)
        if offset + size > length:
            raise ValueError(f"{path} points beyond its end.")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Returns the number at a place, seven bits a byte, and where it ends."""
    value = shift = 0
    while data[at] >= 128:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
    return value | data[at] << shift, at + 1
