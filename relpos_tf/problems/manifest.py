"""The folder of prepared data and its manifest: written whole, then verified.

`manifest.json` has its own checksum, and that of every other file. It is
written last: a folder without it is not prepared.
"""

import functools
import glob
import hashlib
import json
import pathlib
import re
from typing import Any

from relpos_tf import errors
from relpos_tf.utils import checked_json
from relpos_tf.utils import files
from relpos_tf.utils import paths
from relpos_tf.utils import text

MANIFEST = "manifest.json"
_FIELDS = {
    "settings": dict,
    "counts": dict[str, int],
    "cleaning": dict[str, int],
    "corpora": list[dict],
    "files": dict[str, dict],
    "vocab_size": int,
}
_ANEW = (
    "Delete {folder} and run again, with --generate_data, to prepare the data "
    "anew."
)


def write_manifest(folder: pathlib.Path, manifest: dict[str, Any]) -> None:
    """Writes the manifest, which makes the folder complete.

    Args:
        folder: Has all other files.
        manifest: All fields but `files`.
    """
    described = {
        path.name: {"sha256": files.sha256(path)}
        for path in sorted(folder.iterdir())
    }
    content = checked_json.dumps(manifest | {"files": described})
    files.write(folder / MANIFEST, content)


def read_manifest(folder: pathlib.Path) -> dict[str, Any]:
    """Returns the manifest of a prepared folder.

    Raises:
        UserError: it is damaged.
    """
    anew = _ANEW.format(folder=folder)
    return checked_json.read(folder / MANIFEST, _FIELDS, anew)


def checked(
    folder: pathlib.Path, manifest: dict[str, Any], name: str
) -> pathlib.Path:
    """Returns the path of a file, verified by its checksum.

    Raises:
        UserError: it is not the file that was prepared.
    """
    described = manifest["files"].get(name)
    if described is None:
        raise errors.UserError(
            f"{folder / MANIFEST} names no file {name}. "
            f"{_ANEW.format(folder=folder)}"
        )
    path = folder / name
    found = path.is_file() and _sha256(path, path.stat().st_mtime_ns)
    if found != described["sha256"]:
        raise errors.UserError(
            f"{path} is missing, or damaged: it is not the file that was "
            f"prepared. {_ANEW.format(folder=folder)}"
        )
    return path


def lines(
    folder: pathlib.Path, manifest: dict[str, Any], split: str
) -> tuple[list[str], list[str]]:
    """Returns the source lines and the reference lines of a split, verified.

    Raises:
        UserError: a file is not the one that was prepared.
    """
    source, target = (
        list(text.read_lines(checked(folder, manifest, f"{split}.{side}")))
        for side in ("source", "target")
    )
    return source, target


def check_replaceable(folder: pathlib.Path) -> None:
    """Checks that a folder holds only prepared data, or does not exist.

    Raises:
        UserError: it has other files, or its manifest is damaged.
    """
    known = []
    if (folder / MANIFEST).is_file():
        known = [MANIFEST, *read_manifest(folder)["files"]]
    paths.check_replaceable(folder, known, "prepared data")


def folders(data_dir: str | pathlib.Path, name: str) -> list[pathlib.Path]:
    """Returns the folders of prepared data of a problem.

    With the user's own text or vocabulary, their names have checksums.
    """
    data_dir = pathlib.Path(data_dir)
    others = data_dir.glob(f"{glob.escape(name)}-????????")
    found = (data_dir / name, *sorted(others))
    return [folder for folder in found if (folder / MANIFEST).is_file()]


def test_sets(manifest: dict[str, Any]) -> list[str]:
    """Returns the splits that are test sets, the main one first."""
    names = filter(is_test_set, manifest["counts"])
    return sorted(names, key=lambda name: name != "test")


def is_test_set(split: str) -> bool:
    """Returns whether a split is a test set, by its name.

    Example:
    >>> is_test_set("test"), is_test_set("test_2017_flickr"), is_test_set("dev")
    (True, True, False)
    """
    return bool(re.fullmatch(r"test(_\w+)?", split))


def fingerprints(manifest: dict[str, Any]) -> dict[str, str]:
    """Returns a checksum of the prepared files of each split."""
    result = {}
    for split in manifest["counts"]:
        checksums = [
            [name, described["sha256"]]
            for name, described in sorted(manifest["files"].items())
            if name.rpartition(".")[0] == split
        ]
        content = json.dumps(checksums).encode()
        result[split] = hashlib.sha256(content).hexdigest()
    return result


# A file's checksum, computed anew if the file has changed.
_sha256 = functools.lru_cache(lambda path, changed: files.sha256(path))
