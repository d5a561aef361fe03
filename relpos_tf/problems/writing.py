"""Writes the files of a prepared problem, one function per kind of file.

Imports TensorFlow, so `problem` imports this module only to prepare data.
"""

import collections
import itertools
import logging
import pathlib
import random
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from typing import Any

from relpos_tf import errors
from relpos_tf.data import records
from relpos_tf.data import tokenizer
from relpos_tf.utils import files
from relpos_tf.utils import text

_log = logging.getLogger("relpos_tf")
# Pairs with more ids on a side than this are not written for training.
MAX_TOKENS = 1024
_BATCH = 4096
_SEED = 429459

Pairs = Iterable[tuple[str, str]]


def learn_tokenizer(
    path: pathlib.Path,
    pairs: Pairs,
    *,
    vocab_size: int,
    character_coverage: float,
    most_pairs: int,
) -> None:
    """Learns the shared vocabulary from both sides of training pairs.

    Args:
        path: Where the model goes.
        pairs: Cleaned training pairs.
        vocab_size: int. Pieces wanted.
        character_coverage: float. See `tokenizer.train`.
        most_pairs: int. Of more pairs, as many are drawn with equal
            probability.
    """
    # Reservoir sampling.
    generator = random.Random(_SEED)
    sample = []
    for count, pair in enumerate(pairs):
        if count < most_pairs:
            sample.append(pair)
        elif (index := generator.randrange(count + 1)) < most_pairs:
            sample[index] = pair
    if not sample:
        raise errors.UserError(
            "Expected training pairs. Received: none that pass cleaning. "
            "Check the contents of the two files."
        )
    lines = (line for pair in sample for line in pair)
    tokenizer.train(lines, path, vocab_size, character_coverage)


def write_training(
    folder: pathlib.Path,
    pairs: Pairs,
    tokens: tokenizer.AnyTokenizer,
    num_shards: int,
    counts: collections.Counter,
    lengths: collections.Counter,
) -> int:
    """Writes the training files, shuffled; returns the number of pairs.

    Args:
        folder: Gets the files.
        pairs: Cleaned training pairs.
        tokens: The tokenizer.
        num_shards: int. Number of files.
        counts: Counter. Gains `tokens`: pairs dropped because they have more
            than `MAX_TOKENS` ids on a side.
        lengths: Counter. Gains the pairs written, by the number of ids of the
            longer side.
    """

    def encoded() -> Iterator[tuple[list[int], list[int]]]:
        for inputs, targets in _encode(pairs, tokens):
            length = max(len(inputs), len(targets))
            if length > MAX_TOKENS:
                counts["tokens"] += 1
            else:
                lengths[length] += 1
                yield inputs, targets

    paths = shard_paths(folder, "train", num_shards)
    written = records.write(encoded(), paths)
    if not written:
        raise errors.UserError(
            f"No training pair has at most {MAX_TOKENS} tokens on both sides."
        )
    for number, path in enumerate(paths):
        records.shuffle_file(path, seed=_SEED + number)
    return written


def write_held_out(
    folder: pathlib.Path,
    split: str,
    pairs: Pairs,
    normalize: Callable[[str], str],
    tokens: tokenizer.AnyTokenizer,
) -> int:
    """Writes the lines and the records of "dev" or a test set, in order.

    All pairs are written, and references stay as they are.

    Args:
        folder: Gets the files.
        split: str. "dev", "test" or the name of another test set.
        pairs: Its pairs of lines.
        normalize: Applied to the source side.
        tokens: The tokenizer.

    Returns:
        The number of pairs.
    """
    pairs = [(normalize(source), target) for source, target in pairs]
    for side, name in enumerate(("source", "target")):
        lines = [pair[side] for pair in pairs]
        text.write_lines(folder / f"{split}.{name}", lines)
        if broken := text.count_broken(lines):
            _log.warning(
                "%d of %d lines of the %s set's %s are not UTF-8: their "
                "undecodable bytes are read as U+FFFD, and scores mean little. "
                "Convert the file, as with iconv -f latin1 -t utf-8.",
                broken,
                len(lines),
                split,
                name,
            )
    return records.write(_encode(pairs, tokens), shard_paths(folder, split, 1))


def shard_paths(
    folder: pathlib.Path, split: str, num_shards: int
) -> list[pathlib.Path]:
    """Returns the paths of a split's record files."""
    return [
        folder / f"{split}-{i:05d}-of-{num_shards:05d}.tfrecord"
        for i in range(num_shards)
    ]


def finish(
    folder: pathlib.Path, tokenizer_path: pathlib.Path
) -> dict[str, dict[str, Any]]:
    """Marks records with their tokenizer; returns the entries of the manifest.

    Args:
        folder: Has all files but the manifest.
        tokenizer_path: The file of the tokenizer, in that folder.

    Returns:
        For each file name, `bytes` and `sha256`; for record files also
        `sha256_unmarked`, which identifies the data of runs that are older
        than the marks.
    """
    mark = records.tokenizer_mark(tokenizer_path)
    described = {}
    for path in sorted(folder.iterdir()):
        entry = described[path.name] = {}
        if path.suffix == ".tfrecord":
            entry["sha256_unmarked"] = files.sha256(path)
            records.mark(path, mark)
        entry["bytes"] = path.stat().st_size
        entry["sha256"] = files.sha256(path)
    return described


def _encode(
    pairs: Pairs, tokens: tokenizer.AnyTokenizer
) -> Iterator[tuple[list[int], list[int]]]:
    """Yields pairs of ids, many encoded at once for speed."""
    iterator = iter(pairs)
    while batch := list(itertools.islice(iterator, _BATCH)):
        sources, targets = zip(*batch, strict=True)
        yield from zip(
            tokens.encode_batch(sources),
            tokens.encode_batch(targets),
            strict=True,
        )
