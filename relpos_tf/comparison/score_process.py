"""Scores one model: `python -m` this, with a request on standard input.

Only this part of a comparison needs TensorFlow, which never frees the memory
of models and graphs; the end of the process does.
"""

import json
import sys
import time
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from relpos_tf import errors
from relpos_tf.comparison import attention_maps
from relpos_tf.comparison import words as words_lib
from relpos_tf.data import batching
from relpos_tf.data import records
from relpos_tf.data import tokenizer as tokenizer_lib
from relpos_tf.decoding import translator as translator_lib
from relpos_tf.models import run_dir
from relpos_tf.training import evaluation
from relpos_tf.utils import files
from relpos_tf.utils import system_errors
from relpos_tf.utils import text


def run_request(request: dict[str, Any]) -> None:
    """Loads a model and scores it, describes its attention, or both.

    Args:
        request: dict of `checkpoint`, its prefix, of `scores`, a list of
            arguments of `score`, and of `attention`, the arguments of
            `describe_attention` or None. Or dict of `frequencies`, the
            arguments of `count_words`.

    Raises:
        UserError: a file or the checkpoint is damaged.
    """
    if "frequencies" in request:
        count_words(**request["frequencies"])
        return
    for arguments in request["scores"]:
        score(request["checkpoint"], **arguments)
    if request["attention"]:
        describe_attention(request["checkpoint"], **request["attention"])


def score(
    checkpoint: str,
    source: str,
    record_files: Sequence[str],
    translations: str,
    scores: str,
    key: dict[str, Any],
    jobs: int = 1,
) -> None:
    """Translates a file, and computes the loss on the same pairs.

    Args:
        checkpoint: str. Prefix of the checkpoint.
        source: str. The file of lines.
        record_files: TFRecord files of the pairs.
        translations: str. The file to write the translations to.
        scores: str. The file to write the scores to, as JSON.
        key: Identifies the scores, and is written with them.
        jobs: int. How many processes share the machine; it is written as well.

    Raises:
        UserError: see `run_request`.
    """
    translator = translator_lib.Translator.load_run(checkpoint)
    model, tokenizer = translator.engine.model, translator.engine.tokenizer
    lines = list(text.read_nonempty(source))
    started = time.monotonic()
    with text.writer(translations, None) as write:
        for line in translator.translate_lines(lines):
            write(line)
    seconds = time.monotonic() - started
    made_by = {
        "vocab_size": model.hparams.vocab_size,
        "tokenizer": records.tokenizer_mark(
            run_dir.tokenizer_path_of(checkpoint)
        ),
    }
    dataset = batching.evaluation_batches(
        record_files, batch_size=model.hparams.batch_size, **made_by
    )
    dataset = records.guarded(dataset, record_files, **made_by)
    encoded = tokenizer.encode_batch([line.strip() for line in lines])
    record = {
        "key": key,
        "translations_sha256": files.sha256(translations),
        "parameters": int(model.count_params()),
        "translation_seconds": seconds,
        "jobs": jobs,
        "source_lengths": [len(ids) for ids in encoded],
        **evaluation.teacher_forced(model, dataset),
    }
    files.write(scores, f"{json.dumps(record)}\n")


def describe_attention(
    checkpoint: str, sources: Sequence[str], path: str, key: dict[str, Any]
) -> None:
    """Writes a description of the attention, or why there is none.

    A model without attention figures still has its scores.

    Args:
        checkpoint: str. Prefix of the checkpoint.
        sources: Lines.
        path: str. The file to write, JSON.
        key: Identifies the description, and is written with it.
    """
    attention, error = {}, ""
    try:
        attention = attention_maps.describe(checkpoint, sources)
    except errors.UserError as reason:
        error = str(reason)
    record = {"key": key, "attention": attention, "error": error}
    files.write(path, f"{json.dumps(record)}\n")


def count_words(
    words: Sequence[str],
    record_files: Sequence[str],
    tokenizer: str,
    most_pairs: int,
    max_length: int,
    path: str,
    key: dict[str, Any],
) -> None:
    """Writes how often words occur in the targets of training records.

    Args:
        words: The words.
        record_files: TFRecord files.
        tokenizer: str. File of the tokenizer that made them.
        most_pairs: int. Further pairs are not read.
        max_length: int. Pairs with more ids on a side are not counted, as they
            are not trained on.
        path: str. The file to write, JSON.
        key: Identifies the frequencies, and is written with them.

    Raises:
        UserError: see `run_request`.
    """
    spelled = tokenizer_lib.load(tokenizer)
    dataset = tf.data.TFRecordDataset(list(record_files)).take(most_pairs)
    pairs = dataset.map(records.parse).filter(
        lambda pair: (
            tf.size(pair["inputs"]) <= max_length
            and tf.size(pair["targets"]) <= max_length
        )
    )
    targets = pairs.map(lambda pair: pair["targets"])
    counts = words_lib.count(
        spelled.decode(ids)
        for ids in records.guarded(targets.as_numpy_iterator(), record_files)
    )
    record = {
        "key": key,
        "frequencies": {w: counts[w] for w in words if counts[w]},
    }
    files.write(path, f"{json.dumps(record)}\n")


def main(content: bytes) -> int:
    """Runs a request, given as JSON; returns the exit code."""
    try:
        with system_errors.explained(
            "Set a smaller batch_size for these sets."
        ):
            run_request(json.loads(content))
    except errors.UserError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.stdin.buffer.read()))
