"""The scores of a comparison's models, each computed once. No TensorFlow."""

import hashlib
import json
import logging
import pathlib
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

from relpos_tf.comparison import child_process
from relpos_tf.comparison import runs as runs_lib
from relpos_tf.comparison import systems
from relpos_tf.problems import test_sets
from relpos_tf.utils import checked_json
from relpos_tf.utils import files
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


def score(
    run: runs_lib.Run,
    checkpoint: str,
    test_set: test_sets.TestSet,
    folder: pathlib.Path,
    progress: str,
    attention_sources: Sequence[str] = (),
    further: Sequence[test_sets.TestSet] = (),
) -> ModelResult:
    """Returns the result of a run's model on the test sets.

    Args:
        run: The run.
        checkpoint: str. Prefix of its model.
        test_set: The lines to translate.
        folder: The cache: `translations/NAME.txt`, `scores/NAME.json` and
            `attention/NAME.json`; for further test sets, `translations/SET/`
            and `scores/SET/`. They are computed only if they are missing or
            belong to another model or other lines.
        progress: str. Beginning of the progress line.
        attention_sources: Lines whose attention to describe; perhaps none.
        further: More test sets.

    Raises:
        UserError: the model cannot be loaded, or scoring failed.
    """
    entry = _Entry(run, checkpoint, test_set, folder, attention_sources)
    more = {
        one.name: _Entry(run, checkpoint, one, folder, (), one.name)
        for one in further
    }
    missing = [e for e in (entry, *more.values()) if not e.scores()]
    request = {
        "checkpoint": checkpoint,
        "scores": [one.score_request() for one in missing],
        "attention": None if entry.attention() else entry.attention_request(),
    }
    if request["scores"] or request["attention"]:
        lines = sum(one.num_lines for one in missing)
        _log.info("%s  translating %d lines.", progress, lines)
        for one in (entry, *more.values()):
            one.make_folders()
        child_process.run(
            SCORER,
            folder / "logs" / f"{run.name}.score.log",
            f"Scoring of {run.title}",
            content=json.dumps(request).encode(),
        )
    attention = entry.attention() or _NO_ATTENTION
    error = attention["error"]
    return ModelResult(
        run,
        checkpoint,
        entry.translations(),
        entry.scores(),
        attention["attention"],
        f"{run.title}: no attention: {error}" if error else "",
        {name: one.translations() for name, one in more.items()},
    )


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
        self._scores_path = folder / "scores" / name / f"{run.name}.json"
        self._attention_path = folder / "attention" / f"{run.name}.json"
        self._test_set = test_set
        self._sources = attention_sources
        hparams = run.files.read_hparams()
        model = {
            "format": _FORMAT,
            # The index holds a checksum of each variable.
            "checkpoint": files.sha256(f"{checkpoint}.index"),
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

    def score_request(self) -> dict[str, Any]:
        """Returns the arguments of `score_process.score`."""
        return {
            "source": str(self._test_set.source_path),
            "record_files": self._test_set.records,
            "translations": str(self._translations_path),
            "scores": str(self._scores_path),
            "key": self._scores_key,
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
        record = checked_json.loads(path.read_bytes(), fields)
    except (FileNotFoundError, ValueError):
        return None
    is_whole = {"key", *fields} <= record.keys()
    return record if is_whole and record["key"] == key else None
