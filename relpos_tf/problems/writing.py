"""Writes the files of a prepared problem, one function per kind of file.

The work on training text is that of `parts`, block by block, in any number of
processes. What is finished lies in a folder of parts, under names that tell
what it was made from, so that a preparation that was killed goes on where it
stopped.

Nothing here imports TensorFlow.
"""

import array
import collections
import hashlib
import importlib.metadata
import itertools
import json
import logging
import os
import pathlib
import random
import shutil
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np

from relpos_tf import errors
from relpos_tf.data import pieces
from relpos_tf.data import tfrecord
from relpos_tf.problems import blocks as blocks_lib
from relpos_tf.problems import cleaning
from relpos_tf.problems import parts as parts_lib
from relpos_tf.utils import files
from relpos_tf.utils import processes
from relpos_tf.utils import terminal
from relpos_tf.utils import text

_log = logging.getLogger("relpos_tf")
# Increased when parts of killed preparations can no longer be used.
_FORMAT = 1
_SEED = 429459

Pairs = Iterable[tuple[str, str]]


class TrainingText:
    """The training text of a problem, in blocks, and where its parts go.

    Args:
        corpora: The pairs of each corpus.
        tags: The tag of each corpus, or "".
        normalize: Function applied to both sides.
        folder: For parts, those of a killed preparation included.
        pool: `processes.Pool`.
    """

    def __init__(
        self,
        corpora: Sequence[Pairs],
        tags: Sequence[str],
        normalize: Callable[[str], str],
        folder: pathlib.Path,
        pool: processes.Pool,
    ):
        self.folder, self.pool = folder, pool
        self.num_corpora = len(corpora)
        self.num_pairs = _total(corpora)
        self._corpora, self._normalize = corpora, None
        if not _is_known(normalize):
            self._normalize, normalize = normalize, cleaning.unchanged
        # A function that cannot be sent is applied here.
        self._sends = pool.number == 1 or processes.can_be_sent(self._normalize)
        self._recipes = [parts_lib.Recipe(normalize, tag) for tag in tags]
        self._identity = [_FORMAT, _identity(normalize)]

    def name(self, corpus: int) -> str:
        """Returns the number of a corpus, from 1, and its files if known."""
        name = f"corpus {corpus + 1} of {self.num_corpora}"
        files_of = getattr(self._corpora[corpus], "files", [])
        if not files_of:
            return name
        more = ", ..." if len(files_of) > 1 else ""
        return f"{name} ({files_of[0][0]}, {files_of[0][1]}{more})"

    def blocks(self, corpus: int) -> Iterator[blocks_lib.Block]:
        """Yields the blocks of a corpus."""
        for block in blocks_lib.cut(self._corpora[corpus]):
            if self._normalize:
                block = blocks_lib.NormalizedBlock(block, self._normalize)
            if not self._sends:
                block = blocks_lib.PairsBlock(block.read().pairs)
            yield block

    def recipe(self, corpus: int, tokenizer: str = "") -> parts_lib.Recipe:
        """Returns how the lines of a corpus become ids."""
        recipe = self._recipes[corpus]
        return parts_lib.Recipe(recipe.normalize, recipe.tag, tokenizer)

    def all_blocks(
        self,
    ) -> Iterator[tuple[parts_lib.Recipe, blocks_lib.Block]]:
        """Yields the blocks of all corpora with what belongs to them."""
        for corpus in range(self.num_corpora):
            for block in self.blocks(corpus):
                yield self.recipe(corpus), block

    def key(self, *values: Any) -> str:
        """Returns a name for what is made from blocks and some values."""
        content = json.dumps([*self._identity, *values])
        return hashlib.sha256(content.encode()).hexdigest()[:32]


def learn_tokenizer(
    path: pathlib.Path,
    training: TrainingText,
    *,
    vocab_size: int,
    character_coverage: float,
    most_pairs: int,
) -> None:
    """Learns the shared vocabulary from both sides of training pairs.

    Args:
        path: Where the model goes.
        training: `TrainingText`.
        vocab_size: int. Pieces wanted.
        character_coverage: float. See `pieces.train`.
        most_pairs: int. Of more pairs, as many are drawn with equal
            probability.
    """

    def finished(digests: Iterable[str]) -> pathlib.Path:
        settings = [vocab_size, character_coverage, most_pairs]
        tags = [training.recipe(i).tag for i in range(training.num_corpora)]
        key = training.key("tokenizer", *digests, tags, settings)
        return training.folder / f"tokenizer-{key}"

    if any(training.folder.glob("tokenizer-*")):
        blocks = (block for _, block in training.all_blocks())
        found = finished(training.pool.map(parts_lib.digest, blocks))
        if found.is_file():
            shutil.copyfile(found, path)
            return
    digests = []
    words = _count_words(training, most_pairs, digests)
    if not words:
        raise errors.UserError(
            "Expected training pairs. Received: none that pass cleaning. "
            "Check the contents of the two files."
        )
    pieces.learn(words, path, vocab_size, character_coverage)
    files.write(finished(digests), path.read_bytes())


def _count_words(
    training: TrainingText, most_pairs: int, digests: list[str]
) -> collections.Counter:
    """Counts the words of training pairs, of a sample if there are many.

    Args:
        training: `TrainingText`.
        most_pairs: int. Size of the sample.
        digests: Gains the checksum of each block.
    """

    # If the text is short enough, one look at it suffices.
    is_short = training.num_pairs and training.num_pairs <= most_pairs
    tasks = (
        parts_lib.WordsTask(block, recipe, with_words=bool(is_short))
        for recipe, block in training.all_blocks()
    )
    words, sample = collections.Counter(), _Sample(most_pairs)
    progress = _progress("Reading", training.num_pairs)
    for found in training.pool.map(parts_lib.count_words, tasks):
        words.update(found.words)
        sample.add(found.kept)
        digests.append(found.digest)
        progress.add(found.read)
    if is_short or not sample.count:
        return words
    tasks = (
        parts_lib.WordsTask(block, recipe, indices)
        for (recipe, block), indices in zip(
            training.all_blocks(), sample.by_block(), strict=True
        )
    )
    progress = _progress("Counting words", training.num_pairs)
    for found in training.pool.map(parts_lib.count_words, tasks):
        words.update(found.words)
        progress.add(found.read)
    return words


class _Sample:
    """Numbers of pairs, drawn with equal probability as blocks of them come.

    The draws (reservoir sampling) take the time in which this process would
    wait for the next block.

    Args:
        size: int. Most pairs.

    Attributes:
        count: int. The pairs of all blocks so far.
    """

    def __init__(self, size: int):
        self._size, self._draws = size, random.Random(_SEED)
        self._chosen, self._kept = array.array("q"), []
        self.count = 0

    def add(self, count: int) -> None:
        """Adds the pairs of the next block."""
        end = self.count + count
        full = min(end, max(self.count, self._size))
        self._chosen.extend(range(self.count, full))
        for number in range(full, end):
            place = self._draws.randrange(number + 1)
            if place < self._size:
                self._chosen[place] = number
        self._kept.append(count)
        self.count = end

    def by_block(self) -> Iterator[np.ndarray]:
        """Yields the numbers of those in each block, ascending."""
        chosen = np.frombuffer(self._chosen, np.int64)
        chosen.sort()
        start = 0
        for count in self._kept:
            first, last = np.searchsorted(chosen, (start, start + count))
            yield chosen[first:last] - start
            start += count


def encode_training(
    training: TrainingText,
    tokenizer: pathlib.Path,
    num_shards: int,
    task: tuple[int, int] = (0, 1),
) -> list[list[parts_lib.Part]]:
    """Writes the parts of the training text, those that are not there.

    Args:
        training: `TrainingText`.
        tokenizer: The tokenizer's file.
        num_shards: int. Number of files of each corpus.
        task: The number of this task, and the number of tasks. Each of them
            writes every so many parts.

    Returns:
        The parts of this task, by corpus.
    """
    checksum = files.sha256(tokenizer)
    mark = tfrecord.tokenizer_mark(tokenizer)
    progress = _progress("Encoding", training.num_pairs)
    encoded = []
    for corpus in range(training.num_corpora):
        recipe = training.recipe(corpus, str(tokenizer))

        def tasks(corpus=corpus, recipe=recipe):
            blocks = training.blocks(corpus)
            key = training.key(checksum, recipe.tag, num_shards)
            for block in itertools.islice(blocks, task[0], None, task[1]):
                yield parts_lib.EncodingTask(
                    block, recipe, mark, num_shards, training.folder, key
                )

        found = []
        for part in training.pool.map(parts_lib.encode, tasks()):
            found.append(part)
            progress.add(part.cleaning["read"])
        encoded.append(found)
    return encoded


def write_training(
    folder: pathlib.Path,
    training: TrainingText,
    tokenizer: pathlib.Path,
    encoded: Sequence[Sequence[parts_lib.Part]],
    num_shards: int,
) -> dict[str, dict[str, Any]]:
    """Writes the training files, shuffled.

    Args:
        folder: Gets the files.
        training: `TrainingText`.
        tokenizer: The tokenizer's file.
        encoded: All parts, by corpus.
        num_shards: int. Number of files of each corpus.

    Returns:
        The entries of the files in the manifest, by name.
    """
    for number, parts in enumerate(encoded):
        if not any(part.count for part in parts):
            counts = sum((p.cleaning for p in parts), collections.Counter())
            raise errors.UserError(
                f"Expected training pairs. Received: {training.name(number)} "
                f"with {counts['read']:,} pairs, all of which are dropped "
                f"({cleaning.losses(counts) or 'there are none'}). Correct the "
                "text, or leave it out."
            )
    mark, shards = tfrecord.tokenizer_mark(tokenizer), []
    for number, shard in enumerate(
        itertools.product(encoded, range(num_shards))
    ):
        parts = [(part.path, part.count) for part in shard[0]]
        names = [path.name for path, _ in parts]
        key = training.key("shard", names, shard[1], number)
        shards.append(
            parts_lib.ShardTask(
                parts,
                shard[1],
                num_shards,
                _SEED + number,
                mark,
                training.folder / f"shard-{key}",
            )
        )
    count = sum(part.count for parts in encoded for part in parts)
    progress = _progress("Shuffling", count)
    paths = shard_paths(folder, "train", len(shards))
    entries = training.pool.map(parts_lib.gather, shards)
    described = {}
    for path, entry in zip(paths, entries, strict=True):
        described[path.name] = entry
        progress.add(count // len(shards))
    for path, shard in zip(paths, shards, strict=True):
        os.replace(shard.path, path)
    return described


def write_held_out(
    folder: pathlib.Path,
    split: str,
    pairs: Pairs,
    normalize: Callable[[str], str],
    tokenizer: pathlib.Path,
) -> tuple[int, dict[str, dict[str, Any]]]:
    """Writes the lines and the records of "dev" or a test set, in order.

    All pairs are written, and references stay as they are.

    Args:
        folder: Gets the files.
        split: str. "dev", "test" or the name of another test set.
        pairs: Its pairs of lines.
        normalize: Applied to the source side.
        tokenizer: The tokenizer's file.

    Returns:
        The number of pairs; the entries of the manifest, by name.
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
    packer = parts_lib.packer_of(str(tokenizer))
    mark = tfrecord.tokenizer_mark(tokenizer)
    shard = parts_lib.Shard(mark)
    [path] = shard_paths(folder, split, 1)
    with files.replacing(path) as file:
        for block in blocks_lib.cut(pairs):
            sides = zip(*block.read().pairs, strict=True)
            packed = [packer.pack(side) for side in sides]
            file.write(shard.add(parts_lib.frames(packed, mark)))
    return len(pairs), {path.name: shard.entry()}


def shard_paths(
    folder: pathlib.Path, split: str, num_shards: int
) -> list[pathlib.Path]:
    """Returns the paths of a split's record files."""
    return [
        folder / f"{split}-{i:05d}-of-{num_shards:05d}.tfrecord"
        for i in range(num_shards)
    ]


def finish(
    folder: pathlib.Path, described: Mapping[str, dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Returns the entries of the manifest.

    Args:
        folder: Has all files but the manifest.
        described: The entries that are known, by name.

    Returns:
        For each file name, `bytes` and `sha256`; for record files also
        `sha256_unmarked`, which identifies the data of runs that are older
        than the marks.
    """
    return {
        path.name: described.get(path.name)
        or {"bytes": path.stat().st_size, "sha256": files.sha256(path)}
        for path in sorted(folder.iterdir())
        if path.is_file()
    }


def vocab_size_of(tokenizer: pathlib.Path) -> int:
    """Returns the number of ids of the tokenizer in a file."""
    return parts_lib.packer_of(str(tokenizer)).vocab_size


def _progress(task: str, total: int) -> terminal.RateProgress:
    return terminal.RateProgress(task, "pairs", total)


def _total(corpora: Sequence[Pairs]) -> int:
    """Returns the number of pairs before cleaning, or 0 if it is unknown."""
    if not all(hasattr(pairs, "__len__") for pairs in corpora):
        return 0
    return sum(map(len, corpora))


def _is_known(normalize: Callable[[str], str]) -> bool:
    """Returns whether a function is one of this package, and stays the same.

    The user's function may change under its name: only what it returns tells
    which parts are made with it.
    """
    module = getattr(normalize, "__module__", None) or ""
    name = getattr(normalize, "__qualname__", "<")
    return module.split(".")[0] == "relpos_tf" and "<" not in name


def _identity(normalize: Callable[[str], str]) -> list[str]:
    """Returns what tells a function of this package from others."""
    return [
        normalize.__module__,
        normalize.__qualname__,
        importlib.metadata.version("sentencepiece"),
        importlib.metadata.version("numpy"),
    ]
