"""Rules that clean training pairs, and what they say about a corpus.

The rules, in this order:

* `nul`: NUL characters are removed; the pair stays.
* `spelling.BLANKS` at both ends of a side are removed; the pair stays.
* `blank`: the pair is dropped when a side is empty.
* `undecodable`: dropped when a side holds U+FFFD, the mark of broken UTF-8.
* `long`: dropped when a side has more than `MAX_CHARACTERS` characters.
* `ratio`: dropped when one side has more than `MAX_RATIO` times the characters
  of the other plus `RATIO_SLACK`, as only misaligned pairs have.
* `tokens`: dropped after encoding when a side has more than `MAX_TOKENS` ids.

One more number is a hint of wrong files, and changes no pair: `equal`, the kept
pairs whose sides are equal.
"""

import collections
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping

from relpos_tf.data import spelling
from relpos_tf.utils import text as text_lib

MAX_CHARACTERS = 4000
MAX_TOKENS = 1024
MAX_RATIO = 9
RATIO_SLACK = 50
# The rules that drop a pair.
_REASONS = {
    "blank": "a side is empty",
    "undecodable": "a side is not UTF-8",
    "long": f"a side has more than {MAX_CHARACTERS:,} characters",
    "ratio": "one side is far longer than the other",
    "tokens": f"a side has more than {MAX_TOKENS:,} ids",
}
_ADVICE = {
    "blank": "Look for empty lines in both files.",
    "undecodable": "Convert the files to UTF-8, as iconv -f latin1 -t utf-8 "
    "does with Latin-1.",
    "long": "Write one sentence on each line, which ends in a line feed.",
    "ratio": "Check that line N of one file translates line N of the other.",
    "tokens": "Check that the vocabulary was made for these languages.",
}
_WORTH_A_WARNING = 0.05

# Lines and their translations.
LinePairs = Iterable[tuple[str, str]]


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
        rule = "nul"
        source, target = source.replace("\0", ""), target.replace("\0", "")
    source, target = (s.strip(spelling.BLANKS) for s in (source, target))
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
    pairs: LinePairs, counts: collections.Counter
) -> Iterator[tuple[str, str]]:
    """Yields the pairs that `clean_pair` keeps.

    Args:
        pairs: The training pairs.
        counts: Counter. Gains `read`, one count per rule applied, and the
            hint `equal`.
    """
    for source, target in pairs:
        counts["read"] += 1
        pair, rule = clean_pair(source, target)
        if rule:
            counts[rule] += 1
        if pair:
            if pair[0] == pair[1]:
                counts["equal"] += 1
            yield pair


def dropped(counts: Mapping[str, int]) -> dict[str, int]:
    """Returns the number of pairs that each rule dropped, the largest first.

    Args:
        counts: Pairs by rule, as `table` takes them.
    """
    found = {rule: counts[rule] for rule in _REASONS if counts.get(rule)}
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def warnings(
    counts: Mapping[str, int], name: str, is_same_language: bool = False
) -> list[str]:
    """Returns what a user should look at before training on a corpus.

    Args:
        counts: Pairs by rule, as `table` takes them.
        name: str. Names the corpus.
        is_same_language: bool. Whether equal sides are to be expected.

    Example:
    >>> warnings({"read": 80, "blank": 3, "ratio": 1}, "a.en")
    []
    >>> warnings({"read": 50, "blank": 4, "ratio": 1}, "a.en")[0][:65]
    '10.0 % of the pairs of a.en are dropped, 4 of 5 because a side is'
    """
    read, found = counts.get("read", 0), []
    gone = sum(dropped(counts).values())
    if gone > _WORTH_A_WARNING * read:
        found.append(
            f"{_percent(gone, read)} of the pairs of {name} are dropped, "
            f"{_main_reason(counts)}"
        )
    equal = counts.get("equal", 0)
    if equal > _WORTH_A_WARNING * read and not is_same_language:
        found.append(
            f"{_percent(equal, read)} of the pairs of {name} have equal sides. "
            "Check that the two sides are different files, and that neither "
            "is a table (TSV) or a TMX file with both languages."
        )
    return found


def nothing_left(counts: Mapping[str, int], name: str) -> str:
    """Returns the message that cleaning left no pair of a corpus.

    Args:
        counts: Pairs by rule, as `table` takes them.
        name: str. Names the corpus.
    """
    message = f"Expected training pairs in {name}. Received: "
    if not dropped(counts):
        return f"{message}none."
    return (
        f"{message}{counts['read']:,} pairs, of which none is left after "
        f"cleaning, {_main_reason(counts)}"
    )


def table(counts: Mapping[str, int]) -> str:
    """Returns what became of the pairs that were read, as lines of text.

    Args:
        counts: As of `clean_pairs`; and `tokens`, the pairs with too many ids.

    Example:
    >>> for line in table({"read": 80, "blank": 3, "nul": 5}).splitlines():
    ...     print(line)
    pairs  percent
       80   100.00  read
        3     3.75  dropped: a side is empty
       77    96.25  written
        5     6.25  of these without their NUL characters
    """
    read, by_rule = counts["read"], dropped(counts)
    rows = [
        (read, "read"),
        *((n, f"dropped: {_REASONS[rule]}") for rule, n in by_rule.items()),
        (read - sum(by_rule.values()), "written"),
    ]
    if counts.get("nul"):
        rows.append((counts["nul"], "of these without their NUL characters"))
    width = max(len("pairs"), len(f"{read:,}"))
    lines = [f"{'pairs':>{width}}  percent"] + [
        f"{number:>{width},}  {100 * number / max(read, 1):7.2f}  {text}"
        for number, text in rows
    ]
    return "\n".join(lines)


def unchanged(line: str) -> str:
    """Returns the line as it is."""
    return line


def collapse_blanks(line: str) -> str:
    """Undoes HTML escapes, collapses runs of blanks, strips the ends."""
    return " ".join(text_lib.unescape(line).split())


def _main_reason(counts: Mapping[str, int]) -> str:
    """Returns why most of the dropped pairs were dropped, and advice."""
    by_rule = dropped(counts)
    rule, number = next(iter(by_rule.items()))
    total = sum(by_rule.values())
    return f"{number:,} of {total:,} because {_REASONS[rule]}. {_ADVICE[rule]}"


def _percent(number: int, total: int) -> str:
    return f"{100 * number / total:.1f} %"
