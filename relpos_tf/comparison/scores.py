"""The scores of a comparison's models, each found out once. No TensorFlow."""

import hashlib
import json
import logging
import pathlib
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

from relpos_tf import errors
from relpos_tf.comparison import processes
from relpos_tf.comparison import runs as runs_lib
from relpos_tf.models import run_dir
from relpos_tf.problems import manifest as manifest_lib
from relpos_tf.utils import checked_json
from relpos_tf.utils import files
from relpos_tf.utils import text

_log = logging.getLogger("relpos_tf")
# Raised when a model would get other scores or other attention than before.
_FORMAT = 1
# What is run in a process of its own. It reads its request.
SCORER = ("-m", "relpos_tf.comparison.scoring")


class TestSet(NamedTuple):
    """The lines that all models translate.

    Attributes:
        split: str. "test" or "dev".
        sources: The lines.
        references: Their translations.
        source_path: File of the lines.
        records: TFRecord files of the same pairs.
        fingerprint: str. What tells it from all others.
    """

    split: str
    sources: list[str]
    references: list[str]
    source_path: pathlib.Path
    records: list[str]
    fingerprint: str


class Scored(NamedTuple):
    """What one model made of the test set.

    Attributes:
        checkpoint: str. Its prefix.
        translations: One for each line.
        record: dict of `loss`, `parameters`, `source_lengths` and more, as
            `scoring.score` writes it.
        attention: dict, as of `attention_maps.describe`, empty if it was not
            asked for.
        warning: str. Why there is no attention, else empty.
    """

    checkpoint: str
    translations: list[str]
    record: dict[str, Any]
    attention: dict[str, Any]
    warning: str


def open_test_set(
    data_dir: str, problem: dict[str, Any], use_test_set: bool
) -> TestSet:
    """Returns the set that models are compared on.

    Args:
        data_dir: str. Where data were prepared.
        problem: What `runs.problem_of` says.
        use_test_set: bool. Whether to take the test split if there is one.

    Raises:
        UserError: the data are not there, or not those of the runs.
    """
    folder, manifest = _prepared(data_dir, problem)
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
    title: str,
    attention_sources: Sequence[str] = (),
) -> Scored:
    """Returns what a run's model makes of the test set.

    Args:
        run: The run.
        checkpoint: str. Prefix of its model.
        test_set: What to translate.
        folder: Has, or gets, `translations/NAME.txt`, `scores/NAME.json` and
            `attention/NAME.json`, which are not made again for the same model
            and lines.
        title: str. What progress lines begin with.
        attention_sources: Lines on which to look at attention; or none.

    Raises:
        UserError: the model cannot be loaded, or something else failed.
    """
    made = folder / "translations" / f"{run.name}.txt"
    record = folder / "scores" / f"{run.name}.json"
    looks = folder / "attention" / f"{run.name}.json"
    model = {
        "format": _FORMAT,
        "checkpoint": _identity(checkpoint),
        **_search(run),
    }
    key = model | {"test_set": test_set.fingerprint}
    looks_key = model | {"sources": _checksum(attention_sources)}
    request = {"checkpoint": checkpoint, "score": None, "attention": None}
    known = _known(record, key, _SCORED_FIELDS)
    if known is None or not _is_file(made, known["translations_sha256"]):
        request["score"] = {
            "source": str(test_set.source_path),
            "record_files": test_set.records,
            "translations": str(made),
            "scores": str(record),
            "key": key,
        }
    looked = _looked(looks, looks_key, attention_sources)
    if looked is None:
        request["attention"] = {
            "sources": list(attention_sources),
            "path": str(looks),
            "key": looks_key,
        }
    if request["score"] or request["attention"]:
        _log.info("%s  translating %d lines.", title, len(test_set.sources))
        for path in (made, record, looks):
            path.parent.mkdir(parents=True, exist_ok=True)
        processes.run(
            SCORER,
            folder / "logs" / f"{run.name}.score.log",
            f"Scoring of {run.title}",
            content=json.dumps(request).encode(),
        )
    looked = _looked(looks, looks_key, attention_sources) or _NO_LOOK
    return Scored(
        checkpoint,
        list(text.read_lines(made)),
        _known(record, key, _SCORED_FIELDS),
        looked["attention"],
        looked["error"] and f"{run.title}: no attention: {looked['error']}",
    )


def _identity(checkpoint):
    """Returns what tells a checkpoint's content from all others.

    An index has a checksum of each variable.
    """
    return files.sha256(f"{checkpoint}.index")


def _search(run):
    """Returns the hparams that the translation depends on."""
    hparams = run.files.read_hparams()
    names = "beam_size", "alpha", "extra_length"
    return {name: getattr(hparams, name) for name in names}


def _checksum(lines):
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


# What the two kinds of records have, which `scoring` writes.
_SCORED_FIELDS = {
    "translations_sha256": str,
    "parameters": int,
    "translation_seconds": float,
    "source_lengths": list[int],
    "loss": float,
    "teacher_forced_accuracy": float,
    "target_tokens": int,
}
_ATTENTION_FIELDS = {"attention": dict, "error": str}
_NO_LOOK = {"attention": {}, "error": ""}


def _known(path, key, fields):
    """Returns a record that was made with this key, or None."""
    try:
        found = checked_json.loads(path.read_bytes(), fields)
    except (FileNotFoundError, ValueError):
        return None
    is_whole = {"key", *fields} <= found.keys()
    return found if is_whole and found["key"] == key else None


def _looked(path, key, sources):
    """Returns what is known of attention to lines; of no lines, nothing."""
    if not sources:
        return _NO_LOOK
    return _known(path, key, _ATTENTION_FIELDS)


def _is_file(path, checksum):
    return path.is_file() and files.sha256(path) == checksum


def _prepared(data_dir, problem):
    """Returns the folder and manifest of the runs' data."""
    name, known = problem["problem"], problem.get("data", {})
    found = []
    for folder in manifest_lib.folders(data_dir, name):
        if not (folder / manifest_lib.MANIFEST).is_file():
            continue
        found.append(str(folder))
        manifest = manifest_lib.read_manifest(folder)
        tokenizers = {
            manifest["files"].get(file_name, {}).get("sha256")
            for file_name in (run_dir.TOKENIZER, run_dir.SUBWORDS)
        }
        marks = manifest_lib.fingerprints(manifest)
        is_same = problem["tokenizer_sha256"] in tokenizers and all(
            known.get(split, fingerprint) == fingerprint
            for split, fingerprint in marks.items()
        )
        if is_same:
            return folder, manifest
    raise errors.UserError(
        f"Expected the data of {name} that the runs were trained on, in "
        f"--data_dir={data_dir}. Received: "
        + (f"others, in {', '.join(found)}." if found else "none.")
        + " Prepare them with relpos-datagen."
    )
