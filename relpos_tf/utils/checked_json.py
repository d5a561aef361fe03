"""Checksums: of files, and in JSON objects that bear their own. No TensorFlow.

An object's checksum is the sha256 of its content, so how the file is laid out
does not matter. It stands in the object itself, under the name `sha256`: a
file that is replaced whole can then never disagree with a checksum elsewhere.
"""

import hashlib
import json
import pathlib
import types
import typing
from collections.abc import Mapping
from typing import Any

from relpos_tf import errors

CHECKSUM = "sha256"
_BLOCK = 1 << 20


def dumps(values: dict[str, Any]) -> str:
    """Returns an object as JSON, one field a line, the checksum last."""
    # As JSON gives it back: tuples, say, are lists then.
    values = json.loads(json.dumps(values))
    return json.dumps(values | {CHECKSUM: checksum(values)}, indent=2) + "\n"


def loads(
    content: bytes | str, kinds: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Reads what `dumps` wrote, and what was written before there were sums.

    Args:
        content: bytes or str. The file's content.
        kinds: See `check`. None: any.

    Returns:
        The object without its checksum.

    Raises:
        UserError: it is no JSON object, not the one that was written, or has
            a field of another type.
    """
    try:
        values = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise errors.UserError(f"expected JSON ({error}).") from error
    if not isinstance(values, dict):
        raise errors.UserError(
            f"expected a JSON object. Received: {content[:40]!r}."
        )
    expected = values.pop(CHECKSUM, None)
    if expected is not None and expected != checksum(values):
        raise errors.UserError(
            "its content does not fit its checksum. Put the original back; "
            f'if you changed it on purpose, remove its field "{CHECKSUM}".'
        )
    check(values, kinds or {})
    return values


def check(values: Mapping[str, Any], kinds: Mapping[str, Any]) -> None:
    """Compares the types of an object's fields with those expected.

    Args:
        values: What a file said. A field that is not there is not missed.
        kinds: By name, a type such as `str`, `int | None`, `dict[str, int]`
            or `list[str]`. A bool is no int; an int is a float.

    Raises:
        UserError: a field is of another type.

    Example:

    >>> check({"steps": 7}, {"steps": int, "name": str})
    """
    for name, kind in kinds.items():
        if name in values and not _is(values[name], kind):
            words = getattr(kind, "__name__", None)
            if words is None or typing.get_origin(kind):
                words = str(kind)
            raise errors.UserError(
                f"its field `{name}` must be of type {words}. "
                f"Received: {json.dumps(values[name])[:40]}."
            )


def _is(value: Any, kind: Any) -> bool:
    """Says whether a value of JSON's is of a type."""
    if isinstance(kind, types.UnionType):
        return any(_is(value, one) for one in typing.get_args(kind))
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is dict:
        return type(value) is dict and all(
            _is(one, inner[1]) for one in value.values()
        )
    if origin is list:
        return type(value) is list and all(_is(one, inner[0]) for one in value)
    if kind is float:
        return type(value) in (int, float)
    return type(value) is kind


def file_sha256(path: str | pathlib.Path) -> str:
    """Returns a file's checksum, in hexadecimal."""
    content = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(_BLOCK):
            content.update(block)
    return content.hexdigest()


def checksum(values: dict[str, Any]) -> str:
    """Returns the sha256 of an object's content, in hexadecimal."""
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
