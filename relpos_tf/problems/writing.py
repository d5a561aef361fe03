"""Writing the files of a prepared problem, one function per kind of file."""

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
        most_pairs: int. Where there are more, that many are drawn from all of
            them with equal chances.
    """
    # SentencePiece comes with TensorFlow's text ops, which nobody should wait
    # for who only lists problems.
    from relpos_tf.data import tokenizer

    drawn = random.Random(_SEED)
    sample = []
    for count, pair in enumerate(pairs):
        if count < most_pairs:
            sample.append(pair)
        elif (place := drawn.randrange(count + 1)) < most_pairs:
            sample[place] = pair
    if not sample:
        raise errors.UserError(
            "Expected training pairs. Received: none that pass cleaning. "
            "Check that the two files are what they should be."
        )
    lines = (line for pair in sample for line in pair)
    tokenizer.train(lines, path, vocab_size, character_coverage)


def write_training(
    folder: pathlib.Path,
    pairs: Pairs,
    tokens: Any,
    num_shards: int,
    counts: collections.Counter,
    lengths: collections.Counter,
) -> int:
    """Writes the training files, shuffled; returns the number of pairs.

    Args:
        folder: Gets the files.
        pairs: Cleaned training pairs.
        tokens: tokenizer.Tokenizer.
        num_shards: int. Number of files.
        counts: Counter. Gains `tokens`: pairs dropped for having more than
            `MAX_TOKENS` ids on a side.
        lengths: Counter. Gains the pairs written, by the ids of the longer
            side.
    """
    # TensorFlow takes seconds to import, see above.
    from relpos_tf.data import records

    def encoded() -> Iterator[tuple[list[int], list[int]]]:
        for inputs, targets in _encode(pairs, tokens):
            length = max(len(inputs), len(targets))
            if length > MAX_TOKENS:
                counts["tokens"] += 1
            else:
                lengths[length] += 1
                yield inputs, targets

    files = shard_names(folder, "train", num_shards)
    written = records.write(encoded(), files)
    if not written:
        raise errors.UserError(
            f"No training pair has at most {MAX_TOKENS} tokens on both sides."
        )
    for number, file in enumerate(files):
        records.shuffle_file(file, seed=_SEED + number)
    return written


def write_held_out(
    folder: pathlib.Path,
    split: str,
    pairs: Pairs,
    normalize: Callable[[str], str],
    tokens: Any,
) -> int:
    """Writes the lines and the records of "dev" or "test", in order.

    Nothing is dropped, and references stay as they are.

    Args:
        folder: Gets the files.
        split: str. "dev" or "test".
        pairs: Its pairs of lines.
        normalize: Applied to the source side.
        tokens: tokenizer.Tokenizer.

    Returns:
        The number of pairs.
    """
    # TensorFlow takes seconds to import, see above.
    from relpos_tf.data import records

    pairs = [(normalize(source), target) for source, target in pairs]
    for side, name in enumerate(("source", "target")):
        lines = [pair[side] for pair in pairs]
        text.write_lines(folder / f"{split}.{name}", lines)
        if broken := text.count_broken(lines):
            _log.warning(
                "%d of %d lines of the %s set's %s are not UTF-8: what could "
                "not be read is U+FFFD in them, and scores will not mean "
                "much. Convert the file, as with iconv -f latin1 -t utf-8.",
                broken,
                len(lines),
                split,
                name,
            )
    return records.write(_encode(pairs, tokens), shard_names(folder, split, 1))


def shard_names(
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
    """Marks records with their tokenizer; returns what describes all files.

    Args:
        folder: Has all files but the manifest.
        tokenizer_path: The one of them that is the tokenizer.

    Returns:
        By name, `bytes` and `sha256`; and of record files `sha256_unmarked`,
        by which runs know their data since before records had marks.
    """
    # TensorFlow takes seconds to import, see above.
    from relpos_tf.data import records

    tokenizer = records.tokenizer_mark(tokenizer_path)
    described = {}
    for path in sorted(folder.iterdir()):
        known = described[path.name] = {}
        if path.suffix == ".tfrecord":
            known["sha256_unmarked"] = files.sha256(path)
            records.mark(path, tokenizer)
        known["bytes"] = path.stat().st_size
        known["sha256"] = files.sha256(path)
    return described


def _encode(pairs: Pairs, tokens: Any) -> Iterator[tuple[list[int], list[int]]]:
    """Yields pairs of ids, many encoded at once for speed."""
    iterator = iter(pairs)
    while batch := list(itertools.islice(iterator, _BATCH)):
        sources, targets = zip(*batch, strict=True)
        yield from zip(
            tokens.encode_batch(sources),
            tokens.encode_batch(targets),
            strict=True,
        )
