"""A prepared folder: written whole, and not believed unchecked.

The manifest bears its own checksum, and has those of all other files. Record
files, which may be large, are only compared by size here: every record has a
checksum of its own.
"""

import contextlib
import errno
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

from relpos_tf import errors
from relpos_tf.utils import checked_json
from relpos_tf.utils import files
from relpos_tf.utils import locks

MANIFEST = "manifest.json"
# Of a folder that another one is about to replace.
_OLD = ".old"
# What a folder ends in that is to be renamed over one with files.
_TAKEN = frozenset({errno.ENOTEMPTY, errno.EEXIST})
_SHOWN = 5  # most names in a message
_FIELDS = {
    "settings": dict,
    "counts": dict[str, int],
    "files": dict,
    "vocab_size": int,
}
_RECORDS = r"-\d{5}-of-\d{5}\.tfrecord"
_LINES = r"\.(source|target)"
_ANEW = "Prepare the data again with --generate_data."


@contextlib.contextmanager
def new_folder(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields a folder to write, which replaces `folder` if all goes well.

    It does not where `folder` has the same files already. What killed
    processes have left of theirs is removed.

    Args:
        folder: Where it goes, or a link to there.

    Raises:
        UserError: see `check_ours` and `free`.
    """
    folder = folder.resolve()
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Of a length that nobody's own folder has by chance.
    prefix = f".{folder.name}.preparing."
    _remove_abandoned(folder, prefix)
    partial = _make_claimed(prefix, folder.parent)
    try:
        yield partial
        # mkdtemp lets nobody else in.
        partial.chmod(0o755)
        _put(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        locks.release(partial)


def check_ours(folder: pathlib.Path) -> None:
    """Checks that a folder has nothing but what was prepared there, if that.

    Raises:
        UserError: it has something else, or its manifest is damaged.
    """
    if not folder.exists():
        return
    if not folder.is_dir():
        raise errors.UserError(
            f"Expected {folder} to be a folder. Received: a file. Move it "
            "elsewhere, or name another --data_dir."
        )
    known = set()
    if (folder / MANIFEST).is_file():
        known = {MANIFEST, *read_manifest(folder)["files"]}
    others = sorted(
        path.name
        for path in folder.iterdir()
        if path.name not in known or (path.is_dir() and not path.is_symlink())
    )
    if others:
        shown = others if len(others) <= _SHOWN else others[: _SHOWN - 1]
        if len(others) > len(shown):
            shown.append(f"{len(others) - len(shown)} more")
        listed = " and ".join(filter(None, [", ".join(shown[:-1]), shown[-1]]))
        raise errors.UserError(
            f"Expected nothing in {folder} but prepared data, as others are to "
            f"replace them. Received: it has {listed}, which are not ours to "
            "remove. Move them elsewhere, or name another --data_dir."
        )


@contextlib.contextmanager
def free(folder: pathlib.Path) -> Iterator[None]:
    """Has no other process read a folder in the block, see `locks`.

    Raises:
        UserError: one does.
    """
    with locks.try_exclusive(folder) as is_sole:
        if is_sole is False:
            raise errors.UserError(
                f"Another process is training on the data in {folder}, which "
                "those prepared now would replace. Wait for it, or name "
                "another --data_dir."
            )
        yield


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
        manifest = checked_json.loads(path.read_bytes(), _FIELDS)
        for key in _FIELDS:
            if key not in manifest:
                raise errors.UserError(f"it has no {key}.")
        if "train" not in manifest["counts"]:
            raise errors.UserError("its `counts` have no train.")
        lengths = {"lengths": dict[str, int]}
        checked_json.check(manifest, lengths)
        if not all(n.isdecimal() for n in manifest.get("lengths", {})):
            raise errors.UserError("its `lengths` are not all numbers.")
        for described in manifest["files"].values():
            if isinstance(described, dict):  # else refused where it is used
                checked_json.check(described, {"bytes": int, "sha256": str})
    except (OSError, ValueError) as error:
        raise errors.UserError(
            f"{path} is damaged: {error} Move {folder} elsewhere, or delete "
            "it, and run with --generate_data."
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
    if not path.is_file() or files.sha256(path) != expected:
        state = "damaged" if path.is_file() else "missing"
        raise errors.UserError(
            f"{path} is {state}: expected the file that was prepared, of "
            f"sha256 {expected[:8]}... {_ANEW}"
        )
    return path


def folders(data_dir: str | pathlib.Path, name: str) -> list[pathlib.Path]:
    """Returns the folders that are there and may have the data of a problem.

    With text or a vocabulary of one's own, their names have checksums.
    """
    place = pathlib.Path(data_dir)
    others = place.glob(f"{glob.escape(name)}-????????")
    return [f for f in (place / name, *sorted(others)) if f.is_dir()]


def fingerprints(manifest: dict[str, Any]) -> dict[str, str]:
    """Returns by split what tells its prepared files from all others."""
    found = {}
    for split in manifest["counts"]:
        names = _names(manifest, f"{re.escape(split)}({_RECORDS}|{_LINES})")
        described = {name: manifest["files"][name] for name in names}
        known = [
            [name, file.get("sha256_unmarked", file["sha256"])]
            for name, file in described.items()
        ]
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


def _remove_abandoned(folder: pathlib.Path, prefix: str) -> None:
    """Removes what killed processes have left, or puts it back in place."""
    for path in folder.parent.glob(f"{glob.escape(prefix)}????????*"):
        # Where locks are unknown, a living process may be at work there.
        with (
            contextlib.suppress(FileNotFoundError),
            locks.try_exclusive(path) as sole,
        ):
            if sole and path.suffix == _OLD and not folder.exists():
                os.rename(path, folder)
            elif sole:
                shutil.rmtree(path, ignore_errors=True)


def _make_claimed(prefix: str, parent: pathlib.Path) -> pathlib.Path:
    """Makes a new folder that no other process removes."""
    while True:
        path = pathlib.Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        # Between the two another process may have taken it for abandoned.
        with contextlib.suppress(errors.UserError):
            locks.acquire_exclusive(path)
            return path


def _put(partial: pathlib.Path, folder: pathlib.Path) -> None:
    """Puts a complete folder in place, unless the same one is there."""
    try:
        os.rename(partial, folder)  # over nothing, or an empty folder
        locks.release(partial)
        return
    except OSError as error:
        if error.errno not in _TAKEN:
            raise
    if _is_same(partial, folder):
        return
    old = partial.with_name(partial.name + _OLD)
    with free(folder):
        check_ours(folder)  # It may have got something since.
        try:
            os.rename(folder, old)
            os.rename(partial, folder)
            locks.release(partial)  # so that this process can hold it again
        except BaseException:
            if old.exists() and not folder.exists():
                os.rename(old, folder)
            raise
    shutil.rmtree(old, ignore_errors=True)


def _is_same(partial: pathlib.Path, folder: pathlib.Path) -> bool:
    """Says whether two folders have the same files, as prepared."""
    if not (folder / MANIFEST).is_file():
        return False
    new, old = read_manifest(partial), read_manifest(folder)
    return all(new[key] == old[key] for key in _FIELDS) and all(
        (folder / name).is_file()
        and files.sha256(folder / name) == known["sha256"]
        for name, known in new["files"].items()
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
            f"{path.name}. Move {path.parent} elsewhere, or delete it, and run "
            "with --generate_data."
        )
    return known


def _received(path: pathlib.Path, size: int | None) -> str:
    """Says how a record file differs from the one that was written."""
    if size is None:
        return "no file"
    # TensorFlow takes seconds to import.
    from relpos_tf.data import records

    try:
        whole = records.count_records([path])
    except errors.UserError as error:
        return f"{size}. {str(error).removesuffix('.')}"
    return f"{size}, in {whole} records"
