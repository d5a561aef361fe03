"""How good each checkpoint of a run is: a table, a file, a plot.

The translations of a text NAME are files NAME-STEP, or NAME-average-STEP where
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
from relpos_tf.utils import paths
from relpos_tf.utils import text

_log = logging.getLogger("relpos_tf")

_FILE_NAME = re.compile(r"(.+?)(-average)?-(\d+)")
# In the folder of events: the last step of each curve that is in them.
_LAST_STEPS = "last_evaluated_steps.json"
# Between two looks for something new.
_POLL_SECONDS = 10.0


class Translation(NamedTuple):
    """A text translated with one checkpoint."""

    step: int
    is_average: bool
    name: str  # of the text
    path: pathlib.Path


def translation_of(
    folder: pathlib.Path, name: str, step: int, is_average: bool
) -> Translation:
    """Returns where the translation of a text by a checkpoint belongs.

    Example:

    >>> str(translation_of(pathlib.Path("here"), "dev", 500, True).path)
    'here/dev-average-500'
    """
    file_name = f"{name}{'-average' if is_average else ''}-{step}"
    return Translation(step, is_average, name, folder / file_name)


def find_translations(
    folder: str | pathlib.Path, name: str = "", min_steps: int = 0
) -> list[Translation]:
    """Returns the translations in a folder, by step.

    Args:
        folder: It may be missing.
        name: str. Of the text; "" if the folder is for one text only.
        min_steps: int. Those of earlier checkpoints are left out.

    Raises:
        UserError: no name is given, and there are several.
    """
    found = []
    for path in pathlib.Path(folder).glob("*-*"):
        match = _FILE_NAME.fullmatch(path.name)
        if match and path.is_file():
            of, average, step = match.groups()
            if name in ("", of) and int(step) >= min_steps:
                found.append(Translation(int(step), bool(average), of, path))
    names = sorted({one.name for one in found})
    if len(names) > 1:
        raise errors.UserError(
            f"Expected the name of one of the texts in {folder}: "
            f"{', '.join(names)}. Received: none."
        )
    return sorted(found)


def as_they_come(
    find: Callable[[], list[Any]], wait_minutes: float = 0
) -> Iterator[Any]:
    """Yields what a function finds, each once, and waits for more.

    It looks again after each: in the meantime some may have come, or gone.

    Args:
        find: Function that returns what is there now.
        wait_minutes: How long to wait for something new.
    """
    seen = set()
    waits_until = None
    while True:
        new = next((one for one in find() if one not in seen), None)
        if new is not None:
            seen.add(new)
            yield new
            waits_until = None
            continue
        now = time.monotonic()
        if waits_until is None:
            waits_until = now + 60 * wait_minutes
            if wait_minutes:
                _log.info("Waiting for more, up to %g minutes.", wait_minutes)
        if now >= waits_until:
            return
        time.sleep(min(_POLL_SECONDS, waits_until - now))


class Report:
    """The scores of one text's translations.

    Args:
        name: str. Of the text.
        reference: path. Its reference translation.
        json_path: path. Gets the scores.
        plot_path: path. Gets the plot, if matplotlib is installed.
        event_dir: path, or "" for none. Gets TensorBoard's events.

    Raises:
        UserError: the reference is missing or has no text, or a file cannot
            be written.
    """

    def __init__(self, name, reference, json_path, plot_path, event_dir=""):
        self._name = name
        self._reference = reference
        self._references = list(text.read_lines(reference))
        metrics.check_references(self._references)
        self._json_path = pathlib.Path(json_path)
        self._plot_path = pathlib.Path(plot_path)
        for path in self.paths():
            paths.check_file(path)
        self._found: dict[Translation, metrics.Scores] = {}
        self._said = set()  # warnings, which would come with every file
        self._events = _Events(event_dir) if event_dir else None

    def __contains__(self, translation: Translation) -> bool:
        return translation in self._found

    def add(self, translation: Translation) -> None:
        """Scores a translation.

        Raises:
            UserError: it has not as many lines as the reference.
        """
        lines = list(text.read_lines(translation.path))
        if len(lines) != len(self._references):
            raise errors.UserError(
                f"Expected {len(self._references)} lines, as in "
                f"{self._reference}. Received: {translation.path} with "
                f"{len(lines)}."
            )
        scores = metrics.corpus_bleu(lines, self._references)
        for warning in set(scores.warnings) - self._said:
            _log.warning("%s: %s", translation.path, warning)
        self._said.update(scores.warnings)
        self._found[translation] = scores
        _log.info("%s: BLEU = %.2f", translation.path, scores.bleu)
        if self._events:
            self._events.write(translation, scores)

    def best(self) -> Translation:
        """Returns the translation of the highest BLEU, the first of equals."""
        return max(self._rows(), key=lambda row: row[1].bleu)[0]

    def table(self) -> str:
        """Returns the scores as lines of text.

        Raises:
            UserError: there are none.
        """
        rows, best = self._rows(), self.best()
        width = max(4, *(len(_label(one)) for one, _ in rows))
        lines = [f"{'step':>{width}}    BLEU    chrF  exact match"]
        for one, scores in rows:
            mark = "  best" if one == best else ""
            lines.append(
                f"{_label(one):>{width}}  {scores.bleu:6.2f}  "
                f"{scores.chrf:6.2f}  {scores.exact_match:9.2f} %{mark}"
            )
        scores = rows[0][1]
        lines += [
            f"BLEU signature: {scores.bleu_signature}",
            f"chrF signature: {scores.chrf_signature}",
        ]
        return "\n".join(lines) + "\n"

    def save(self) -> None:
        """Writes the JSON file, and the plot if it can be drawn."""
        with text.writer(self._json_path, None) as write:
            write(json.dumps(self._record(), indent=2, ensure_ascii=False))
        if not plots.is_available():
            self._say_once(
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
        """Returns what `save` writes."""
        written = [self._json_path]
        return written + [self._plot_path] * plots.is_available()

    def _rows(self) -> list[tuple[Translation, metrics.Scores]]:
        return sorted(self._found.items(), key=lambda row: row[0])

    def _record(self) -> dict[str, Any]:
        """Returns all that is known, as JSON has it."""
        rows = [
            {
                "step": one.step,
                "is_average": one.is_average,
                "translation": str(one.path),
                **dataclasses.asdict(scores),
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

    def _say_once(self, message: str) -> None:
        if message not in self._said:
            _log.warning("%s", message)
            self._said.add(message)


class _Events:
    """TensorBoard's events, each step once however often they are written.

    Raises:
        UserError: tensorboard is not installed.
    """

    def __init__(self, folder):
        if importlib.util.find_spec("tensorboard") is None:
            raise errors.UserError(
                "Expected tensorboard, to write events. Received: none. "
                "Install it: pip install 'relpos_tf[tensorboard]'"
            )
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / _LAST_STEPS
        self._last = {}
        with contextlib.suppress(FileNotFoundError, ValueError):
            found = checked_json.loads(self._path.read_bytes())
            checked_json.check(found, dict.fromkeys(found, int))
            self._last = found
        self._keep()  # fails here rather than in TensorFlow
        self._writer = reporting.SummaryWriter(folder)

    def write(self, translation: Translation, scores: metrics.Scores) -> None:
        """Writes scores as SPLIT/NAME, as training does; later steps only."""
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
        self._keep()

    def _keep(self) -> None:
        with text.writer(self._path, None) as write:
            write(json.dumps(self._last))


def _label(translation: Translation) -> str:
    """Returns the first column of the table."""
    return f"{'average ' if translation.is_average else ''}{translation.step}"
