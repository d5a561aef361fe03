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

from relpos_tf import errors
from relpos_tf.utils import text

LINES = 16384  # most pairs of a block
_BYTES = 1 << 23  # on a side, after which a block ends
_STEP = 512  # lines between two looks at its size
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

Pairs = Iterable[tuple[str, str]]


@dataclasses.dataclass(frozen=True)
class TextBlock:
    """The bytes of as many lines of two files."""

    source: bytes
    target: bytes

    def pairs(self) -> Pairs:
        """Returns the pairs of lines."""
        return zip(
            text.lines_of(self.source), text.lines_of(self.target), strict=True
        )

    def digest(self) -> bytes:
        """Returns a checksum of the content."""
        content = hashlib.sha256(b"%d " % len(self.source))
        content.update(self.source)
        content.update(self.target)
        return content.digest()


@dataclasses.dataclass(frozen=True)
class PairsBlock:
    """Pairs that Python generated."""

    items: list[tuple[str, str]]

    def pairs(self) -> Pairs:
        """Returns the pairs of lines."""
        return self.items

    def digest(self) -> bytes:
        """Returns a checksum of the content."""
        return hashlib.sha256(json.dumps(self.items).encode()).digest()


Block = TextBlock | PairsBlock


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


def of_files(source: pathlib.Path, target: pathlib.Path) -> Iterator[TextBlock]:
    """Yields the blocks of two files whose lines correspond.

    Raises:
        UserError: a file cannot be read, or one has more lines.
    """
    with text.opened(source) as first, text.opened(target) as second:
        is_start = True
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
            content = [b"".join(side) for side in sides]
            if is_start:
                content = [c.removeprefix(_BYTE_ORDER_MARK) for c in content]
            is_start = False
            yield TextBlock(*content)


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


def normalized(
    blocks: Iterable[Block], normalize: Callable[[str], str]
) -> Iterator[PairsBlock]:
    """Yields blocks with a function applied to both sides of each pair."""
    for block in blocks:
        yield PairsBlock(
            [(normalize(s), normalize(t)) for s, t in block.pairs()]
        )
