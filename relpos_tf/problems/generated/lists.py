"""Lists of generated phrases, equally many of every length.

They show how a model translates sentences longer than its training sentences:
that takes many long sentences of the same kind as the short ones. A list has
one to about twelve quantities, ranks or numbers of `phrases`;
`--hparams=max_length=L` leaves long lists out of training.

The length of a list does not depend on the tokenizer: it is the number of
words, parts of hyphenated words and punctuation marks of the English side. The
vocabulary of `translate_ende_lists` needs about as many pieces for either side.
"""

import functools
import random
import re
from collections.abc import Iterator
from typing import NamedTuple

from relpos_tf.problems.generated import english
from relpos_tf.problems.generated import phrases

# Each a multiple of the number of lengths.
SPLIT_SIZES = {"train": 20_000, "dev": 400, "test": 1000}
LENGTHS = range(3, 53)
_SEED = 2018
_HELD_OUT = {"dev": 100, "test": 200}  # of a thousand lists
# No commas and no "and" inside, so that items can be told apart.
_KINDS = {
    "things": frozenset({"quantity", "quantity_of", "nth"}),
    "numbers": frozenset({"cardinal"}),
}
# The kind of a list is drawn from these: one in four has numbers.
_KIND_OF_LIST = ("things", "things", "things", "numbers")
_POOL_DRAWS = 50_000  # phrases among which the items are chosen


class _Item(NamedTuple):
    """An item of a list, in both languages."""

    source: str
    target: str
    length: int


def length_of(source: str) -> int:
    """Counts words, with the parts of hyphenated ones, and marks.

    Example:

    >>> length_of("twenty-one days, one hour, and two years")
    11
    """
    return len(re.findall(r"\w+|[^\w\s]", source))


def split_of(source: str) -> str:
    """Returns the split of an English list, as `phrases.split_of` does."""
    return phrases.split_of(source, _HELD_OUT)


def pairs(split: str) -> Iterator[tuple[str, str]]:
    """Yields the pairs of a split, `SPLIT_SIZES[split]` of them.

    Args:
        split: "train", "dev" or "test".

    Yields:
        English lists, all different, and their German translations. Their
        lengths go through `LENGTHS` again and again, so that any whole number
        of rounds has each length equally often.

    Raises:
        ValueError: no such split.
    """
    size = english.look_up(SPLIT_SIZES, split)
    pool = _pool()
    generator = random.Random(f"{_SEED} {split}")
    seen = set()
    while len(seen) < size:
        length = LENGTHS[len(seen) % len(LENGTHS)]
        items = _draw(generator, pool, length)
        source = _join("en", [item.source for item in items])
        if split_of(source) == split and source not in seen:
            seen.add(source)
            yield source, _join("de", [item.target for item in items])


@functools.cache
def _pool() -> dict[str, list[_Item]]:
    """Returns the items to choose from, by kind of list."""
    generator = random.Random(_SEED)
    pool = {kind: [] for kind in _KINDS}
    for _ in range(_POOL_DRAWS):
        phrase = phrases.sample(generator)
        for kind, members in _KINDS.items():
            if phrase.kind in members:
                source = phrase.say("en")
                item = _Item(source, phrase.say("de"), length_of(source))
                pool[kind].append(item)
    return pool


def _draw(
    generator: random.Random, pool: dict[str, list[_Item]], length: int
) -> list[_Item]:
    """Draws the items of a list whose English side has a length."""
    kind = generator.choice(_KIND_OF_LIST)
    items = []
    while True:
        items.append(generator.choice(pool[kind]))
        reached = sum(item.length for item in items)
        if len(items) == 2:
            reached += 1  # for "and"
        elif len(items) > 2:
            reached += len(items)  # for the commas and "and"
        # The "and" of two numbers could be part of one number.
        if reached == length and (kind, len(items)) != ("numbers", 2):
            return items
        if reached >= length:
            del items[-2:]


def _join(language: str, items: list[str]) -> str:
    """Returns the items as one list in words."""
    if len(items) == 1:
        return items[0]
    return phrases.Phrase("conjunction", tuple(items)).say(language)
