"""Scores of the checkpoints of a run, as a table, a file and a plot.

The translations of a text NAME are files NAME-STEP, or NAME-average-STEP if
the checkpoint is an average of others.
"""

import dataclasses
import json
import logging
import pathlib
import re
from typing import Any
from typing import NamedTuple

from relpos_tf import errors
from relpos_tf.comparison import figures
from relpos_tf.training import metrics
from relpos_tf.utils import files
from relpos_tf.utils import text

_log = logging.getLogger("relpos_tf")

_FILE_NAME = re.compile(r"(.+?)(-average)?-(\d+)")


class TranslationFile(NamedTuple):
    """A text translated with one checkpoint."""

    step: int
    is_average: bool
    name: str  # of the text
    path: pathlib.Path


def translation_of(
    folder: pathlib.Path, name: str, step: int, is_average: bool
) -> TranslationFile:
    """Returns the file for the translation of a text by a checkpoint.

    Example:

    >>> str(translation_of(pathlib.Path("here"), "dev", 500, True).path)
    'here/dev-average-500'
    """
    file_name = f"{name}{'-average' if is_average else ''}-{step}"
    return TranslationFile(step, is_average, name, folder / file_name)


def find_translations(
    folder: str | pathlib.Path, name: str = "", min_steps: int = 0
) -> list[TranslationFile]:
    """Returns the translations in a folder, by step.

    Args:
        folder: It may be missing.
        name: str. Of the text; "" if the folder is for one text only.
        min_steps: int. Translations by earlier checkpoints are left out.

    Raises:
        UserError: no name is given, and there are several.
    """
    translations = []
    for path in pathlib.Path(folder).glob("*-*"):
        match = _FILE_NAME.fullmatch(path.name)
        if match and path.is_file():
            text_name, average, step = match.groups()
            if name in ("", text_name) and int(step) >= min_steps:
                translations.append(
                    TranslationFile(int(step), bool(average), text_name, path)
                )
    names = sorted({one.name for one in translations})
    if len(names) > 1:
        raise errors.UserError(
            f"Expected the name of one of the texts in {folder}: "
            f"{', '.join(names)}. Received: none."
        )
    return sorted(translations)


class CheckpointScores:
    """The scores of one text's translations.

    Args:
        name: str. Of the text.
        reference: path. Its reference translation.
        folder: path. Gets the files.
        language: str. Code for tokenized BLEU as well; "" for none.
        tokenize: str. The tokenizer for BLEU, see `metrics.tokenizer_of`.

    Raises:
        UserError: the reference is missing or has no text.
    """

    def __init__(
        self,
        name: str,
        reference: str | pathlib.Path,
        folder: str | pathlib.Path,
        language: str = "",
        tokenize: str = "13a",
    ):
        self._name, self._language = name, language
        self._tokenize = tokenize
        self._reference = reference
        self._references = list(text.checked_lines(reference))
        metrics.check_references(self._references)
        self._json_path = pathlib.Path(folder, f"{name}.bleu.json")
        self._plot_path = pathlib.Path(folder, f"{name}.bleu.png")
        # The fields of the JSON file, by translation.
        self._rows: dict[TranslationFile, dict[str, Any]] = {}
        self._warned: set[str] = set()  # once, not for every file

    def add(self, translation: TranslationFile) -> None:
        """Scores a translation.

        Raises:
            UserError: it has more or fewer lines than the reference.
        """
        lines = list(text.checked_lines(translation.path))
        if len(lines) != len(self._references):
            raise errors.UserError(
                f"Expected {len(self._references)} lines, as in "
                f"{self._reference}. Received: {translation.path} with "
                f"{len(lines)}."
            )
        scores = metrics.corpus_bleu(lines, self._references, self._tokenize)
        for warning in set(scores.warnings) - self._warned:
            _log.warning("%s: %s", translation.path, warning)
            self._warned.add(warning)
        self._rows[translation] = {
            "step": translation.step,
            "is_average": translation.is_average,
            "translation": str(translation.path),
            **dataclasses.asdict(scores),
        }
        if self._language:
            tokenized = metrics.tokenized_bleu(
                lines, self._references, self._language
            )
            self._rows[translation] |= tokenized._asdict()
        _log.info("%s: BLEU = %.2f", translation.path, scores.bleu)

    def best(self) -> TranslationFile:
        """Returns the first translation with the highest BLEU."""
        return max(sorted(self._rows), key=lambda x: self._rows[x]["bleu"])

    def table(self) -> str:
        """Returns the scores as lines of text.

        Raises:
            ValueError: there are none.
        """
        import tabulate  # comes with sacreBLEU

        best = self.best()
        names = {
            "bleu": "BLEU",
            "chrf": "chrF",
            "exact_match": "exact match, %",
        }
        if self._language:
            names["tokenized_bleu"] = "tokenized BLEU"
        rows = [
            [
                f"{'average ' * one.is_average}{one.step}",
                *(f"{self._rows[one][name]:.2f}" for name in names),
                "best" * (one == best),
            ]
            for one in sorted(self._rows)
        ]
        lines = tabulate.tabulate(
            rows,
            ["step", *names.values(), ""],
            tablefmt="plain",
            disable_numparse=True,
            colalign=["right"] * (len(names) + 1) + ["left"],
        )
        signatures = "".join(
            f"{name} signature: {self._rows[best][f'{field}_signature']}\n"
            for field, name in names.items()
            if field != "exact_match"
        )
        return f"{lines}\n{signatures}"

    def save(self) -> None:
        """Writes NAME.bleu.json, and NAME.bleu.png if matplotlib is there."""
        rows = [self._rows[one] for one in sorted(self._rows)]
        best = self.best()
        record = {
            "name": self._name,
            "reference": str(self._reference),
            "best": {"step": best.step, "is_average": best.is_average},
            "scores": rows,
        }
        content = json.dumps(record, indent=2, ensure_ascii=False)
        files.write(self._json_path, f"{content}\n".encode(errors="replace"))
        if figures.is_available():
            series = {
                name: [
                    (r["step"], r["bleu"])
                    for r in rows
                    if r["is_average"] == kind
                ]
                for name, kind in (("checkpoint", False), ("average", True))
            }
            figures.scores_by_step(
                self._plot_path,
                {name: points for name, points in series.items() if points},
                title=f"{self._name}: BLEU of every checkpoint",
                caption=f"sacreBLEU {rows[0]['bleu_signature']}",
            )

    def paths(self) -> list[pathlib.Path]:
        """Returns the paths of the files that `save` writes."""
        return [self._json_path] + [self._plot_path] * figures.is_available()
