"""What one process does to prepare training data: functions of one task.

`encode` cleans a block of text and writes its records to a file, a part.
`gather` collects the records of one shard from all parts, shuffles and marks
them. Both are functions of their arguments alone, so that any number of
processes gives the same bytes, and a finished file is used again.

The records of the whole text are dealt to the shards in turn. A part does not
know how many records precede it, so it deals its own in groups, and `gather`
knows which group of each part belongs to its shard.

A part is: three sizes; where each group starts; the bytes of each record; the
counts of cleaning and lengths in JSON; and the records, group by group. A
record is framed as in a TFRecord file without mark, and followed by the
checksum it gets with the mark.

Nothing here imports TensorFlow, unless the tokenizer is tensor2tensor's.
"""

import array
import collections
import contextlib
import dataclasses
import functools
import hashlib
import io
import itertools
import json
import pathlib
import random
import struct
import tempfile
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
from typing import BinaryIO
from typing import NamedTuple

import numpy as np

from relpos_tf.data import pieces
from relpos_tf.data import tfrecord
from relpos_tf.problems import blocks as blocks_lib
from relpos_tf.problems import cleaning
from relpos_tf.utils import files

# Pairs with more ids on a side than this are not written for training.
MAX_TOKENS = 1024
# Bytes of records that are put in order at once; more in very large shards, as
# each of their parts is an open file, of which systems allow about 1,000.
BUCKET_BYTES, MOST_BUCKETS = 1 << 25, 512
# Of a part: bytes of the description, groups, records. Of a group in it: the
# numbers of its first record and of its first byte.
_HEAD, _START = struct.Struct("<QQQ"), struct.Struct("<QQ")
_BATCH = 4096  # records that are written and hashed at once


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How lines become ids.

    Attributes:
        normalize: Function applied to both sides before cleaning.
        tag: str. A word put before the source of each cleaned pair, or "".
        tokenizer: str. The tokenizer's file, or "" where none is needed.
    """

    normalize: Callable[[str], str]
    tag: str = ""
    tokenizer: str = ""


@dataclasses.dataclass(frozen=True)
class WordsTask:
    """A block whose words are counted.

    Attributes:
        block: The text.
        recipe: `Recipe` without tokenizer.
        chosen: The numbers of the cleaned pairs that count; None for all.
        with_words: bool. False: only the pairs are counted.
    """

    block: blocks_lib.Block
    recipe: Recipe
    chosen: np.ndarray | None = None
    with_words: bool = True


class Words(NamedTuple):
    """The words of a block.

    Attributes:
        digest: str. A checksum of the block.
        read: int. Its pairs.
        kept: int. Those that cleaning keeps.
        words: Counter of the words of those that count, by `pieces`.
    """

    digest: str
    read: int
    kept: int
    words: collections.Counter


@dataclasses.dataclass(frozen=True)
class EncodingTask:
    """A block that becomes a part.

    Attributes:
        block: The text.
        recipe: `Recipe`.
        mark: int. The tokenizer's, see `tfrecord.tokenizer_mark`.
        num_groups: int. The number of shards.
        folder: Gets the file, unless it is there.
        key: str. Of all that the file depends on, but the text.
    """

    block: blocks_lib.Block
    recipe: Recipe
    mark: int
    num_groups: int
    folder: pathlib.Path
    key: str


class Part(NamedTuple):
    """A part that is written.

    Attributes:
        path: Its file.
        count: int. Its records.
        cleaning: Counter of pairs by cleaning rule, and `read`.
        lengths: Counter of records by ids of the longer side.
    """

    path: pathlib.Path
    count: int
    cleaning: collections.Counter
    lengths: collections.Counter


@dataclasses.dataclass(frozen=True)
class ShardTask:
    """A shard to gather.

    Attributes:
        parts: The file and the number of records of each part, in order.
        shard: int. Number of the shard among those of its corpus.
        num_shards: int. Their number.
        seed: int. Of its order.
        mark: int. The tokenizer's.
        path: The file to write.
    """

    parts: Sequence[tuple[pathlib.Path, int]]
    shard: int
    num_shards: int
    seed: int
    mark: int
    path: pathlib.Path


def count_words(task: WordsTask) -> Words:
    """Counts the words of a block."""
    content, counts = task.block.read(), collections.Counter()
    sources, targets = _cleaned(content.pairs, task.recipe, counts)
    kept, words = len(sources), collections.Counter()
    if task.with_words:
        sides = sources, targets
        if task.chosen is not None:
            sides = ([side[i] for i in task.chosen] for side in sides)
        words = pieces.count_words(itertools.chain.from_iterable(sides))
    return Words(content.digest, counts["read"], kept, words)


def digest(block: blocks_lib.Block) -> str:
    """Returns the checksum of a block."""
    return block.read().digest


def encode(task: EncodingTask) -> Part:
    """Writes the part of a block, unless it is there, and describes it."""
    content, counts = task.block.read(), collections.Counter()
    path = task.folder / f"part-{task.key}-{content.digest}"
    if path.is_file():
        return _described(path)
    sources, targets = _cleaned(content.pairs, task.recipe, counts)
    packer = packer_of(task.recipe.tokenizer)
    packed = [packer.pack(sources), packer.pack(targets)]
    del sources, targets
    longest = np.maximum(*map(tfrecord.number_of_ids, packed))
    is_kept = longest <= MAX_TOKENS
    if dropped := int((~is_kept).sum()):
        counts["tokens"] = dropped
        packed = [list(itertools.compress(s, is_kept)) for s in packed]
    lengths = collections.Counter(longest[is_kept].tolist())
    framed = frames(packed, task.mark)
    groups = [
        framed[group :: task.num_groups] for group in range(task.num_groups)
    ]
    part = Part(path, len(framed), counts, lengths)
    _write(part, groups)
    return part


def frames(packed: Sequence[Sequence[bytes]], mark: int) -> list[bytes]:
    """Returns the records of pairs of packed ids, as parts hold them.

    Args:
        packed: Packed ids of the sources and of the targets.
        mark: int. The tokenizer's.
    """
    serialized = list(map(tfrecord.serialize, *packed))
    if not serialized:
        return []
    framed = tfrecord.Framed(serialized, tfrecord.mark(mark))
    ends = np.concatenate([framed.footers, framed.marked_footers], axis=1)
    heads, ends = framed.headers.tobytes(), ends.tobytes()
    size, end = tfrecord.HEADER_SIZE, 2 * tfrecord.FOOTER_SIZE
    return [
        b"".join((heads[a : a + size], record, ends[b : b + end]))
        for record, a, b in zip(
            serialized,
            range(0, len(heads), size),
            range(0, len(ends), end),
            strict=True,
        )
    ]


@functools.lru_cache(maxsize=1)
def packer_of(path: str) -> pieces.Packer:
    """Returns what encodes lines with the tokenizer in a file."""
    if pathlib.Path(path).suffix == ".model":
        encoder = pieces.Encoder(path)
        return pieces.Packer(encoder, encoder.is_word_by_word)
    # tensor2tensor's comes with its graph operations, and so TensorFlow.
    from relpos_tf.data import tokenizer

    return pieces.Packer(tokenizer.load(path))


def gather(task: ShardTask) -> dict[str, Any]:
    """Writes a shard, unless it is there; returns its entry in the manifest.

    The entry is also written beside the shard, when that is complete.
    """
    entry = task.path.with_suffix(".json")
    if entry.is_file() and task.path.is_file():
        return json.loads(entry.read_bytes())
    shard = Shard(task.mark)
    with contextlib.ExitStack() as stack:
        groups = [
            (path, (task.shard - start) % task.num_shards)
            for path, start in _starts(task.parts)
        ]
        sizes = [read_group(*group, sizes_only=True)[0] for group in groups]
        ordered = _Ordered(
            np.concatenate(sizes), task.seed, task.path.parent, stack
        )
        for group in groups:
            ordered.add(read_group(*group)[1])
        with files.replacing(task.path) as file:
            for records in ordered.batches():
                file.write(shard.add(records))
    files.write(entry, json.dumps(shard.entry()))
    return shard.entry()


def _starts(
    parts: Sequence[tuple[pathlib.Path, int]],
) -> Iterator[tuple[pathlib.Path, int]]:
    """Yields each part with the number of records that precede it."""
    start = 0
    for path, count in parts:
        yield path, start
        start += count


class Shard:
    """Turns records of parts into those of a shard, and describes it.

    Args:
        mark: int. The tokenizer's.
    """

    def __init__(self, mark: int):
        self._addition = tfrecord.mark(mark)
        self._marked, self._unmarked = hashlib.sha256(), hashlib.sha256()
        self._bytes = 0

    def add(self, records: Sequence[bytes]) -> bytes:
        """Returns the bytes of the next records, marked."""
        head, foot = tfrecord.HEADER_SIZE, tfrecord.FOOTER_SIZE
        self._unmarked.update(b"".join([r[:-foot] for r in records]))
        sizes = np.fromiter(map(len, records), np.int64, len(records))
        sizes += len(self._addition) - head - 2 * foot
        heads = tfrecord.headers(sizes).tobytes()
        content = b"".join(
            [
                b"".join(
                    (
                        heads[start : start + head],
                        record[head : -2 * foot],
                        self._addition,
                        record[-foot:],
                    )
                )
                for record, start in zip(
                    records, range(0, len(heads), head), strict=True
                )
            ]
        )
        self._marked.update(content)
        self._bytes += len(content)
        return content

    def entry(self) -> dict[str, Any]:
        """Returns the description of the records so far, for the manifest."""
        return {
            # The data of runs that are older than the marks.
            "sha256_unmarked": self._unmarked.hexdigest(),
            "bytes": self._bytes,
            "sha256": self._marked.hexdigest(),
        }


class _Ordered:
    """Records in their shuffled order, in memory or in several files.

    Args:
        sizes: uint32 [N]. Bytes of the records in the order they come in.
        seed: int. Of the order they leave in.
        folder: Gets temporary files: TMPDIR may be small, or in memory.
        stack: `contextlib.ExitStack` that closes temporary files.
    """

    def __init__(
        self, sizes: np.ndarray, seed: int, folder: pathlib.Path, stack
    ):
        order = array.array("I", range(len(sizes)))
        random.Random(seed).shuffle(order)
        places = np.empty(len(sizes), np.uint32)
        places[np.frombuffer(order, np.uintc)] = np.arange(len(sizes))
        number = -(-int(sizes.sum(dtype=np.int64)) // BUCKET_BYTES)
        number = max(1, min(number, MOST_BUCKETS))
        self._sizes, self._places = sizes, places
        self._buckets = places // max(1, -(-len(sizes) // number))
        self._files = [
            io.BytesIO()
            if number == 1
            else stack.enter_context(tempfile.TemporaryFile(dir=folder))
            for _ in range(number)
        ]
        self._next = 0

    def add(self, content: bytes) -> None:
        """Adds the next whole records."""
        if len(self._files) == 1:
            self._files[0].write(content)
            return
        start = 0
        while start < len(content):
            end = start + int(self._sizes[self._next])
            bucket = self._buckets[self._next]
            self._files[bucket].write(content[start:end])
            start, self._next = end, self._next + 1

    def batches(self) -> Iterator[list[bytes]]:
        """Yields the records in their order, some at a time."""
        for number, file in enumerate(self._files):
            [members] = np.nonzero(self._buckets == number)
            ends = np.cumsum(self._sizes[members], dtype=np.int64)
            starts = ends - self._sizes[members]
            order = np.argsort(self._places[members])
            content = _content(file)
            starts, ends = starts[order], ends[order]
            for first in range(0, len(order), _BATCH):
                some = slice(first, first + _BATCH)
                bounds = zip(
                    starts[some].tolist(), ends[some].tolist(), strict=True
                )
                yield [content[start:end] for start, end in bounds]


def _content(file: BinaryIO) -> bytes:
    """Returns what was written to a temporary file."""
    if isinstance(file, io.BytesIO):
        return file.getvalue()
    file.seek(0)
    return file.read()


def _cleaned(
    pairs: blocks_lib.Pairs, recipe: Recipe, counts: collections.Counter
) -> tuple[list[str], list[str]]:
    """Returns the sides of cleaned pairs, with the tag."""
    normalize = recipe.normalize
    if normalize is not cleaning.unchanged:
        pairs = ((normalize(s), normalize(t)) for s, t in pairs)
    kept = list(cleaning.clean_pairs(pairs, counts))
    sources, targets = map(list, zip(*kept, strict=True)) if kept else ([], [])
    if recipe.tag:
        sources = [f"{recipe.tag} {source}" for source in sources]
    return sources, targets


def _write(part: Part, groups: Sequence[Sequence[bytes]]) -> None:
    """Writes a part, whole or not at all."""
    description = json.dumps(
        {"cleaning": part.cleaning, "lengths": part.lengths}
    ).encode()
    records = list(itertools.chain.from_iterable(groups))
    sizes = np.fromiter(map(len, records), np.uint32, len(records))
    counts = np.fromiter(map(len, groups), np.int64, len(groups))
    limits = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
    # The number of the first record of each group, and of its first byte.
    starts = np.concatenate([[0], np.cumsum(counts)])
    starts = np.stack([starts, limits[starts]], axis=1)  # [groups + 1, 2]
    with files.replacing(part.path) as file:
        file.write(_HEAD.pack(len(description), len(groups), part.count))
        file.write(starts.astype("<i8").tobytes())
        file.write(sizes.astype("<u4").tobytes())
        file.write(description)
        file.write(b"".join(records))


def _described(path: pathlib.Path) -> Part:
    """Describes a part that was written before."""
    with open(path, "rb") as file:
        size, groups, count = _HEAD.unpack(file.read(_HEAD.size))
        file.seek(_START.size * (groups + 1) + 4 * count, io.SEEK_CUR)
        found = json.loads(file.read(size))
    lengths = {int(n): count for n, count in found["lengths"].items()}
    return Part(
        path,
        count,
        collections.Counter(found["cleaning"]),
        collections.Counter(lengths),
    )


def read_group(
    path: pathlib.Path, group: int, sizes_only: bool = False
) -> tuple[np.ndarray, bytes]:
    """Returns the bytes of each record of a group of a part; the records.

    Args:
        path: The part.
        group: int.
        sizes_only: bool. Leaves the records out.
    """
    with open(path, "rb") as file:
        size, groups, count = _HEAD.unpack(file.read(_HEAD.size))
        file.seek(_START.size * group, io.SEEK_CUR)
        starts = file.read(2 * _START.size)
        (first, start), (last, end) = _START.iter_unpack(starts)
        places = _HEAD.size + _START.size * (groups + 1)
        file.seek(places + 4 * first)
        sizes = np.frombuffer(file.read(4 * (last - first)), "<u4")
        if sizes_only:
            return sizes, b""
        file.seek(places + 4 * count + size + start)
        return sizes, file.read(end - start)
