"""How often words occur in the training data, counted once. No TensorFlow."""

import hashlib
import json
import logging
import pathlib
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from relpos_tf import errors
from relpos_tf.comparison import child_process
from relpos_tf.comparison import runs as runs_lib
from relpos_tf.comparison import score_cache
from relpos_tf.comparison import words as words_lib
from relpos_tf.problems import manifest
from relpos_tf.problems import test_sets
from relpos_tf.utils import checked_json

_log = logging.getLogger("relpos_tf")
# Of a larger corpus, as many pairs are counted.
MOST_PAIRS = 1_000_000
_FIELDS = {"frequencies": dict[str, int]}


def in_training(
    lines: Iterable[str],
    runs: Sequence[runs_lib.Run],
    data_dir: str,
    problem: Mapping[str, Any],
    folder: pathlib.Path,
) -> tuple[dict[str, int] | None, str]:
    """Returns how often words occur in the targets of the training pairs.

    Pairs that are too long for training are not counted.

    Args:
        lines: The lines whose words to look up.
        runs: The runs, which have the tokenizer and `max_length`.
        data_dir: str. Folder of prepared data.
        problem: See `test_sets.problem_of`.
        folder: The cache: `frequencies.json`, which is made again only if the
            words or the training pairs are others.

    Returns:
        A pair: frequencies by word, without words that do not occur; and why
        there are none, else empty. Scores do not need them.
    """
    try:
        return _in_training(lines, runs, data_dir, problem, folder), ""
    except errors.UserError as error:
        return None, f"No words by frequency: {error}"


def _in_training(lines, runs, data_dir, problem, folder):
    """Returns the frequencies.

    Raises:
        UserError: the data are unknown, or the labels were not trained on the
            same pairs.
    """
    longest = sorted({run.hparams().max_length for run in runs})
    if len(longest) > 1:
        raise errors.UserError(
            "the runs were not trained on the same pairs, but on those up to "
            f"max_length {' and '.join(map(str, longest))}."
        )
    data, stored = test_sets.prepared_data(data_dir, problem)
    manifest.tokens(data, stored, "train")  # raises if a file is damaged
    wanted = sorted(words_lib.count(lines))
    key = {
        "words": hashlib.sha256("\n".join(wanted).encode()).hexdigest(),
        "tokenizer": problem["tokenizer_sha256"],
        "train": problem["data"]["train"],
        "most_pairs": MOST_PAIRS,
        "max_length": longest[0],
    }
    path = folder / "frequencies.json"
    record = _read(path, key)
    if record is None:
        _log.info("Counting words in the training data.")
        request = {
            "words": wanted,
            "data": str(data),
            "tokenizer": str(runs[0].files.tokenizer_path),
            "most_pairs": MOST_PAIRS,
            "max_length": longest[0],
            "path": str(path),
            "key": key,
        }
        folder.mkdir(parents=True, exist_ok=True)
        child_process.run(
            score_cache.SCORER,
            folder / "logs" / "frequencies.log",
            "Counting words in the training data",
            content=json.dumps({"frequencies": request}).encode(),
        )
        record = _read(path, key)
    return record["frequencies"]


def _read(path, key):
    """Returns the record if it is whole and has the key, else None."""
    try:
        record = checked_json.loads(
            path.read_bytes(), _FIELDS, ("key", *_FIELDS)
        )
    except (FileNotFoundError, ValueError):
        return None
    return record if record["key"] == key else None
