"""The scores of a comparison's models, each computed once. No TensorFlow."""

import hashlib
import json
import logging
import pathlib
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

from relpos_tf.comparison import child_process
from relpos_tf.comparison import jobs
from relpos_tf.comparison import runs as runs_lib
from relpos_tf.comparison import systems
from relpos_tf.models import run_dir
from relpos_tf.problems import test_sets
from relpos_tf.utils import checked_json
from relpos_tf.utils import files
from relpos_tf.utils import locks
from relpos_tf.utils import slots as slots_lib
from relpos_tf.utils import text

_log = logging.getLogger("relpos_tf")
# Part of every key. Raised when the same model would get other scores.
_FORMAT = 1
SCORER = ("-m", "relpos_tf.comparison.score_process")
# The fields of the two kinds of records, as `score_process` writes them.
_SCORE_FIELDS = {
    "translations_sha256": str,
    "parameters": int,
    "translation_seconds": float,
    "source_lengths": list[int],
    "loss": float,
    "teacher_forced_accuracy": float,
    "target_tokens": int,
}
_ATTENTION_FIELDS = {"attention": dict, "error": str}
_NO_ATTENTION = {"attention": {}, "error": ""}


class ModelResult(NamedTuple):
    """The result of a run's model, or of another system, on the test sets.

    Attributes:
        run: The run, or another system.
        checkpoint: str. Prefix of the model.
        translations: One for each line.
        record: dict of `loss`, `parameters`, `source_lengths` and more, as
            `score_process.score` writes it; None for what is unknown.
        attention: dict, as of `attention_maps.describe`; empty if it was not
            asked for.
        warning: str. Why there is no attention, else empty.
        further: dict of further test sets' translations, by name. Of another
            system some may be missing.
    """

    run: systems.System
    checkpoint: str
    translations: list[str]
    record: dict[str, Any]
    attention: dict[str, Any] = {}
    warning: str = ""
    further: dict[str, list[str]] = {}


def score(scorings: Sequence["Scoring"], slots: slots_lib.Slots) -> None:
    """Computes what is missing of results.

    Args:
        scorings: One for each model.
        slots: Where they are computed.

    Raises:
        UserError: models cannot be loaded, or scoring failed; it names them.
        KeyboardInterrupt: a signal came.
    """
    waiting = []
    for number, one in enumerate(scorings, start=1):
        if request := one.request(len(slots.parts)):
            title = f"[{number}/{len(scorings)}] {one.run.title}"
            waiting.append(_Job(one, request, title))
    failures = jobs.run(waiting, slots)
    jobs.raise_failures(failures, len(scorings), "Scoring")


class Scoring:
    """The scoring of a run's model, in two halves: a request and its result.

    Args:
        run: The run.
        checkpoint: str. Prefix of its model.
        test_set: The lines to translate.
        folder: The cache: `translations/NAME.txt`, `scores/NAME.json` and
            `attention/NAME.json`; for further test sets, `translations/SET/`
            and `scores/SET/`. What is missing, or belongs to another model or
            other lines, is requested.
        attention_sources: Lines whose attention to describe; perhaps none.
        further: More test sets.
    """

    def __init__(
        self,
        run: runs_lib.Run,
        checkpoint: str,
        test_set: test_sets.TestSet,
        folder: pathlib.Path,
        attention_sources: Sequence[str] = (),
        further: Sequence[test_sets.TestSet] = (),
    ):
        self.run = run
        self.log = folder / "logs" / f"{run.name}.score.log"
        self.task = f"Scoring of {run.title}"
        self._checkpoint = checkpoint
        self._first = _Entry(
            run, checkpoint, test_set, folder, attention_sources
        )
        self._further = {
            one.name: _Entry(run, checkpoint, one, folder, (), one.name)
            for one in further
        }

    @property
    def num_missing_lines(self) -> int:
        """The number of lines to translate."""
        return sum(one.num_lines for one in self._missing())

    def request(self, at_once: int = 1) -> bytes:
        """Returns the input of `SCORER` that computes what is missing.

        Args:
            at_once: int. How many processes share the machine meanwhile, for
                the record of the time.

        Returns:
            bytes, empty if nothing is missing. The folders of the results have
            been made.
        """
        first = self._first
        request = {
            "checkpoint": self._checkpoint,
            "scores": [one.score_request(at_once) for one in self._missing()],
            "attention": (
                None if first.attention() else first.attention_request()
            ),
        }
        if not request["scores"] and not request["attention"]:
            return b""
        for one in (first, *self._further.values()):
            one.make_folders()
        return json.dumps(request).encode()

    def result(self) -> ModelResult:
        """Returns the result, once nothing is missing."""
        entry = self._first
        attention = entry.attention() or _NO_ATTENTION
        error = attention["error"]
        return ModelResult(
            self.run,
            self._checkpoint,
            entry.translations(),
            entry.scores(),
            attention["attention"],
            f"{self.run.title}: no attention: {error}" if error else "",
            {name: one.translations() for name, one in self._further.items()},
        )

    def _missing(self):
        """Returns the entries without scores."""
        entries = (self._first, *self._further.values())
        return [one for one in entries if not one.scores()]


def has_scores(folder: pathlib.Path, name: str) -> bool:
    """Returns whether a model was ever scored.

    Args:
        folder: The cache, see `score`.
        name: str. The name of its run.
    """
    return _scores_path(folder, "", name).is_file()


def _scores_path(folder, set_name, run_name):
    return folder / "scores" / set_name / f"{run_name}.json"


class _Job:
    """The process of a scoring, as a `jobs.Job`."""

    def __init__(self, scoring, request, title):
        self._scoring = scoring
        self._request = request
        self.title = scoring.run.title
        self._start = f"{title}  translating {scoring.num_missing_lines} lines."

    def is_ready(self) -> bool:
        """True: its checkpoint is there."""
        return True

    def is_elsewhere(self) -> bool:
        """Whether a scorer of an earlier command, killed, still runs."""
        return locks.is_locked(self._scoring.log)

    def start(self, slot: slots_lib.Slot) -> child_process.Child:
        child = child_process.Child(
            SCORER,
            self._scoring.log,
            self._scoring.task,
            self._request,
            slot.environment,
            slot.cores,
        )
        _log.info("%s", self._start)
        return child

    def watch(self) -> None:
        """Does nothing: a scorer has no progress."""

    def finish(self, child: child_process.Child) -> None:
        child.check()


class _Entry:
    """The cached files of one model, and the keys that they must have.

    Args:
        run, checkpoint, test_set, folder, attention_sources: See `score`.
        name: str. The folder of a further test set; "" for the first.
    """

    def __init__(
        self, run, checkpoint, test_set, folder, attention_sources, name=""
    ):
        self._translations_path = (
            folder / "translations" / name / f"{run.name}.txt"
        )
        self._scores_path = _scores_path(folder, name, run.name)
        self._attention_path = folder / "attention" / f"{run.name}.json"
        self._test_set = test_set
        self._sources = attention_sources
        hparams = run.files.read_hparams()
        model = {
            "format": _FORMAT,
            "checkpoint": files.sha256(f"{checkpoint}{run_dir.CHECKPOINT}"),
            "beam_size": hparams.beam_size,
            "alpha": hparams.alpha,
            "extra_length": hparams.extra_length,
        }
        lines = "\n".join(attention_sources).encode()
        self._scores_key = model | {"test_set": test_set.fingerprint}
        self._attention_key = model | {
            "sources": hashlib.sha256(lines).hexdigest()
        }

    @property
    def num_lines(self) -> int:
        return len(self._test_set.sources)

    def make_folders(self) -> None:
        for path in (
            self._translations_path,
            self._scores_path,
            self._attention_path,
        ):
            path.parent.mkdir(parents=True, exist_ok=True)

    def scores(self) -> dict[str, Any] | None:
        """Returns the scores, or None unless translations belong to them."""
        record = _read_record(
            self._scores_path, self._scores_key, _SCORE_FIELDS
        )
        path = self._translations_path
        if record is None or not path.is_file():
            return None
        checksum = files.sha256(path)
        return record if checksum == record["translations_sha256"] else None

    def translations(self) -> list[str]:
        return list(text.read_lines(self._translations_path))

    def attention(self) -> dict[str, Any] | None:
        """Returns the attention to the sources, or None."""
        if not self._sources:
            return _NO_ATTENTION
        return _read_record(
            self._attention_path, self._attention_key, _ATTENTION_FIELDS
        )

    def score_request(self, at_once: int) -> dict[str, Any]:
        """Returns the arguments of `score_process.score`."""
        return {
            "source": str(self._test_set.source_path),
            "translations": str(self._translations_path),
            "scores": str(self._scores_path),
            "key": self._scores_key,
            "jobs": at_once,
        }

    def attention_request(self) -> dict[str, Any]:
        """Returns the arguments of `score_process.describe_attention`."""
        return {
            "sources": list(self._sources),
            "path": str(self._attention_path),
            "key": self._attention_key,
        }


def _read_record(path, key, fields):
    """Returns a record if it is whole and has the key, else None."""
    try:
        record = checked_json.loads(path.read_bytes(), fields, ("key", *fields))
    except (FileNotFoundError, ValueError):
        return None
    return record if record["key"] == key else None
