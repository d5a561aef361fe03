"""Training text in blocks, of which a process prepares one at a time.

A block is small whatever the corpus is, so that memory is bounded. How text is
cut is a function of the text alone. What is prepared does not depend on it.
"""

import dataclasses
import hashlib
import itertools
import json
import pathlib
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from typing import NamedTuple

from relpos_tf import errors
from relpos_tf.utils import text

LINES = 16384  # most pairs of a block
_BYTES = 1 << 23  # on a side, after which a block ends
_STEP = 512  # lines between two looks at its size
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

Pairs = Iterable[tuple[str, str]]


class Content(NamedTuple):
    """The pairs of lines of a block, and a checksum of them."""

    pairs: Pairs
    digest: str


@dataclasses.dataclass(frozen=True)
class TextBlock:
    """The bytes of as many lines of two files."""

    source: bytes
    target: bytes

    def read(self) -> Content:
        """Returns the content."""
        checksum = hashlib.sha256(b"%d " % len(self.source))
        checksum.update(self.source)
        checksum.update(self.target)
        lines = text.lines_of(self.source), text.lines_of(self.target)
        return Content(zip(*lines, strict=True), checksum.hexdigest())


@dataclasses.dataclass(frozen=True)
class FileBlock:
    """The places of as many lines in two files: path, first byte, bytes."""

    source: tuple[pathlib.Path, int, int]
    target: tuple[pathlib.Path, int, int]

    def read(self) -> Content:
        """Returns the content."""
        return TextBlock(*map(_read, (self.source, self.target))).read()


@dataclasses.dataclass(frozen=True)
class PairsBlock:
    """Pairs that Python generated."""

    items: list[tuple[str, str]]

    def read(self) -> Content:
        """Returns the content."""
        content = json.dumps(self.items).encode()
        return Content(self.items, hashlib.sha256(content).hexdigest())


@dataclasses.dataclass(frozen=True)
class NormalizedBlock:
    """A block, with a function applied to both sides when it is read.

    The checksum is that of the result, whatever the function is.
    """

    block: "Block"
    normalize: Callable[[str], str]

    def read(self) -> Content:
        """Returns the content."""
        pairs, normalize = self.block.read().pairs, self.normalize
        items = [(normalize(s), normalize(t)) for s, t in pairs]
        return PairsBlock(items).read()


Block = TextBlock | FileBlock | PairsBlock | NormalizedBlock


def cut(pairs: Pairs) -> Iterator[Block]:
    """Yields the blocks of pairs.

    Args:
        pairs: Any pairs. Those with a method `blocks`, as
            `parallel.ParallelText`, cut themselves.
    """
    if hasattr(pairs, "blocks"):
        yield from pairs.blocks()
        return
    iterator = iter(pairs)
    while items := list(itertools.islice(iterator, LINES)):
        yield PairsBlock(items)


def of_files(
    source: pathlib.Path, target: pathlib.Path
) -> Iterator[TextBlock | FileBlock]:
    """Yields the blocks of two files whose lines correspond.

    Where a file is not compressed, a block is only its place in the file.

    Raises:
        UserError: a file cannot be read, or one has more lines.
    """
    is_compressed = {source.suffix, target.suffix} & {*text.COMPRESSED}
    with text.opened(source) as first, text.opened(target) as second:
        ends = [0, 0]
        while True:
            sides = _lines(first, second)
            counts = [len(side) for side in sides]
            if counts[0] != counts[1]:
                raise errors.UserError(
                    "Expected two files with the same number of lines. "
                    f"Received: {source} and {target}, which have changed "
                    "since they were counted."
                )
            if not counts[0]:
                return
            starts, ends = (
                ends,
                [
                    end + sum(map(len, side))
                    for end, side in zip(ends, sides, strict=True)
                ],
            )
            # A byte order mark is no text.
            marks = [
                len(_BYTE_ORDER_MARK)
                if not start and side[0].startswith(_BYTE_ORDER_MARK)
                else 0
                for start, side in zip(starts, sides, strict=True)
            ]
            if is_compressed:
                content = map(b"".join, sides)
                yield TextBlock(
                    *(c[m:] for c, m in zip(content, marks, strict=True))
                )
            else:
                yield FileBlock(
                    *(
                        (path, start + mark, end - start - mark)
                        for path, start, end, mark in zip(
                            (source, target), starts, ends, marks, strict=True
                        )
                    )
                )


def _lines(first, second) -> tuple[list[bytes], list[bytes]]:
    """Returns the next lines of two files."""
    sides, sizes = ([], []), [0, 0]
    while len(sides[0]) < LINES and max(sizes) < _BYTES:
        for number, file in enumerate((first, second)):
            lines = list(itertools.islice(file, _STEP))
            sides[number].extend(lines)
            sizes[number] += sum(map(len, lines))
        if not lines or len(sides[0]) != len(sides[1]):
            break
    return sides


def _read(place: tuple[pathlib.Path, int, int]) -> bytes:
    """Returns the bytes at a place in a file."""
    path, start, size = place
    with text.opened(path) as file:
        file.seek(start)
        return file.read(size)
