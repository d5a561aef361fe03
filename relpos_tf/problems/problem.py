"""A problem, and how it becomes files to train on.

A problem is a value: names, sizes, and one function per split that opens its
pairs of lines. `Problem.prepare` makes a folder `DATA_DIR/NAME` of them:

    tokenizer.model             the shared vocabulary, from the training text
    train.ids, train.lengths    pairs of ids, in the order of the text
    dev.ids, dev.lengths        the same of the development set
    dev.source, dev.target      its lines, for BLEU
    test.ids, test.source, ...  the same for the test set
    test_NAME.ids, ...          the same for each further test set
    manifest.json               counts, settings, sizes and checksums

The folder appears complete or not at all. A problem with `settings` (such as
the user's own text) or with a given tokenizer has a folder for each of them,
named `DATA_DIR/NAME-` and a checksum.
"""

import dataclasses
import json
import logging
import pathlib
import re
from collections.abc import Callable
from collections.abc import Mapping
from typing import Any

from relpos_tf import errors
from relpos_tf.data import plan
from relpos_tf.data import spelling
from relpos_tf.data import token_files
from relpos_tf.problems import cleaning
from relpos_tf.problems import corpora as corpora_lib
from relpos_tf.problems import manifest as manifest_lib
from relpos_tf.utils import checked_json
from relpos_tf.utils import files

# Increased when folders prepared before can no longer be used.
_FORMAT = 2
_MANY_LINES = 5000  # to translate in each evaluation
_log = logging.getLogger("relpos_tf")


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
            files when called. A set "test_NAME" is left out of the prepared
            files if `corpora.MissingFileError` is raised.
        normalize: Function applied to both sides of training pairs and to the
            source side of dev and test pairs. References stay as they are.
        settings: JSON values on which the prepared files depend besides the
            attributes above. Their checksum becomes part of the folder's name.
        character_coverage: float. The share of characters that may become
            pieces, as `pieces.learn` takes it.
        tokenizer_pairs: int. Most pairs the vocabulary is learnt from, drawn
            evenly from the training text.
        tokenizer_file: str or None. A tokenizer to use instead of learning
            one. Its checksum becomes part of the folder's name.
        doubts: tuple. Warnings of the files, to show before training.
        train_tags: tuple. A word put before each source line, or "", for each
            corpus of the training text, if its corpora are kept apart.
        train_weights: tuple. The share of the training pairs that each corpus
            should have, up to a factor. Not for the prepared files.
    """

    name: str
    source_language: str
    target_language: str
    vocab_size: int
    splits: Mapping[str, Callable[[str | None], Any]]
    normalize: Callable[[str], str] = cleaning.unchanged
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    character_coverage: float = 1.0
    tokenizer_pairs: int = 1_000_000
    tokenizer_file: str | None = None
    doubts: tuple[str, ...] = ()
    train_tags: tuple[str, ...] = ()
    train_weights: tuple[float, ...] = ()

    def prepare(
        self,
        data_dir: str | pathlib.Path,
        tmp_dir: str | None = None,
        num_processes: int = 1,
        anew: bool = False,
    ) -> dict[str, Any]:
        """Writes the problem's folder, unless it is there already.

        Logs what it holds, and what to look at before training.

        Args:
            data_dir: Gets the folder.
            tmp_dir: str or None. Folder of raw files, and for downloads.
            num_processes: int. Processes that prepare training text, if it is
                long enough for them; 0: one for each core. The files do not
                depend on it.
            anew: bool. Whether to write the folder also if it is there. It is
                replaced once the new one is complete.

        Returns:
            The manifest. Among its fields are `counts` (pairs per split) and
            `cleaning` (pairs per rule of `cleaning.clean_pair`).

        Raises:
            UserError: files are missing or do not fit; or no training pair is
                left, or another split is empty; or the folder has other data or
                files.
        """
        folder = self.folder(data_dir).resolve()
        is_there = (folder / manifest_lib.MANIFEST).exists()
        if is_there:
            self.manifest(data_dir)  # raises for other settings
        if anew or not is_there:
            _log.info("Preparing %s.", folder)
            self._write(folder, tmp_dir, num_processes, anew)
        manifest = self.manifest(data_dir)
        if anew or not is_there:
            _log.info("%s", cleaning.table(manifest["cleaning"]))
        for warning in self.warnings(data_dir):
            _log.warning("%s", warning)
        counts = sorted(manifest["counts"].items(), reverse=True)
        splits = [f"{number:,} {split}" for split, number in counts]
        _log.info("Data: %s, %s.", self.name, ", ".join(splits))
        return manifest

    def _write(self, folder, tmp_dir, num_processes, anew) -> None:
        """Writes the folder, whole or not at all."""
        manifest_lib.check_replaceable(folder)
        opened = self._open(tmp_dir)
        with files.new_folder(folder) as partial:
            # Import SentencePiece, which listing problems does not need.
            from relpos_tf.problems import prepare

            described = prepare.write_files(
                self, opened, partial, num_processes
            )
            manifest = {
                "problem": self.name,
                "settings": self._all_settings(),
                **described,
            }
            manifest_lib.write_manifest(partial, manifest)
            # Another preparation of the same data may have been quicker.
            if anew or not (folder / manifest_lib.MANIFEST).is_file():
                # Processes that have opened the old files keep them.
                files.rename_folder(partial, folder)

    def _open(self, tmp_dir) -> dict[str, cleaning.LinePairs]:
        """Returns the pairs of all splits, of further test sets if at hand."""
        opened, missing = {}, {}
        for name, open_split in self.splits.items():
            try:
                opened[name] = open_split(tmp_dir)
            except corpora_lib.MissingFileError as error:
                if not name.startswith("test_"):
                    raise
                missing[name] = error
        if missing:
            _log.info(
                "Left out, since they are not required and not at hand: %s. To "
                "add them later, prepare the data again with --generate_data. "
                "%s",
                ", ".join(missing),
                next(iter(missing.values())),
            )
        return opened

    def folder(self, data_dir: str | pathlib.Path) -> pathlib.Path:
        """Returns the problem's folder under `data_dir`."""
        settings = self._all_settings()
        checksum = settings.get("tokenizer_sha256", "")
        if self.settings:
            checksum = checked_json.checksum(settings)
        name = f"{self.name}-{checksum[:8]}" if checksum else self.name
        return pathlib.Path(data_dir, name)

    def is_prepared(self, data_dir: str | pathlib.Path) -> bool:
        """Returns whether the folder is there and made with these settings."""
        folder, expected = self.folder(data_dir), self._all_settings()
        if not (folder / manifest_lib.MANIFEST).is_file():
            return False
        return manifest_lib.read_manifest(folder)["settings"] == expected

    def manifest(self, data_dir: str | pathlib.Path) -> dict[str, Any]:
        """Returns the manifest of the prepared folder.

        Raises:
            UserError: it is not prepared, or with other settings.
        """
        folder, expected = self.folder(data_dir), self._all_settings()
        if not (folder / manifest_lib.MANIFEST).is_file():
            raise errors.UserError(
                f"Problem {self.name} is not prepared under {data_dir}. "
                "Prepare it with relpos-datagen, or let the trainer do it."
            )
        stored = manifest_lib.read_manifest(folder)
        if stored["settings"] != expected:
            raise errors.UserError(
                f"{folder} has data that were prepared with other settings: "
                f"expected {expected}. Received: {stored['settings']}. Delete "
                "it, or name another --data_dir."
            )
        return stored

    def tokens(
        self, data_dir: str | pathlib.Path, split: str
    ) -> token_files.TokenFile:
        """Opens the ids of a split, verified by their checksums.

        Raises:
            UserError: not prepared, no such split, or a file is damaged.
        """
        folder, manifest = self.folder(data_dir), self.manifest(data_dir)
        for name in token_files.names(split):
            manifest_lib.checked(folder, manifest, name)
        return token_files.TokenFile(folder, split, manifest["vocab_size"])

    def corpora(self, data_dir: str | pathlib.Path) -> list[plan.Corpus]:
        """Returns the corpora of the training pairs, with their shares.

        Without weights, each pair comes once in an epoch.

        Raises:
            UserError: not prepared.
        """
        known = self.manifest(data_dir)["corpora"]
        shares: list[float | None] = [None] * len(known)
        if len(known) > 1 and self.train_weights:
            shares = [w / sum(self.train_weights) for w in self.train_weights]
        return [
            plan.Corpus(corpus["pairs"], corpus["tag"], share)
            for corpus, share in zip(known, shares, strict=True)
        ]

    def tokenizer_path(self, data_dir: str | pathlib.Path) -> str:
        """Returns the path of the tokenizer's model, checked.

        Raises:
            UserError: not prepared, or the file is damaged.
        """
        folder, manifest = self.folder(data_dir), self.manifest(data_dir)
        return str(manifest_lib.checked(folder, manifest, self.tokenizer_name))

    def lines(
        self, data_dir: str | pathlib.Path, split: str
    ) -> tuple[list[str], list[str]]:
        """Returns the source lines and reference lines of "dev" or a test set.

        Raises:
            UserError: not prepared, no such lines, or a file is damaged.
        """
        manifest = self.manifest(data_dir)
        return manifest_lib.lines(self.folder(data_dir), manifest, split)

    def warnings(self, data_dir: str | pathlib.Path) -> list[str]:
        """Returns what to look at before training, mostly in held-out sets.

        Raises:
            UserError: not prepared, or a file is damaged.
        """
        warnings, most = list(self.doubts), cleaning.MAX_TOKENS
        tags = self.train_tags
        for split, lines in self.manifest(data_dir)["counts"].items():
            if split == "train":
                continue
            # Beside untagged corpora, only what looks like a tag.
            first = re.compile(
                r"(<[^<>\s]+>)(?!\S)" if "" in tags else r"(\S+)"
            )
            sources = map(spelling.compose, self.lines(data_dir, split)[0])
            begins = map(first.match, sources)
            lone = [m[1] for m in begins if m and m[1] not in tags]
            if tags and lone:
                warnings.append(
                    f"{len(lone):,} of {lines:,} source lines of the {split} "
                    "set begin with no tag of training, which has "
                    f"{', '.join(filter(None, tags))}: one with {lone[0]!r}."
                )
            if split == "dev" and lines > _MANY_LINES:
                warnings.append(
                    f"The dev set has {lines:,} lines, and each evaluation "
                    "translates them all, perhaps for many minutes: take some "
                    "2,000, or raise --local_eval_frequency."
                )
            longest = self.tokens(data_dir, split).lengths.max(axis=1)
            number = int((longest > most).sum())
            if not number:
                continue
            line = int(longest.argmax())
            warnings.append(
                f"{number} of {len(longest):,} lines of the {split} set have "
                f"more than {most:,} tokens. The longest is line {line + 1} "
                f"with {longest[line]:,}: each evaluation may take minutes for "
                "it. Split it into sentences, on both sides, or leave it out "
                "of both files, and run again."
            )
        return warnings

    @property
    def tokenizer_name(self) -> str:
        """The file name of the tokenizer; the suffix is its kind."""
        given = pathlib.Path(self.tokenizer_file or "tokenizer.model")
        return f"tokenizer{given.suffix}"

    def _all_settings(self) -> dict[str, Any]:
        """Returns the settings the files depend on, as JSON restores them."""
        settings = {
            "format": _FORMAT,
            "vocab_size": self.vocab_size,
            "character_coverage": self.character_coverage,
            **self.settings,
        }
        if self.tokenizer_file:
            settings["tokenizer_sha256"] = files.sha256(self.tokenizer_file)
        return json.loads(json.dumps(settings))
