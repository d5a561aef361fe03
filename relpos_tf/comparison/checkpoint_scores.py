"""Scores of the checkpoints of a run, as a table, a file and a plot.

The translations of a text NAME are files NAME-STEP, or NAME-average-STEP if
the checkpoint is an average of others.
"""

import contextlib
import dataclasses
import importlib.util
import json
import logging
import pathlib
import re
import time
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any
from typing import NamedTuple

from relpos_tf import errors
from relpos_tf.comparison import plots
from relpos_tf.training import metrics
from relpos_tf.training import reporting
from relpos_tf.utils import checked_json
from relpos_tf.utils import extras
from relpos_tf.utils import files
from relpos_tf.utils import paths
from relpos_tf.utils import text

_log = logging.getLogger("relpos_tf")

_FILE_NAME = re.compile(r"(.+?)(-average)?-(\d+)")
# In the folder of events: the last step of each curve.
_LAST_STEPS = "last_evaluated_steps.json"
_POLL_SECONDS = 10.0


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


def poll_new(
    find: Callable[[], list[Any]], wait_minutes: float = 0
) -> Iterator[Any]:
    """Yields each result of a function once, and waits for new ones.

    The function is called again after each: results may appear and disappear.

    Args:
        find: Function that returns the current results.
        wait_minutes: How long to wait for a new result.
    """
    seen = set()
    deadline = None
    while True:
        new = next((one for one in find() if one not in seen), None)
        if new is not None:
            seen.add(new)
            yield new
            deadline = None
            continue
        now = time.monotonic()
        if deadline is None:
            deadline = now + 60 * wait_minutes
            if wait_minutes:
                _log.info("Waiting for more, up to %g minutes.", wait_minutes)
        if now >= deadline:
            return
        time.sleep(min(_POLL_SECONDS, deadline - now))


class CheckpointScores:
    """The scores of one text's translations.

    Args:
        name: str. Of the text.
        reference: path. Its reference translation.
        json_path: path. The scores are written here.
        plot_path: path. The plot, if matplotlib is installed.
        event_dir: path, or "" for none. Folder of TensorBoard's events.
        language: str. Code for tokenized BLEU as well; "" for none.

    Raises:
        UserError: the reference is missing or has no text, or a file cannot
            be written.
    """

    def __init__(
        self, name, reference, json_path, plot_path, event_dir="", language=""
    ):
        self._name = name
        self._language = language
        self._tokenized: dict[TranslationFile, metrics.TokenizedScore] = {}
        self._reference = reference
        self._references = list(text.checked_lines(reference))
        metrics.check_references(self._references)
        self._json_path = pathlib.Path(json_path)
        self._plot_path = pathlib.Path(plot_path)
        for path in self.paths():
            paths.check_file(path)
        self._scores: dict[TranslationFile, metrics.Scores] = {}
        self._warned = set()  # each warning is given once, not for every file
        self._events = _Events(event_dir) if event_dir else None

    def __contains__(self, translation: TranslationFile) -> bool:
        return translation in self._scores

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
        scores = metrics.corpus_bleu(lines, self._references)
        for warning in scores.warnings:
            self._warn_once(warning, f"{translation.path}: ")
        self._scores[translation] = scores
        if self._language:
            self._tokenized[translation] = metrics.tokenized_bleu(
                lines, self._references, self._language
            )
        _log.info("%s: BLEU = %.2f", translation.path, scores.bleu)
        if self._events:
            self._events.write(translation, scores)

    def best(self) -> TranslationFile:
        """Returns the first translation with the highest BLEU."""
        return max(self._rows(), key=lambda row: row[1].bleu)[0]

    def table(self) -> str:
        """Returns the scores as lines of text.

        Raises:
            UserError: there are none.
        """
        rows, best = self._rows(), self.best()
        width = max(4, *(len(_label(one)) for one, _ in rows))
        head = "  tokenized BLEU" if self._tokenized else ""
        lines = [f"{'step':>{width}}    BLEU    chrF  exact match{head}"]
        for one, scores in rows:
            mark = "  best" if one == best else ""
            tokenized = self._tokenized.get(one)
            more = f"  {tokenized[0]:14.2f}" if tokenized else ""
            lines.append(
                f"{_label(one):>{width}}  {scores.bleu:6.2f}  "
                f"{scores.chrf:6.2f}  {scores.exact_match:9.2f} %{more}{mark}"
            )
        first, scores = rows[0]
        lines += [
            f"BLEU signature: {scores.bleu_signature}",
            f"chrF signature: {scores.chrf_signature}",
        ]
        if first in self._tokenized:
            signature = self._tokenized[first].tokenized_bleu_signature
            lines.append(f"tokenized BLEU signature: {signature}")
        return "\n".join(lines) + "\n"

    def save(self) -> None:
        """Writes the JSON file, and the plot if it can be drawn."""
        content = json.dumps(self._record(), indent=2, ensure_ascii=False)
        files.write(self._json_path, f"{content}\n".encode(errors="replace"))
        if not plots.is_available():
            self._warn_once(
                "No plot, because matplotlib is not installed: "
                f"{plots.HOW_TO_INSTALL}"
            )
            return
        rows = self._rows()
        series = {}
        for title, kind in (("checkpoint", False), ("average", True)):
            points = [(t.step, s.bleu) for t, s in rows if t.is_average == kind]
            series |= {title: points} if points else {}
        plots.scores_by_step(
            self._plot_path,
            series,
            title=f"{self._name}: BLEU of every checkpoint",
            score="BLEU",
            caption=f"sacreBLEU {rows[0][1].bleu_signature}",
        )

    def paths(self) -> list[pathlib.Path]:
        """Returns the paths of the files that `save` writes."""
        return [self._json_path] + [self._plot_path] * plots.is_available()

    def _rows(self) -> list[tuple[TranslationFile, metrics.Scores]]:
        return sorted(self._scores.items(), key=lambda row: row[0])

    def _record(self) -> dict[str, Any]:
        """Returns the content of the JSON file."""
        rows = [
            {
                "step": one.step,
                "is_average": one.is_average,
                "translation": str(one.path),
                **dataclasses.asdict(scores),
                **(
                    self._tokenized[one]._asdict()
                    if one in self._tokenized
                    else {}
                ),
            }
            for one, scores in self._rows()
        ]
        best = self.best()
        return {
            "name": self._name,
            "reference": str(self._reference),
            "best": {"step": best.step, "is_average": best.is_average},
            "scores": rows,
        }

    def _warn_once(self, message: str, start: str = "") -> None:
        if message not in self._warned:
            _log.warning("%s%s", start, message)
            self._warned.add(message)


class _Events:
    """TensorBoard's events, written once for each step.

    Raises:
        UserError: tensorboard is not installed.
    """

    def __init__(self, folder):
        if importlib.util.find_spec("tensorboard") is None:
            raise errors.UserError(
                "Expected tensorboard, to write events. Received: none. "
                f"Install it: {extras.how_to_install('tensorboard')}"
            )
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / _LAST_STEPS
        self._last = {}
        with contextlib.suppress(FileNotFoundError, ValueError):
            last = checked_json.loads(self._path.read_bytes())
            checked_json.check(last, dict.fromkeys(last, int))
            self._last = last
        self._save()  # An error is clearer here than in TensorFlow.
        self._writer = reporting.SummaryWriter(folder)

    def write(
        self, translation: TranslationFile, scores: metrics.Scores
    ) -> None:
        """Writes scores of a later step as SPLIT/NAME, as training does."""
        split = translation.path.name.rpartition("-")[0]
        if translation.step <= self._last.get(split, -1):
            return
        self._writer.write(
            {
                "step": translation.step,
                "split": split,
                "bleu": scores.bleu,
                "chrf": scores.chrf,
                "exact_match": scores.exact_match,
            }
        )
        self._last[split] = translation.step
        self._save()

    def _save(self) -> None:
        files.write(self._path, f"{json.dumps(self._last)}\n")


def _label(translation: TranslationFile) -> str:
    """Returns the first column of the table."""
    return f"{'average ' if translation.is_average else ''}{translation.step}"
