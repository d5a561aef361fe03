"""Lines of text: reading them, and cleaning pairs of them for training.

A line ends at "\\n" and nowhere else: U+0085 and U+2028 occur inside the lines
of real test sets, so `str.splitlines` would shift every later line.

What reading does, for every split: one "\\r" before the line end is removed, a
byte order mark at the start of the file is removed, and bytes that are not
UTF-8 become U+FFFD, so a line always keeps its place.

What cleaning does, for training pairs only (`clean_pair`), in this order:

* `nul`: NUL characters are removed; the pair stays.
* blanks at both ends of a side are removed; the pair stays.
* `blank`: dropped when a side is empty.
* `undecodable`: dropped when a side holds U+FFFD, the mark of broken UTF-8.
* `long`: dropped when a side has more than `MAX_CHARACTERS` characters.
* `ratio`: dropped when one side has more than `MAX_RATIO` times the characters
  of the other plus `RATIO_SLACK`, which only a misaligned pair has.
"""

import collections
import gzip
import html
import pathlib
import re
import zlib
from collections.abc import Iterable
from collections.abc import Iterator

from relpos_tf import errors

# Of every vocabulary: padding, and the end of a sentence.
PAD_ID = 0
EOS_ID = 1

MAX_CHARACTERS = 4000
MAX_RATIO = 9
RATIO_SLACK = 50
# The rule that changes a pair and keeps it.
KEEPING_RULE = "nul"

# All controls but the tabulator and the line feed, and what turns the direction
# of writing: a terminal obeys them.
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
)


def read_lines(path: str | pathlib.Path) -> Iterator[str]:
    """Yields the lines of a text file, plain or gzipped (name ends in .gz).

    Args:
        path: A file in UTF-8.

    Yields:
        The lines without their ends, see the module's docstring.

    Raises:
        UserError: the file is not there, or cannot be read to its end.
    """
    path = pathlib.Path(path)
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rb") as file:
            for number, line in enumerate(file):
                if number == 0:
                    line = line.removeprefix(b"\xef\xbb\xbf")
                line = line.removesuffix(b"\n").removesuffix(b"\r")
                yield line.decode("utf-8", errors="replace")
    except FileNotFoundError as error:
        raise errors.UserError(
            f"Expected a text file. Received: {path}, which does not exist."
        ) from error
    except (OSError, EOFError, zlib.error) as error:
        raise errors.UserError(
            f"Cannot read {path} to its end ({error}). Put a complete copy "
            "of the file in its place."
        ) from error


def count_lines(path: str | pathlib.Path) -> int:
    """Returns the number of lines that `read_lines` yields."""
    return sum(1 for _ in read_lines(path))


def count_broken(lines: Iterable[str]) -> int:
    """Returns the number of lines that hold U+FFFD: they were not UTF-8."""
    return sum("\ufffd" in line for line in lines)


def write_lines(path: str | pathlib.Path, lines: Iterable[str]) -> int:
    """Writes lines as UTF-8, each ended by "\\n"; returns their number.

    Raises:
        ValueError: a line contains "\\n", so it would come back as two.
    """
    count = 0
    with open(path, "wb") as file:
        for line in lines:
            if "\n" in line:
                raise ValueError(
                    "A line must not contain a line end. "
                    f"Received: {line!r} as line {count + 1}."
                )
            file.write(line.encode("utf-8", errors="replace") + b"\n")
            count += 1
    return count


def clean_pair(
    source: str, target: str
) -> tuple[tuple[str, str] | None, str | None]:
    """Applies the rules for training pairs.

    Args:
        source: str. One line.
        target: str. Its translation.

    Returns:
        The cleaned pair, or None where it is dropped; and the name of the
        rule that changed or dropped it, or None. Stripped blanks are not
        worth a name.
    """
    rule = KEEPING_RULE if "\0" in source or "\0" in target else None
    source = source.replace("\0", "").strip()
    target = target.replace("\0", "").strip()
    shorter, longer = sorted((len(source), len(target)))
    if not shorter:
        return None, "blank"
    if "\ufffd" in source or "\ufffd" in target:
        return None, "undecodable"
    if longer > MAX_CHARACTERS:
        return None, "long"
    if longer > MAX_RATIO * shorter + RATIO_SLACK:
        return None, "ratio"
    return (source, target), rule


def clean_pairs(
    pairs: Iterable[tuple[str, str]],
    counts: collections.Counter,
) -> Iterator[tuple[str, str]]:
    """Yields the pairs that pass `clean_pair`, and counts what it did.

    Args:
        pairs: The training pairs.
        counts: Counter. Gains `read` and one count per rule applied.

    Yields:
        Cleaned pairs.
    """
    for source, target in pairs:
        counts["read"] += 1
        pair, rule = clean_pair(source, target)
        if rule:
            counts[rule] += 1
        if pair:
            yield pair


def collapse_blanks(line: str) -> str:
    """Undoes HTML escapes, collapses runs of blanks, strips the ends."""
    return " ".join(html.unescape(line).split())


def printable(line: str) -> str:
    r"""Returns text as it may be shown, whoever wrote it.

    Example:

    >>> printable("red: \x1b[31m")
    'red: \\x1b[31m'
    """
    return _CONTROLS.sub(
        lambda found: found[0].encode("unicode_escape").decode(), line
    )
