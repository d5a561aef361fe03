"""Translates a test set with one model: `python -m` this, given a request.

Only here does a comparison need TensorFlow. The process that it takes gives
back the memory of the model and of its graphs, of which TensorFlow frees none.
"""

import json
import sys
import time
from collections.abc import Sequence
from typing import Any

from relpos_tf import errors
from relpos_tf.comparison import attention_maps
from relpos_tf.data import batching
from relpos_tf.data import records
from relpos_tf.decoding import loading
from relpos_tf.decoding import translator as translator_lib
from relpos_tf.training import evaluation
from relpos_tf.utils import files
from relpos_tf.utils import system_errors
from relpos_tf.utils import text


def carry_out(request: dict[str, Any]) -> None:
    """Loads a model and does with it what is asked.

    Args:
        request: dict of `checkpoint`, its prefix, and of `score` and
            `attention`, the arguments of the functions below, or None.

    Raises:
        UserError: a file is damaged, or the checkpoint is not what it should
            be.
    """
    if request["score"]:
        score(request["checkpoint"], **request["score"])
    if request["attention"]:
        describe_attention(request["checkpoint"], **request["attention"])


def score(
    checkpoint: str,
    source: str,
    record_files: Sequence[str],
    translations: str,
    scores: str,
    key: dict[str, Any],
) -> None:
    """Translates a file, and measures the loss on the same pairs.

    Args:
        checkpoint: str. Prefix of the model's.
        source: str. The file of lines.
        record_files: TFRecord files of the pairs.
        translations: str. A file to write.
        scores: str. Another, JSON.
        key: Goes into the scores, to be known by.

    Raises:
        UserError: see `carry_out`.
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
            loading.tokenizer_path_of(checkpoint)
        ),
    }
    dataset = batching.evaluation_batches(
        record_files, batch_size=model.hparams.batch_size, **made_by
    )
    dataset = records.guarded(dataset, record_files, **made_by)
    encoded = tokenizer.encode_batch([line.strip() for line in lines])
    _write(
        scores,
        {
            "key": key,
            "translations_sha256": files.sha256(translations),
            "parameters": int(model.count_params()),
            "translation_seconds": seconds,
            "source_lengths": [len(ids) for ids in encoded],
            **evaluation.teacher_forced(model, dataset),
        },
    )


def describe_attention(
    checkpoint: str, sources: Sequence[str], path: str, key: dict[str, Any]
) -> None:
    """Writes down where a model looks, or why that is not known.

    Pictures are no reason to lose the figures.

    Args:
        checkpoint: str. Prefix of the model's.
        sources: Lines.
        path: str. A file to write, JSON.
        key: Goes into it, to be known by.
    """
    found, error = {}, ""
    try:
        found = attention_maps.describe(checkpoint, sources)
    except errors.UserError as reason:
        error = str(reason)
    _write(path, {"key": key, "attention": found, "error": error})


def main(content: bytes) -> int:
    """Carries out the request that the content is, as JSON."""
    try:
        with system_errors.explained(
            "Set a smaller batch_size for these sets."
        ):
            carry_out(json.loads(content))
    except errors.UserError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _write(path, record):
    with text.writer(path, None) as write:
        write(json.dumps(record))


if __name__ == "__main__":
    sys.exit(main(sys.stdin.buffer.read()))
