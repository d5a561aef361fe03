"""Translations of other systems, which are compared as runs are.

A file has a line for each line of a test set. Nothing else of the system is
known: it has no hparams, no training curve and no loss.
"""

import dataclasses
import glob
import pathlib
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from relpos_tf import errors
from relpos_tf.comparison import measures
from relpos_tf.comparison import scoring
from relpos_tf.problems import test_sets


@dataclasses.dataclass(frozen=True)
class Output:
    """The translations of one model of another system.

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

    def describe(self, checkpoint: str) -> dict[str, Any]:
        """Returns its file, and None for what is unknown; as `Run.describe`."""
        return {
            "hparams_set": "",
            "hparams": "",
            **dict.fromkeys(("train_steps", "beam_size", "alpha")),
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
        UserError: there is no such file, or one twice, or there are not as
            many files of one set as of another.
    """
    found: dict[str, dict[str, list[pathlib.Path]]] = {}
    for item in filter(None, map(str.strip, items)):
        left, _, pattern = item.partition("=")
        label, _, name = left.partition(":")
        # Brackets stand for themselves.
        names = sorted(glob.glob(pattern.replace("[", "[[]")))
        own = found.setdefault(label, {}).setdefault(name, [])
        new = [path for path in map(pathlib.Path, names) if path not in own]
        if not label or not names or len(new) < len(names):
            raise errors.UserError(
                "Expected LABEL=FILE, or LABEL:TEST_SET=FILE for a further "
                f"test set, each file once. Received: {item!r}, of whose "
                f"{len(names)} files {len(new)} are new."
            )
        own.extend(new)
    outputs = []
    for label, by_set in found.items():
        if len(set(map(len, by_set.values()))) > 1:
            raise errors.UserError(
                f"Expected as many files of {label} for each test set. "
                f"Received: {', '.join(str(len(x)) for x in by_set.values())}."
            )
        models = [
            dict(zip(by_set, paths, strict=True))
            for paths in zip(*by_set.values(), strict=True)
        ]
        for number, paths in enumerate(models, start=1):
            seed = f"file {number}" if len(models) > 1 else None
            outputs.append(Output(label, seed, paths))
    return outputs


def read(
    output: Output, sets: Sequence[test_sets.TestSet]
) -> scoring.ModelResult:
    """Returns the translations as a result, without scores.

    Args:
        output: The files.
        sets: The test sets, the first one first.

    Raises:
        UserError: a file has another number of lines than its set, or there
            is no such set, or no file for the first one, or two.
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
                f"Expected one file of {output.title} for {name}. "
                f"Received: {', '.join(map(str, output.paths.values()))}."
            )
        number = len(by_name[name].sources)
        translations[name] = test_sets.paired_lines([path], number)
    if sets[0].name not in translations:
        raise errors.UserError(
            f"Expected a file of {output.title} for {sets[0].name}, the first "
            f"test set. Received: files for {', '.join(translations)} only."
        )
    return scoring.ModelResult(output, "", translations, {})
