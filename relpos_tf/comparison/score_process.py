"""Scores one model: `python -m` this, with a request on standard input.

Only this part of a comparison needs TensorFlow, which never frees the memory
of models and graphs; the end of the process does.
"""

import collections
import json
import pathlib
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from relpos_tf import errors
from relpos_tf.comparison import attention_maps
from relpos_tf.comparison import words as words_lib
from relpos_tf.data import batches
from relpos_tf.data import tokenizer as tokenizer_lib
from relpos_tf.decoding import translator as translator_lib
from relpos_tf.problems import manifest
from relpos_tf.training import evaluation
from relpos_tf.utils import files
from relpos_tf.utils import system_errors
from relpos_tf.utils import text

_PAIRS = 4096  # that are decoded at once


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
    translations: str,
    scores: str,
    key: dict[str, Any],
    jobs: int = 1,
) -> None:
    """Translates a file, and computes the loss on the same pairs.

    Args:
        checkpoint: str. Prefix of the checkpoint.
        source: str. The file of lines, in a folder of prepared data.
        translations: str. The file to write the translations to.
        scores: str. The file to write the scores to, as JSON.
        key: Identifies the scores, and is written with them.
        jobs: int. How many processes share the machine; it is written as well.

    Raises:
        UserError: see `run_request`.
    """
    translator = translator_lib.Translator.load(checkpoint)
    model, tokenizer = translator.engine.model, translator.engine.tokenizer
    lines = list(text.read_nonempty(source))
    started = time.monotonic()
    with text.writer(translations, None) as write:
        for translation in translator.translations(lines):
            write(translation.texts[0])
    seconds = time.monotonic() - started
    folder, split = pathlib.Path(source).parent, pathlib.Path(source).stem
    dataset = batches.evaluation_batches(
        manifest.tokens(folder, manifest.read_manifest(folder), split),
        model.hparams.batch_size,
    )
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
    data: str,
    tokenizer: str,
    most_pairs: int,
    max_length: int,
    path: str,
    key: dict[str, Any],
) -> None:
    """Writes how often words occur in the targets of training pairs.

    Args:
        words: The words.
        data: str. Folder of prepared data.
        tokenizer: str. File of its tokenizer.
        most_pairs: int. Of more pairs, as many are taken at equal distances.
        max_length: int. Pairs with more ids on a side are not counted, as they
            are not trained on.
        path: str. The file to write, JSON.
        key: Identifies the frequencies, and is written with them.

    Raises:
        UserError: see `run_request`.
    """
    spelled = tokenizer_lib.load(tokenizer)
    folder = pathlib.Path(data)
    tokens = manifest.tokens(folder, manifest.read_manifest(folder), "train")
    step = -(-len(tokens) // most_pairs)
    [short] = np.nonzero((tokens.lengths <= max_length).all(axis=1))
    counts = collections.Counter()
    for pairs in np.array_split(short[::step], -(-len(short) // _PAIRS)):
        texts = tokens.rows(
            tokens.starts(pairs)[:, 1], tokens.lengths[pairs, 1].astype(int)
        )
        rows = np.split(texts.ids, np.cumsum(texts.lengths)[:-1])
        counts.update(words_lib.count(map(spelled.decode, rows)))
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
