"""The folder of prepared data and its manifest: written whole, then verified.

The manifest has its own checksum and the checksums of all other files. Record
files, which may be large, are verified here by size only: each record has a
checksum of its own.
"""

import contextlib
import errno
import glob
import hashlib
import itertools
import json
import logging
import os
import pathlib
import re
import shutil
import tempfile
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

from relpos_tf import errors
from relpos_tf.utils import checked_json
from relpos_tf.utils import files
from relpos_tf.utils import locks
from relpos_tf.utils import system_errors

MANIFEST = "manifest.json"
# The folder of what a preparation has finished, while it goes on.
PARTS = "parts"
# The empty file that says, also where there are no locks, that no process works
# in such a folder any more.
ENDED = "ended"
_WORTH_KEEPING = 4  # Fewer parts are made again in seconds.
# Errors of renaming a folder over one that is not empty.
_NOT_EMPTY = frozenset({errno.ENOTEMPTY, errno.EEXIST})
_SHOWN = 5  # most names in a message
_FIELDS = {
    "settings": dict,
    "counts": dict[str, int],
    "files": dict,
    "vocab_size": int,
}
# Not in earlier versions; `corpora` only where they are kept apart.
_OPTIONAL = {"lengths": dict[str, int], "corpora": list}
_RECORDS = r"-\d{5}-of-\d{5}\.tfrecord"
_LINES = r"\.(source|target)"
_TEST_SET = r"test(_\w+)?"
_ANEW = "Prepare the data again with --generate_data."
_log = logging.getLogger("relpos_tf")


@contextlib.contextmanager
def new_folder(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields a new folder that replaces `folder` at the end of the block.

    It does not if the block raises, or if `folder` has the same files already.
    After any error, and after Ctrl-C, a new folder with several parts stays
    where it is, for the next preparation.

    Args:
        folder: The final folder, or a link to it.

    Yields:
        The new folder, with what `unfinished_folder` puts there.

    Raises:
        UserError: see `unfinished_folder`, `check_replaceable` and
            `without_readers`.
    """
    with unfinished_folder(folder) as partial:
        is_kept = False
        try:
            yield partial
            _put(partial, folder.resolve())
        except BaseException:
            # The next process goes on with the parts, also those of others.
            made = [*(partial / PARTS).glob("part-*")]
            is_kept = len(made) >= _WORTH_KEEPING
            raise
        finally:
            if not is_kept:
                shutil.rmtree(partial, ignore_errors=True)


@contextlib.contextmanager
def unfinished_folder(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields a new folder for work on `folder`, and leaves it there.

    Remains of killed processes are removed. Their parts are kept.

    Args:
        folder: The final folder, or a link to it.

    Yields:
        The new folder. It has a folder `PARTS` with the finished parts of
        processes that have worked on `folder` and ended before.

    Raises:
        UserError: the disk is full.
    """
    folder = folder.resolve()
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Too long to be the name of a user's folder by chance.
    prefix = f".{folder.name}.preparing."
    partial = _make_locked(prefix, folder.parent)
    try:
        (partial / PARTS).mkdir()
        _remove_abandoned(folder, prefix, partial / PARTS)
        with system_errors.filling(
            partial, "Make room and run again: finished parts are kept."
        ):
            yield partial
    finally:
        if partial.is_dir():
            with contextlib.suppress(OSError):
                (partial / ENDED).touch()
        locks.release(partial)


def check_replaceable(folder: pathlib.Path) -> None:
    """Checks that a folder holds only prepared data, or does not exist.

    Raises:
        UserError: it has other files, or its manifest is damaged.
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
        if not (path.name in known or path.name.startswith(files.INDEX))
        or (path.is_dir() and not path.is_symlink())
    )
    if others:
        raise errors.UserError(
            f"Expected only prepared data in {folder}, which new data are to "
            f"replace. Received: it also has {_listed(others)}. "
            "Move them elsewhere, or name another --data_dir."
        )


@contextlib.contextmanager
def without_readers(folder: pathlib.Path) -> Iterator[None]:
    """Excludes other readers of a folder during the block.

    Raises:
        UserError: another process reads it.
    """
    with locks.try_exclusive(folder) as is_exclusive:
        if is_exclusive is False:
            raise errors.UserError(
                f"Another process is training on the data in {folder}, which "
                "the new data would replace. Wait for it, or name another "
                "--data_dir."
            )
        yield


def write_manifest(folder: pathlib.Path, manifest: dict[str, Any]) -> None:
    """Writes the manifest, which makes the folder complete."""
    files.write(folder / MANIFEST, checked_json.dumps(manifest))


def read_manifest(folder: pathlib.Path) -> dict[str, Any]:
    """Returns the manifest of a prepared folder.

    Raises:
        UserError: it is missing or damaged.
    """
    path = folder / MANIFEST
    try:
        manifest = checked_json.loads(path.read_bytes(), _FIELDS | _OPTIONAL)
        for key in _FIELDS:
            if key not in manifest:
                raise errors.UserError(f"it has no {key}.")
        if "train" not in manifest["counts"]:
            raise errors.UserError("its `counts` have no train.")
        if not all(n.isdecimal() for n in manifest.get("lengths", {})):
            raise errors.UserError("its `lengths` are not all numbers.")
        for described in manifest["files"].values():
            if isinstance(described, dict):  # `_described` refuses others
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
        UserError: there is none, or the size of one has changed.
    """
    # Names with folders, as only an attacker would write, do not match.
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


class TrainingFiles(NamedTuple):
    """The training files of one corpus.

    Attributes:
        paths: Their paths.
        pairs: int. The pairs in them.
        weight: float. The corpus' share of the training pairs, up to a factor.
    """

    paths: list[str]
    pairs: int
    weight: float


def training_files(
    paths: Sequence[str],
    manifest: dict[str, Any],
    weights: Sequence[float],
) -> list[TrainingFiles]:
    """Returns the training files of each corpus.

    Args:
        paths: All training files, sorted.
        manifest: Theirs.
        weights: One for each corpus; none: by its size.
    """
    corpora = manifest.get("corpora") or [
        {"pairs": manifest["counts"]["train"], "files": len(paths)}
    ]
    files_left = iter(paths)
    weights = weights or [corpus["pairs"] for corpus in corpora]
    return [
        TrainingFiles(
            list(itertools.islice(files_left, corpus["files"])),
            corpus["pairs"],
            float(weight),
        )
        for corpus, weight in zip(corpora, weights, strict=True)
    ]


def checked(
    folder: pathlib.Path, manifest: dict[str, Any], name: str
) -> pathlib.Path:
    """Returns the path of a file, verified by checksum.

    Raises:
        UserError: it is missing, or its checksum has changed.
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
    """Returns the existing folders that may hold the data of a problem.

    With the user's own text or vocabulary, their names have checksums.
    """
    data_dir = pathlib.Path(data_dir)
    others = data_dir.glob(f"{glob.escape(name)}-????????")
    return [f for f in (data_dir / name, *sorted(others)) if f.is_dir()]


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
    return bool(re.fullmatch(_TEST_SET, split))


def fingerprints(manifest: dict[str, Any]) -> dict[str, str]:
    """Returns a checksum of the prepared files of each split."""
    result = {}
    for split in manifest["counts"]:
        names = _names(manifest, f"{re.escape(split)}({_RECORDS}|{_LINES})")
        described = {name: manifest["files"][name] for name in names}
        checksums = [
            [name, file.get("sha256_unmarked", file["sha256"])]
            for name, file in described.items()
        ]
        text = json.dumps(checksums)
        result[split] = hashlib.sha256(text.encode()).hexdigest()
    return result


def longer_than(manifest: dict[str, Any], max_length: int) -> int | None:
    """Returns the number of training pairs with more tokens on a side.

    None for folders of earlier versions, which did not count them.
    """
    if "lengths" not in manifest:
        return None
    return sum(
        number
        for length, number in manifest["lengths"].items()
        if int(length) > max_length
    )


def _remove_abandoned(
    folder: pathlib.Path, prefix: str, parts: pathlib.Path
) -> None:
    """Removes folders of killed processes, or puts a replaced one back.

    Args:
        folder: The final folder.
        prefix: str. How their names begin.
        parts: The folder that gets their finished parts.
    """
    unknown = []
    for path in folder.parent.glob(f"{glob.escape(prefix)}????????*"):
        if path.name == parts.parent.name:
            continue
        with (
            contextlib.suppress(FileNotFoundError),
            locks.try_exclusive(path) as is_exclusive,
        ):
            if is_exclusive is None and (path / ENDED).is_file():
                is_exclusive = True
            # False: its process lives. None, without locks: it may live.
            if not is_exclusive:
                if is_exclusive is None and path.suffix != files.OLD:
                    unknown.append(path.name)
                continue
            if path.suffix == files.OLD and not folder.exists():
                os.rename(path, folder)
            else:
                for part in (path / PARTS).glob("*"):
                    if not part.match(f"*{files.PART}"):
                        os.replace(part, parts / part.name)
                shutil.rmtree(path, ignore_errors=True)
    if unknown:
        _log.warning(
            "The file system of %s has no locks, so it is not known whether "
            "other processes still work in %s there. Finished parts in them "
            "are not used. Where a process was killed, make an empty file "
            "`%s` in its folder, and the next preparation uses them.",
            folder.parent,
            _listed(unknown),
            ENDED,
        )


def _make_locked(prefix: str, parent: pathlib.Path) -> pathlib.Path:
    """Makes a new folder that no other process removes."""
    while True:
        path = pathlib.Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        # Before it is locked, another process may have found it abandoned.
        with contextlib.suppress(errors.UserError):
            locks.acquire_exclusive(path)
            return path


def _put(partial: pathlib.Path, folder: pathlib.Path) -> None:
    """Puts a complete folder in place, unless the same one is there.

    Its parts are removed once nothing else can be refused.
    """
    partial.chmod(0o755)  # mkdtemp excludes other users
    if not folder.exists() or not any(folder.iterdir()):
        shutil.rmtree(partial / PARTS)
        try:
            os.rename(partial, folder)  # over nothing, or an empty folder
            locks.release(partial)
            return
        except OSError as error:
            if error.errno not in _NOT_EMPTY:
                raise
    if _is_same(partial, folder):
        return
    with without_readers(folder):
        # A file may have been added since the first check.
        check_replaceable(folder)
        shutil.rmtree(partial / PARTS, ignore_errors=True)
        files.rename_folder(partial, folder)
        locks.release(partial)  # so that this process can lock it again


def _is_same(partial: pathlib.Path, folder: pathlib.Path) -> bool:
    """Returns whether two prepared folders have the same, undamaged files."""
    if not (folder / MANIFEST).is_file():
        return False
    new, old = read_manifest(partial), read_manifest(folder)
    return all(new[key] == old[key] for key in _FIELDS) and all(
        (folder / name).is_file()
        and files.sha256(folder / name) == known["sha256"]
        for name, known in new["files"].items()
    )


def _listed(names: Sequence[str]) -> str:
    """Returns names in a message, the first ones if there are many."""
    listed = ", ".join(names[:_SHOWN])
    if len(names) > _SHOWN:
        listed += f" and {len(names) - _SHOWN} more"
    return listed


def _names(manifest: dict[str, Any], pattern: str) -> list[str]:
    """Returns the sorted names of files that match a pattern."""
    return sorted(n for n in manifest["files"] if re.fullmatch(pattern, n))


def _described(
    manifest: dict[str, Any], path: pathlib.Path
) -> dict[str, int | str]:
    """Returns the manifest's entry of a file: `bytes` and `sha256`."""
    known = manifest["files"].get(path.name)
    if not isinstance(known, dict) or not {"bytes", "sha256"} <= known.keys():
        raise errors.UserError(
            f"{path.parent / MANIFEST} is damaged: it does not describe "
            f"{path.name}. Move {path.parent} elsewhere, or delete it, and run "
            "with --generate_data."
        )
    return known


def _received(path: pathlib.Path, size: int | None) -> str:
    """Returns the size of a damaged record file, and its whole records."""
    if size is None:
        return "no file"
    # TensorFlow takes seconds to import.
    from relpos_tf.data import records

    try:
        whole = records.count_records([path])
    except errors.UserError as error:
        return f"{size}. {str(error).removesuffix('.')}"
    return f"{size}, in {whole} records"
