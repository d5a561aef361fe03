"""Rules that clean training pairs, in this order.

* `nul`: NUL characters are removed; the pair stays.
* Blanks at both ends of a side are removed; the pair stays.
* `blank`: the pair is dropped when a side is empty.
* `undecodable`: dropped when a side holds U+FFFD, the mark of broken UTF-8.
* `long`: dropped when a side has more than `MAX_CHARACTERS` characters.
* `ratio`: dropped when one side has more than `MAX_RATIO` times the characters
  of the other plus `RATIO_SLACK`, as only misaligned pairs have.
"""

import collections
import html
from collections.abc import Iterable
from collections.abc import Iterator

MAX_CHARACTERS = 4000
MAX_RATIO = 9
RATIO_SLACK = 50
# The rule that changes a pair and keeps it.
KEEPING_RULE = "nul"


def clean_pair(
    source: str, target: str
) -> tuple[tuple[str, str] | None, str | None]:
    """Applies the rules to a pair.

    Args:
        source: str. One line.
        target: str. Its translation.

    Returns:
        The cleaned pair, or None if it is dropped; and the name of the rule
        that changed or dropped it, or None. Removed blanks have no name.
    """
    rule = None
    if "\0" in source or "\0" in target:
        rule = KEEPING_RULE
        source, target = source.replace("\0", ""), target.replace("\0", "")
    source, target = source.strip(), target.strip()
    shorter, longer = len(source), len(target)
    if shorter > longer:
        shorter, longer = longer, shorter
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
    """Yields the pairs that `clean_pair` keeps.

    Args:
        pairs: The training pairs.
        counts: Counter. Gains `read` and one count per rule applied.
    """
    counts["read"] += 0
    read = 0
    try:
        for source, target in pairs:
            read += 1
            pair, rule = clean_pair(source, target)
            if rule:
                counts[rule] += 1
            if pair:
                yield pair
    finally:
        counts["read"] += read


def unchanged(line: str) -> str:
    """Returns the line as it is."""
    return line


def collapse_blanks(line: str) -> str:
    """Undoes HTML escapes, collapses runs of blanks, strips the ends."""
    return " ".join(html.unescape(line).split())
