"""JSON objects that contain their own checksum, and types of their fields.

The checksum is the sha256 of the object's content, independent of the layout
of the file. It is stored in the object itself, in the field `sha256`, so that
object and checksum are always replaced together.
"""

import hashlib
import json
import types
import typing
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any

from relpos_tf import errors

CHECKSUM = "sha256"


def dumps(values: dict[str, Any]) -> str:
    """Returns an object as JSON, one field a line, the checksum last."""
    # As JSON restores it: tuples become lists.
    values = json.loads(json.dumps(values))
    return json.dumps(values | {CHECKSUM: checksum(values)}, indent=2) + "\n"


def loads(
    content: bytes | str,
    field_types: Mapping[str, Any] | None = None,
    required: Iterable[str] = (),
) -> dict[str, Any]:
    """Reads an object that `dumps` wrote, or one without a checksum.

    Args:
        content: bytes or str. The file's content.
        field_types: The types of fields, as for `check`. None: any.
        required: The names of the fields that it must have.

    Returns:
        The object without its checksum.

    Raises:
        UserError: the content is not a JSON object, does not fit its checksum,
            lacks a field, or has a field of another type.
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
    check(values, field_types or {}, required)
    return values


def check(
    values: Mapping[str, Any],
    field_types: Mapping[str, Any],
    required: Iterable[str] = (),
) -> None:
    """Checks that an object has some fields, and the types of its fields.

    Args:
        values: The object.
        field_types: By name, a type such as `str`, `int | None`,
            `dict[str, int]` or `list[str]`. A bool is no int; an int is a
            float.
        required: The names of the fields that it must have.

    Raises:
        UserError: a field is missing or of another type.

    Example:

    >>> check({"steps": 7}, {"steps": int, "name": str}, ["steps"])
    """
    if missing := sorted(set(required) - values.keys()):
        raise errors.UserError(
            f"expected the fields {', '.join(missing)}. "
            f"Received: {', '.join(values) or 'none'}."
        )
    for name, kind in field_types.items():
        if name in values and not _has_type(values[name], kind):
            is_class = isinstance(kind, type) and not typing.get_origin(kind)
            raise errors.UserError(
                f"its field `{name}` must be of type "
                f"{kind.__name__ if is_class else kind}. "
                f"Received: {json.dumps(values[name])[:40]}."
            )


def checksum(values: dict[str, Any]) -> str:
    """Returns the sha256 of an object's content, in hexadecimal."""
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _has_type(value: Any, kind: Any) -> bool:
    """Returns whether a JSON value is of a type."""
    arguments = typing.get_args(kind)
    if isinstance(kind, types.UnionType):
        return any(_has_type(value, option) for option in arguments)
    if origin := typing.get_origin(kind):  # dict or list
        elements = value.values() if isinstance(value, dict) else value
        return type(value) is origin and all(
            _has_type(element, arguments[-1]) for element in elements
        )
    return type(value) in ((int, float) if kind is float else (kind,))
