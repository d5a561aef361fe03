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
from collections.abc import Mapping

MAX_CHARACTERS = 4000
MAX_RATIO = 9
RATIO_SLACK = 50
# The rule that changes a pair and keeps it.
KEEPING_RULE = "nul"
# The others, and `tokens`, which is applied after encoding.
_REASONS = {
    "blank": "a side is empty",
    "undecodable": "a side is not UTF-8",
    "long": f"a side has more than {MAX_CHARACTERS:,} characters",
    "ratio": "one side is far longer than the other",
    "tokens": "a side has more than 1,024 ids",
}


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


def table(counts: Mapping[str, int]) -> str:
    """Returns what became of the pairs that were read, as lines of text.

    Args:
        counts: Pairs by rule; `read`; and `tokens`, those with too many ids.

    Example:

    >>> for line in table({"read": 80, "blank": 3, "nul": 5}).splitlines():
    ...     print(line)
    pairs  percent
       80   100.00  read
        3     3.75  dropped: a side is empty
       77    96.25  written
        5     6.25  of these without their NUL characters
    """
    read = counts["read"]
    dropped = {rule: counts.get(rule, 0) for rule in _REASONS}
    rows = [
        (read, "read"),
        *(
            (number, f"dropped: {_REASONS[rule]}")
            for rule, number in dropped.items()
            if number
        ),
        (read - sum(dropped.values()), "written"),
    ]
    if counts.get(KEEPING_RULE):
        text = "of these without their NUL characters"
        rows.append((counts[KEEPING_RULE], text))
    width = max(len("pairs"), len(f"{read:,}"))
    lines = [f"{'pairs':>{width}}  percent"] + [
        f"{number:>{width},}  {100 * number / max(read, 1):7.2f}  {text}"
        for number, text in rows
    ]
    return "\n".join(lines)


def losses(counts: Mapping[str, int]) -> str:
    """Returns how many pairs were dropped, and why, in one line.

    Args:
        counts: See `table`.

    Example:

    >>> losses({"read": 5080, "blank": 5003, "nul": 5, "long": 2})
    '5,003: a side is empty; 2: a side has more than 4,000 characters'
    """
    return "; ".join(
        f"{counts[rule]:,}: {reason}"
        for rule, reason in _REASONS.items()
        if counts.get(rule)
    )


def unchanged(line: str) -> str:
    """Returns the line as it is."""
    return line


def collapse_blanks(line: str) -> str:
    """Undoes HTML escapes, collapses runs of blanks, strips the ends."""
    return " ".join(html.unescape(line).split())
