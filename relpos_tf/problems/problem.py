"""A problem, and how it becomes files to train on.

A problem is a value: names, sizes, and one function per split that opens its
pairs of lines. `Problem.prepare` makes a folder `DATA_DIR/NAME` of them:

    tokenizer.model                the shared vocabulary, from the training text
    train-00000-of-00004.tfrecord  pairs of ids, shuffled
    dev-00000-of-00001.tfrecord    pairs of ids, in the order of the lines
    dev.source, dev.target         these lines, for BLEU
    test-..., test.source, ...     the same for the test set
    test_NAME-..., ...             the same for each further test set
    manifest.json                  counts, settings, sizes and checksums

The folder appears complete or not at all. It replaces no folder that another
process reads, or that holds files of another origin. A problem with `settings`
(such as the user's own text) or with a given tokenizer has a folder for each
of them, named `DATA_DIR/NAME-` and a checksum.
"""

import collections
import dataclasses
import importlib.metadata
import json
import pathlib
import shutil
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

from relpos_tf import errors
from relpos_tf.problems import cleaning
from relpos_tf.problems import manifest as manifest_lib
from relpos_tf.utils import checked_json
from relpos_tf.utils import files
from relpos_tf.utils import locks
from relpos_tf.utils import processes
from relpos_tf.utils import text

# Increased when folders prepared before can no longer be used.
_FORMAT = 1

Pairs = Iterable[tuple[str, str]]


class Reiterable:
    """Pairs that a function generates again for each reading.

    Args:
        start: Function without arguments that returns an iterator of pairs.
    """

    def __init__(self, start: Callable[[], Iterator[tuple[str, str]]]):
        self._start = start

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return self._start()


def no_further_tests(tmp_dir: str | None) -> Mapping[str, Pairs]:
    """Returns no test set."""
    return {}


@dataclasses.dataclass(frozen=True)
class Problem:
    """Parallel text with its splits.

    Attributes:
        name: str. Also the name of the prepared folder.
        source_language: str. Code, as in "en".
        target_language: str. Code, as in "de".
        vocab_size: int. Pieces wanted in the shared vocabulary; small text
            gives fewer.
        splits: Functions by split ("train", "dev", possibly "test", and
            "test_NAME" of more test sets), from `tmp_dir` (str or None) to
            pairs of lines that can be read more than once. They check their
            files when called.
        further_tests: Function from `tmp_dir` to the pairs of test sets that
            are not required, by split: of those at hand, which may be none.
        normalize: Function applied to both sides of training pairs and to the
            source side of dev and test pairs. References stay as they are.
        settings: JSON values on which the prepared files depend besides the
            attributes above. Their checksum becomes part of the folder's name.
        num_shards: int. Default number of training files.
        character_coverage: float. See `pieces.train`.
        tokenizer_pairs: int. Most pairs the vocabulary is learnt from, drawn
            evenly from the training text.
        tokenizer_file: str or None. A tokenizer to use instead of learning
            one. Its checksum becomes part of the folder's name.
        train_tags: tuple. A word put before each source line, or "", for each
            corpus of the training text, if its corpora are kept apart.
        train_weights: tuple. The share of the training pairs that each corpus
            should have, up to a factor. Not for the prepared files.
    """

    name: str
    source_language: str
    target_language: str
    vocab_size: int
    splits: Mapping[str, Callable[[str | None], Pairs]]
    further_tests: Callable[[str | None], Mapping[str, Pairs]] = (
        no_further_tests
    )
    normalize: Callable[[str], str] = cleaning.unchanged
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    num_shards: int = 4
    character_coverage: float = 1.0
    tokenizer_pairs: int = 1_000_000
    tokenizer_file: str | None = None
    train_tags: tuple[str, ...] = ()
    train_weights: tuple[float, ...] = ()

    def pairs(
        self, split: str, tmp_dir: str | None = None
    ) -> Iterator[tuple[str, str]]:
        """Opens a split's pairs of lines, not cleaned.

        Args:
            split: "train", "dev", "test" or the name of another test set.
            tmp_dir: str or None. Folder of raw files.

        Raises:
            UserError: no such split, or its files are missing or do not fit.
        """
        if split in self.splits:
            return iter(self.splits[split](tmp_dir))
        further = self.further_tests(tmp_dir)
        if split not in further:
            raise errors.UserError(
                f"Problem {self.name} has the splits "
                f"{', '.join([*self.splits, *further])}. Received: {split!r}."
            )
        return iter(further[split])

    def prepare(
        self,
        data_dir: str | pathlib.Path,
        tmp_dir: str | None = None,
        num_shards: int | None = None,
        num_processes: int = 1,
    ) -> dict[str, Any]:
        """Writes the problem's folder, unless it is there already.

        Args:
            data_dir: Gets the folder. A folder prepared with other settings
                is replaced once the new one is complete.
            tmp_dir: str or None. Folder of raw files, and for downloads.
            num_shards: int or None. Number of training files.
            num_processes: int. Processes that prepare training text, if it is
                long enough for them. The files do not depend on it.

        Returns:
            The manifest. Among its fields are `counts` (pairs per split),
            `cleaning` (pairs per rule of `cleaning.clean_pair`) and `lengths`
            (training pairs by the number of ids on the longer side).

        Raises:
            UserError: see `pairs`; or no training pair is left, or another
                split is empty; or the folder has files of another origin, or
                is read by another process.
        """
        if self.is_prepared(data_dir):
            return self.manifest(data_dir)
        return self.prepare_anew(data_dir, tmp_dir, num_shards, num_processes)

    def prepare_anew(
        self,
        data_dir: str | pathlib.Path,
        tmp_dir: str | None = None,
        num_shards: int | None = None,
        num_processes: int = 1,
    ) -> dict[str, Any]:
        """Writes the problem's folder even if it is there already.

        An undamaged folder with the same files is not replaced. See `prepare`
        for arguments, result and errors.
        """
        folder = self.folder(data_dir)
        manifest_lib.check_replaceable(folder)
        if folder.exists() and not self.is_prepared(data_dir):
            with manifest_lib.without_readers(folder):
                pass  # An error now is better than one after the work.
        opened = {name: open_(tmp_dir) for name, open_ in self.splits.items()}
        opened |= self.further_tests(tmp_dir)
        with (
            manifest_lib.new_folder(folder) as partial,
            processes.Pool(num_processes) as pool,
        ):
            return self._write(
                partial, opened, num_shards or self.num_shards, pool
            )

    def prepare_share(
        self,
        data_dir: str | pathlib.Path,
        tmp_dir: str | None = None,
        num_shards: int | None = None,
        num_processes: int = 1,
        task: tuple[int, int] = (0, 1),
    ) -> int:
        """Encodes a share of the training text, for a later `prepare`.

        Several machines with the same text can each encode a share. The shares
        lie in hidden folders of `data_dir`, where `prepare` finds them once
        they are complete.

        Args:
            data_dir: See `prepare`.
            tmp_dir: See `prepare`.
            num_shards: See `prepare`. The same for all.
            num_processes: See `prepare`.
            task: (number of this share, from 0; number of shares).

        Returns:
            The number of pairs in this share, before cleaning.
        """
        train = self.splits["train"](tmp_dir)
        with (
            manifest_lib.unfinished_folder(self.folder(data_dir)) as partial,
            processes.Pool(num_processes) as pool,
        ):
            _, _, encoded = self._encode(
                partial, train, num_shards or self.num_shards, pool, task
            )
        return sum(p.cleaning["read"] for parts in encoded for p in parts)

    def lock(self, data_dir: str | pathlib.Path) -> None:
        """Keeps other processes from replacing the folder until this one ends.

        Training opens the files again in each epoch.
        """
        locks.acquire_shared(self.folder(data_dir))

    def folder(self, data_dir: str | pathlib.Path) -> pathlib.Path:
        """Returns the problem's folder under `data_dir`."""
        if self.settings:
            checksum = checked_json.checksum(self._all_settings())
        else:
            checksum = self._tokenizer_checksum()
        name = f"{self.name}-{checksum[:8]}" if checksum else self.name
        return pathlib.Path(data_dir, name)

    def is_prepared(self, data_dir: str | pathlib.Path) -> bool:
        """Returns whether the folder is there and made with these settings."""
        stored = self._stored_manifest(data_dir)
        return stored is not None and stored["settings"] == self._all_settings()

    def manifest(self, data_dir: str | pathlib.Path) -> dict[str, Any]:
        """Returns the manifest of the prepared folder.

        Raises:
            UserError: it is not prepared, or with other settings.
        """
        stored = self._stored_manifest(data_dir)
        received = stored and stored["settings"]
        if received == self._all_settings():
            return stored
        raise errors.UserError(
            f"Problem {self.name} is not prepared under {data_dir}: "
            f"expected settings {self._all_settings()}. Received: {received}. "
            "Run with --generate_data."
        )

    def record_files(
        self, data_dir: str | pathlib.Path, split: str
    ) -> list[str]:
        """Returns the paths of a split's TFRecord files, checked by size.

        Raises:
            UserError: not prepared, no such split, or a file is damaged.
        """
        manifest = self.manifest(data_dir)
        if split not in manifest["counts"]:
            raise errors.UserError(
                f"Problem {self.name} has no split {split!r} under {data_dir}."
            )
        return manifest_lib.record_files(self.folder(data_dir), manifest, split)

    def training_corpora(
        self, data_dir: str | pathlib.Path
    ) -> list[manifest_lib.TrainingFiles]:
        """Returns the training files of each corpus that is kept apart.

        Otherwise there is one corpus, of all files.

        Raises:
            UserError: see `record_files`.
        """
        return manifest_lib.training_files(
            self.record_files(data_dir, "train"),
            self.manifest(data_dir),
            self.train_weights,
        )

    def tokenizer_path(self, data_dir: str | pathlib.Path) -> str:
        """Returns the path of the tokenizer's model, checked.

        Raises:
            UserError: not prepared, or the file is damaged.
        """
        name = self._tokenizer_name()
        return str(
            manifest_lib.checked(
                self.folder(data_dir), self.manifest(data_dir), name
            )
        )

    def lines(
        self, data_dir: str | pathlib.Path, split: str
    ) -> tuple[list[str], list[str]]:
        """Returns the source lines and reference lines of "dev" or a test set.

        Raises:
            UserError: not prepared, no such lines, or a file is damaged.
        """
        manifest = self.manifest(data_dir)
        if split == "train" or split not in manifest["counts"]:
            raise errors.UserError(
                f"Problem {self.name} has no lines of split {split!r} under "
                f"{data_dir}."
            )
        folder = self.folder(data_dir)
        source, target = (
            manifest_lib.checked(folder, manifest, f"{split}.{side}")
            for side in ("source", "target")
        )
        return list(text.read_lines(source)), list(text.read_lines(target))

    def _stored_manifest(
        self, data_dir: str | pathlib.Path
    ) -> dict[str, Any] | None:
        """Returns the manifest in the folder, or None if there is none."""
        folder = self.folder(data_dir)
        if not (folder / manifest_lib.MANIFEST).is_file():
            return None
        return manifest_lib.read_manifest(folder)

    def _write(
        self,
        folder: pathlib.Path,
        opened: Mapping[str, Pairs],
        num_shards: int,
        pool: processes.Pool,
    ) -> dict[str, Any]:
        """Writes every file of the folder; returns the manifest."""
        # Import SentencePiece, which listing problems does not need.
        from relpos_tf.problems import writing

        training, path, encoded = self._encode(
            folder, opened["train"], num_shards, pool
        )
        described = writing.write_training(
            folder, training, path, encoded, num_shards
        )
        parts = [part for of_corpus in encoded for part in of_corpus]
        counts = {"train": sum(part.count for part in parts)}
        for split, pairs in opened.items():
            if split == "train":
                continue
            counts[split], entries = writing.write_held_out(
                folder, split, pairs, self.normalize, path
            )
            described |= entries
            if not counts[split]:
                raise errors.UserError(
                    f"Expected lines in the {split} set of {self.name}. "
                    "Received: none."
                )
        cleaned, lengths = (
            sum((getattr(part, name) for part in parts), collections.Counter())
            for name in ("cleaning", "lengths")
        )
        manifest = {
            "problem": self.name,
            "settings": self._all_settings(),
            "counts": counts,
            "cleaning": dict(cleaned),
            "lengths": {str(n): lengths[n] for n in sorted(lengths)},
            "vocab_size": writing.vocab_size_of(path),
            "files": writing.finish(folder, described),
            **_corpora_entry(encoded, num_shards),
            "versions": {
                name: importlib.metadata.version(name)
                for name in ("sentencepiece", "tensorflow")
            },
        }
        manifest_lib.write_manifest(folder, manifest)
        return manifest

    def _encode(self, folder, train, num_shards, pool, task=(0, 1)):
        """Encodes training text, with a tokenizer that is learnt or given.

        Args:
            folder: pathlib.Path. Gets the tokenizer, and the parts in `PARTS`.
            train: The training pairs.
            num_shards: int. Number of training files.
            pool: `processes.Pool`.
            task: The share to encode, see `prepare_share`.

        Returns:
            `writing.TrainingText`, the path of the tokenizer, and the parts of
            the share by corpus.
        """
        from relpos_tf.problems import writing

        corpora = getattr(train, "texts", [train])
        training = writing.TrainingText(
            corpora,
            self.train_tags or [""] * len(corpora),
            self.normalize,
            folder / manifest_lib.PARTS,
            pool,
        )
        path = folder / self._tokenizer_name()
        if self.tokenizer_file:
            shutil.copyfile(self.tokenizer_file, path)
        else:
            writing.learn_tokenizer(
                path,
                training,
                vocab_size=self.vocab_size,
                character_coverage=self.character_coverage,
                most_pairs=self.tokenizer_pairs,
            )
        encoded = writing.encode_training(training, path, num_shards, task)
        return training, path, encoded

    def _tokenizer_name(self) -> str:
        """Returns the file name of the tokenizer; the suffix is its kind."""
        given = pathlib.Path(self.tokenizer_file or "tokenizer.model")
        return f"tokenizer{given.suffix}"

    def _tokenizer_checksum(self) -> str:
        """Returns the checksum of a given tokenizer, or an empty string."""
        if not self.tokenizer_file:
            return ""
        return files.sha256(self.tokenizer_file)

    def _all_settings(self) -> dict[str, Any]:
        """Returns the settings the files depend on, as JSON restores them."""
        settings = {
            "format": _FORMAT,
            "vocab_size": self.vocab_size,
            "character_coverage": self.character_coverage,
            **self.settings,
        }
        if self.tokenizer_file:
            settings["tokenizer_sha256"] = self._tokenizer_checksum()
        return json.loads(json.dumps(settings))


def _corpora_entry(encoded, num_shards: int) -> dict[str, Any]:
    """Returns the manifest's field about corpora that are kept apart, if any.

    Args:
        encoded: The parts of each corpus.
        num_shards: int. Files of each corpus.
    """
    if len(encoded) == 1:
        return {}
    counts = [sum(part.count for part in parts) for parts in encoded]
    corpora = [{"pairs": count, "files": num_shards} for count in counts]
    return {"corpora": corpora}
