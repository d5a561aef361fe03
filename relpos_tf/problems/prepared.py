"""A prepared folder: written whole, and not believed unchecked.

The manifest bears its own checksum, and has those of all other files. Record
files, which may be large, are only compared by size here: every record has a
checksum of its own.
"""

import contextlib
import glob
import hashlib
import json
import os
import pathlib
import re
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

from relpos_tf import checked_json
from relpos_tf import claims
from relpos_tf import errors

MANIFEST = "manifest.json"
_KEYS = {"settings": dict, "counts": dict, "files": dict, "vocab_size": int}
_RECORDS = r"-\d{5}-of-\d{5}\.tfrecord"
_LINES = r"\.(source|target)"
_ANEW = "Prepare the data again with --generate_data."


@contextlib.contextmanager
def new_folder(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields a folder to write, which replaces `folder` if all goes well.

    What killed processes have left of theirs is removed.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{folder.name}."
    for old in folder.parent.glob(f"{glob.escape(prefix)}????????"):
        if not claims.is_claimed(old):
            shutil.rmtree(old, ignore_errors=True)
    partial = pathlib.Path(tempfile.mkdtemp(prefix=prefix, dir=folder.parent))
    try:
        claims.claim(partial)
        yield partial
        # mkdtemp lets nobody else in.
        partial.chmod(0o755)
        if folder.exists():
            shutil.rmtree(folder)
        os.rename(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def write_manifest(folder: pathlib.Path, manifest: dict[str, Any]) -> None:
    """Writes the manifest, which makes the folder complete."""
    path = folder / MANIFEST
    path.write_text(checked_json.dumps(manifest), encoding="utf-8")


def read_manifest(folder: pathlib.Path) -> dict[str, Any]:
    """Returns the manifest of a prepared folder.

    Raises:
        UserError: it is not there, or damaged.
    """
    path = folder / MANIFEST
    try:
        manifest = checked_json.loads(path.read_bytes())
        for key, kind in _KEYS.items():
            if not isinstance(manifest.get(key), kind):
                raise errors.UserError(f"it has no {key}.")
    except (OSError, ValueError) as error:
        raise errors.UserError(
            f"{path} is damaged: {error} Delete {folder} and run with "
            "--generate_data."
        ) from error
    return manifest


def record_files(
    folder: pathlib.Path, manifest: dict[str, Any], split: str
) -> list[str]:
    """Returns the paths of a split's record files, checked by size.

    Raises:
        UserError: there is none, or one is not as it was written.
    """
    # A name with folders in it, as nobody but a stranger would write, is none.
    names = _names(manifest, f"{re.escape(split)}{_RECORDS}")
    if not names:
        raise errors.UserError(f"{folder} has no records of split {split!r}.")
    paths = [folder / name for name in names]
    for path in paths:
        expected = _described(manifest, path)["bytes"]
        size = path.stat().st_size if path.is_file() else None
        if size != expected:
            raise errors.UserError(
                f"The TFRecord file {path} is damaged: expected {expected} "
                f"bytes. Received: {_received(path, size)}. {_ANEW}"
            )
    return [str(path) for path in paths]


def checked(
    folder: pathlib.Path, manifest: dict[str, Any], name: str
) -> pathlib.Path:
    """Returns the path of a file, compared by checksum.

    Raises:
        UserError: it is not as it was written.
    """
    path = folder / name
    expected = _described(manifest, path)["sha256"]
    if not path.is_file() or checked_json.file_sha256(path) != expected:
        state = "damaged" if path.is_file() else "missing"
        raise errors.UserError(
            f"{path} is {state}: expected the file that was prepared, of "
            f"sha256 {expected[:8]}... {_ANEW}"
        )
    return path


def fingerprints(manifest: dict[str, Any]) -> dict[str, str]:
    """Returns by split what tells its prepared files from all others."""
    found = {}
    for split in manifest["counts"]:
        names = _names(manifest, f"{re.escape(split)}({_RECORDS}|{_LINES})")
        known = [[name, manifest["files"][name]["sha256"]] for name in names]
        text = json.dumps(known)
        found[split] = hashlib.sha256(text.encode()).hexdigest()
    return found


def longer_than(manifest: dict[str, Any], max_length: int) -> int | None:
    """Returns the number of training pairs with more tokens on a side.

    None where it was not counted, in folders of earlier versions.
    """
    if "lengths" not in manifest:
        return None
    return sum(
        number
        for length, number in manifest["lengths"].items()
        if int(length) > max_length
    )


def _names(manifest: dict[str, Any], pattern: str) -> list[str]:
    """Returns the names of files that a pattern describes, sorted."""
    return sorted(n for n in manifest["files"] if re.fullmatch(pattern, n))


def _described(
    manifest: dict[str, Any], path: pathlib.Path
) -> dict[str, int | str]:
    """Returns what the manifest says of a file: `bytes` and `sha256`."""
    known = manifest["files"].get(path.name)
    if not isinstance(known, dict) or not {"bytes", "sha256"} <= known.keys():
        raise errors.UserError(
            f"{path.parent / MANIFEST} is damaged: it does not describe "
            f"{path.name}. Delete {path.parent} and run with --generate_data."
        )
    return known


def _received(path: pathlib.Path, size: int | None) -> str:
    """Says how a record file differs from the one that was written."""
    if size is None:
        return "no file"
    # TensorFlow takes seconds to import.
    from relpos_tf import records

    try:
        whole = records.count_records([path])
    except errors.UserError as error:
        return f"{size}. {str(error).removesuffix('.')}"
    return f"{size}, in {whole} records"
