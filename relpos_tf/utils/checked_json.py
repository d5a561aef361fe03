"""JSON objects that contain their own checksum, and types of their fields.

The checksum is the sha256 of the object's content, independent of the layout
of the file. It is stored in the object itself, in the field `sha256`, so that
object and checksum are always replaced together.
"""

import hashlib
import json
import pathlib
import types
from collections.abc import Mapping
from typing import Any

from relpos_tf import errors
from relpos_tf import fields
from relpos_tf.utils import files

CHECKSUM = "sha256"


def dumps(values: dict[str, Any]) -> str:
    """Returns an object as JSON, one field a line, the checksum last."""
    # As JSON restores it: tuples become lists.
    values = json.loads(json.dumps(values))
    return json.dumps(values | {CHECKSUM: checksum(values)}, indent=2) + "\n"


def loads(
    content: bytes | str,
    field_types: Mapping[str, Any] = types.MappingProxyType({}),
) -> dict[str, Any]:
    """Reads an object that `dumps` wrote, or one without a checksum.

    Args:
        content: bytes or str. The file's content.
        field_types: By name of a field, a type as for `fields.check_value`.
            The object may have further fields.

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
    if missing := sorted(field_types.keys() - values.keys()):
        raise errors.UserError(
            f"expected the fields {', '.join(missing)}. "
            f"Received: {', '.join(values) or 'none'}."
        )
    for name, kind in field_types.items():
        fields.check_value(name, values[name], kind)
    return values


def read(
    path: pathlib.Path,
    field_types: Mapping[str, Any] = types.MappingProxyType({}),
    advice: str = "",
) -> dict[str, Any]:
    """Reads the object of a file, see `loads`.

    Args:
        path: The file.
        field_types: As for `loads`.
        advice: str. What to do if the file is damaged.

    Raises:
        UserError: it is damaged.
        OSError: it cannot be read.
    """
    try:
        return loads(files.regular(path).read_bytes(), field_types)
    except errors.UserError as error:
        reason = f"{path} is damaged: {error} {advice}"
        raise errors.UserError(reason.rstrip()) from error


def checksum(values: dict[str, Any]) -> str:
    """Returns the sha256 of an object's content, in hexadecimal."""
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
