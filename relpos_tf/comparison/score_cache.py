"""The scores of a comparison's models, each computed once. No TensorFlow."""

import hashlib
import json
import logging
import pathlib
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

from relpos_tf import errors
from relpos_tf.comparison import child_process
from relpos_tf.comparison import runs as runs_lib
from relpos_tf.models import run_dir
from relpos_tf.problems import manifest as manifest_lib
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


class TestSet(NamedTuple):
    """The lines that all models translate.

    Attributes:
        split: str. "test" or "dev".
        sources: The lines.
        references: Their translations.
        source_path: File of the lines.
        records: TFRecord files of the same pairs.
        fingerprint: str. Checksum of the content.
    """

    split: str
    sources: list[str]
    references: list[str]
    source_path: pathlib.Path
    records: list[str]
    fingerprint: str


class ModelResult(NamedTuple):
    """The result of a run's model on the test set.

    Attributes:
        run: The run.
        checkpoint: str. Prefix of the model.
        translations: One for each line.
        record: dict of `loss`, `parameters`, `source_lengths` and more, as
            `score_process.score` writes it.
        attention: dict, as of `attention_maps.describe`; empty if it was not
            asked for.
        warning: str. Why there is no attention, else empty.
    """

    run: runs_lib.Run
    checkpoint: str
    translations: list[str]
    record: dict[str, Any]
    attention: dict[str, Any] = {}
    warning: str = ""


def open_test_set(
    data_dir: str, problem: dict[str, Any], use_test_set: bool
) -> TestSet:
    """Returns the lines on which models are compared.

    Args:
        data_dir: str. Folder of prepared data.
        problem: See `runs.problem_of`.
        use_test_set: bool. Whether to take the test split if there is one.

    Raises:
        UserError: the data are missing, or differ from the data of the runs.
    """
    folder, manifest = _prepared_data(data_dir, problem)
    has_test = "test" in manifest["counts"]
    split = "test" if use_test_set and has_test else "dev"
    source, target = (
        manifest_lib.checked(folder, manifest, f"{split}.{side}")
        for side in ("source", "target")
    )
    return TestSet(
        split,
        list(text.read_lines(source)),
        list(text.read_lines(target)),
        source,
        manifest_lib.record_files(folder, manifest, split),
        manifest_lib.fingerprints(manifest)[split],
    )


def score(
    run: runs_lib.Run,
    checkpoint: str,
    test_set: TestSet,
    folder: pathlib.Path,
    progress: str,
    attention_sources: Sequence[str] = (),
) -> ModelResult:
    """Returns the result of a run's model on the test set.

    Args:
        run: The run.
        checkpoint: str. Prefix of its model.
        test_set: The lines to translate.
        folder: The cache: `translations/NAME.txt`, `scores/NAME.json` and
            `attention/NAME.json`. They are computed only if they are missing
            or belong to another model or other lines.
        progress: str. Beginning of the progress line.
        attention_sources: Lines whose attention to describe; perhaps none.

    Raises:
        UserError: the model cannot be loaded, or scoring failed.
    """
    entry = _Entry(run, checkpoint, test_set, folder, attention_sources)
    request = {
        "checkpoint": checkpoint,
        "score": None if entry.scores() else entry.score_request(),
        "attention": None if entry.attention() else entry.attention_request(),
    }
    if request["score"] or request["attention"]:
        _log.info("%s  translating %d lines.", progress, len(test_set.sources))
        entry.make_folders()
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
        list(text.read_lines(entry.translations_path)),
        entry.scores(),
        attention["attention"],
        f"{run.title}: no attention: {error}" if error else "",
    )


class _Entry:
    """The cached files of one model, and the keys that they must have.

    Args:
        run, checkpoint, test_set, folder, attention_sources: See `score`.
    """

    def __init__(self, run, checkpoint, test_set, folder, attention_sources):
        self.translations_path = folder / "translations" / f"{run.name}.txt"
        self._scores_path = folder / "scores" / f"{run.name}.json"
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

    def make_folders(self) -> None:
        for path in (
            self.translations_path,
            self._scores_path,
            self._attention_path,
        ):
            path.parent.mkdir(parents=True, exist_ok=True)

    def scores(self) -> dict[str, Any] | None:
        """Returns the scores, or None unless translations belong to them."""
        record = _read_record(
            self._scores_path, self._scores_key, _SCORE_FIELDS
        )
        path = self.translations_path
        if record is None or not path.is_file():
            return None
        checksum = files.sha256(path)
        return record if checksum == record["translations_sha256"] else None

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
            "translations": str(self.translations_path),
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


def _prepared_data(data_dir, problem):
    """Returns the folder and the manifest of the runs' data."""
    name, fingerprints = problem["problem"], problem.get("data", {})
    others = []
    for folder in manifest_lib.folders(data_dir, name):
        if not (folder / manifest_lib.MANIFEST).is_file():
            continue
        manifest = manifest_lib.read_manifest(folder)
        tokenizers = {
            manifest["files"].get(file_name, {}).get("sha256")
            for file_name in (run_dir.TOKENIZER, run_dir.SUBWORDS)
        }
        # Runs of earlier versions have no fingerprints.
        is_same = problem["tokenizer_sha256"] in tokenizers and all(
            fingerprints.get(split, fingerprint) == fingerprint
            for split, fingerprint in manifest_lib.fingerprints(
                manifest
            ).items()
        )
        if is_same:
            return folder, manifest
        others.append(str(folder))
    raise errors.UserError(
        f"Expected the data of {name} that the runs were trained on, in "
        f"--data_dir={data_dir}. Received: "
        + (f"other data, in {', '.join(others)}." if others else "none.")
        + " Prepare them with relpos-datagen."
    )
