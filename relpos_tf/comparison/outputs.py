"""Translations of other systems, which are compared as runs are.

A file has a line for each line of a test set. Nothing else of the system is
known: it has no hparams, no training curve and no loss.
"""

import dataclasses
import glob
import pathlib
import re
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from relpos_tf import errors
from relpos_tf.comparison import measures
from relpos_tf.comparison import score_cache
from relpos_tf.problems import test_sets
from relpos_tf.utils import files
from relpos_tf.utils import text

_HOW = "Expected LABEL=FILE, or LABEL:TEST_SET=FILE for a further test set."


@dataclasses.dataclass(frozen=True)
class Output:
    """The translations of one model of another system, a `systems.System`.

    Attributes:
        label: str. The system.
        seed: str | None. "file 1", "file 2", ... if the label has several
            models, else None.
        paths: The file of each test set, by its name; "" is the first set.
    """

    label: str
    seed: str | None
    paths: Mapping[str, pathlib.Path]

    @property
    def title(self) -> str:
        """Its name in messages."""
        return self.label if self.seed is None else f"{self.label} {self.seed}"

    def hparams(self) -> None:
        """Returns None: it has no hparams."""
        return

    def versions(self) -> str:
        """Returns "": nothing is known."""
        return ""

    def describe(self, checkpoint: str) -> dict[str, Any]:
        """Returns its file, and None for what is unknown."""
        unknown = "train_steps beam_size alpha sharing num_averaged average_of"
        return {
            "hparams_set": "",
            "hparams": "",
            **dict.fromkeys(unknown.split()),
            "checkpoint": checkpoint,
            "output_dir": str(next(iter(self.paths.values()))),
            **measures.of_training([], 0),
        }


def parse(items: Sequence[str]) -> list[Output]:
    """Returns the systems of `--outputs`, label by label.

    Args:
        items: `LABEL=FILE` for the first test set, `LABEL:TEST_SET=FILE` for
            another one; `*` and `?` match as in a shell. Several files of one
            label and set are translations by several models of this system.

    Raises:
        UserError: there is no such file, a file twice, or not as many files
            of one set as of another.
    """
    found: dict[str, dict[str, list[pathlib.Path]]] = {}
    for item in filter(None, map(str.strip, items)):
        label, name, paths = _split(item)
        found.setdefault(label, {}).setdefault(name, []).extend(paths)
    outputs = []
    for label, by_set in found.items():
        _check(label, by_set)
        number = len(next(iter(by_set.values())))
        for index in range(number):
            paths = {name: own[index] for name, own in by_set.items()}
            seed = f"file {index + 1}" if number > 1 else None
            outputs.append(Output(label, seed, paths))
    return outputs


def check_labels(outputs: Sequence[Output], labels: Sequence[str]) -> None:
    """Raises UserError if a run or set has the label of an output."""
    twice = sorted({output.label for output in outputs} & set(labels))
    if twice:
        raise errors.UserError(
            "Expected labels that no run or set has. Received: "
            f"{', '.join(twice)}."
        )


def read(
    output: Output, sets: Sequence[test_sets.TestSet]
) -> score_cache.ModelResult:
    """Returns the translations as a result, without scores.

    Args:
        output: The files.
        sets: The test sets, the first one first.

    Raises:
        UserError: a file has another number of lines than its set, or there
            is no such set.
    """
    by_name = {one.name: one for one in sets}
    translations = {}
    for name, path in output.paths.items():
        name = name or sets[0].name
        if name not in by_name:
            raise errors.UserError(
                f"Expected one of the test sets {', '.join(by_name)} for "
                f"{path}. Received: {name}."
            )
        if name in translations:
            raise errors.UserError(
                f"Expected one file of {output.title} for {name}, the first "
                f"test set. Received: {output.paths['']} and {path}."
            )
        translations[name] = _read_lines(path, by_name[name])
    first = translations.pop(sets[0].name, None)
    if first is None:
        raise errors.UserError(
            f"Expected a file of {output.title} for {sets[0].name}, the first "
            f"test set. Received: files for {', '.join(translations)} only."
        )
    unknown = "loss parameters translation_seconds teacher_forced_accuracy"
    return score_cache.ModelResult(
        output, "", first, dict.fromkeys(unknown.split()), further=translations
    )


def _read_lines(path, test_set):
    """Returns the lines of a file, as many as the test set has."""
    lines = list(text.checked_lines(path))
    if len(lines) != len(test_set.sources):
        raise errors.UserError(
            f"Expected {len(test_set.sources):,} lines in {path}, one for each "
            f"line of {test_set.name}. Received: {len(lines):,}."
        )
    return lines


def _split(item):
    """Returns the label, the test set or "", and the files of an item."""
    for match in re.finditer("=", item):
        # A label may hold "=" as well, as in k=2.
        pattern = item[match.end() :]
        names = [pattern]
        if pattern and not pathlib.Path(pattern).is_file():
            # Brackets are no part of a pattern.
            names = sorted(glob.glob(pattern.replace("[", "[[]")))
        paths = [p for p in map(pathlib.Path, names) if p.is_file()]
        if paths and match.start():
            label, _, name = item[: match.start()].rpartition(":")
            if not label or not test_sets.is_split(name):
                # A label may hold ":" as well.
                label, name = item[: match.start()], ""
            return label, name, paths
    label, _, pattern = item.partition("=")
    if not label or not pattern:
        raise errors.UserError(f"{_HOW} Received: {item!r}.")
    raise errors.UserError(f"{_HOW} Received: {item!r}, which has no file.")


def _check_no_copies(label, by_set):
    """Raises UserError if files of two models are equal in every set.

    Copies would count as trainings of which one is as good as the other.
    """
    models = {}
    for paths in zip(*by_set.values(), strict=False):
        content = tuple(map(files.sha256, paths))
        other = models.setdefault(content, paths[0])
        if other != paths[0]:
            raise errors.UserError(
                f"Expected translations of its own by each model of {label}. "
                f"Received copies: {other} and {paths[0]}."
            )


def _check(label, by_set):
    """Raises UserError unless each model of a label has its own files."""
    for paths in by_set.values():
        twice = {str(path) for path in paths if paths.count(path) > 1}
        if twice:
            raise errors.UserError(
                f"Expected another file for each model of {label}. Received "
                f"twice: {', '.join(sorted(twice))}."
            )
    _check_no_copies(label, by_set)
    numbers = {name: len(paths) for name, paths in by_set.items()}
    if len(set(numbers.values())) > 1:
        listed = (
            f"{number} for {name or 'the first test set'}"
            for name, number in numbers.items()
        )
        raise errors.UserError(
            f"Expected as many files of {label} for each test set. Received: "
            f"{', '.join(listed)}."
        )
