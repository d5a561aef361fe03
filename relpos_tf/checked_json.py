"""Checksums: of files, and in JSON objects that bear their own. No TensorFlow.

An object's checksum is the sha256 of its content, so how the file is laid out
does not matter. It stands in the object itself, under the name `sha256`: a
file that is replaced whole can then never disagree with a checksum elsewhere.
"""

import hashlib
import json
import pathlib
from typing import Any

from relpos_tf import errors

CHECKSUM = "sha256"
_BLOCK = 1 << 20


def dumps(values: dict[str, Any]) -> str:
    """Returns an object as JSON, one field a line, the checksum last."""
    # As JSON gives it back: tuples, say, are lists then.
    values = json.loads(json.dumps(values))
    return json.dumps(values | {CHECKSUM: checksum(values)}, indent=2) + "\n"


def loads(content: bytes | str) -> dict[str, Any]:
    """Reads what `dumps` wrote, and what was written before there were sums.

    Args:
        content: bytes or str. The file's content.

    Returns:
        The object without its checksum.

    Raises:
        UserError: it is no JSON object, or not the one that was written.
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
    return values


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
