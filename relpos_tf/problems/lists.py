"""Lists of generated phrases, equally many of every length.

To see what a model does with sentences longer than those it was trained on,
there must be enough of them, of the same kind. Here the items of a list are
such quantities, ranks and numbers as `phrases` makes, one to about twelve of
them, and `--hparams=max_length=L` holds back the long lists in training.

Lengths are counted on the English side, the same for every language and
tokenizer: words, the parts of hyphenated ones, and marks. The vocabulary of
`translate_ende_lists` takes about as many pieces for either side.
"""

import functools
import random
import re
from collections.abc import Iterator
from typing import NamedTuple

from relpos_tf.problems import phrases
from relpos_tf.problems import spoken_en

# Each a multiple of the number of lengths.
SPLIT_SIZES = {"train": 20_000, "dev": 400, "test": 1000}
LENGTHS = range(3, 53)
_SEED = 2018
_HELD_OUT = {"dev": 100, "test": 200}  # of a thousand lists
# Neither commas nor "and" inside, so that items can be told apart.
_KINDS = {
    "things": frozenset({"quantity", "quantity_of", "nth"}),
    "numbers": frozenset({"cardinal"}),
}
# Which kind a list is of: one in four is of numbers.
_KIND_OF_LIST = ("things", "things", "things", "numbers")
_DRAWS = 50_000  # phrases that items are chosen from


class _Item(NamedTuple):
    """An item of a list, in two languages."""

    english: str
    translation: str
    length: int


def length_of(english: str) -> int:
    """Counts words, with the parts of hyphenated ones, and marks.

    Example:

    >>> length_of("twenty-one days, one hour, and two years")
    11
    """
    return len(re.findall(r"\w+|[^\w\s]", english))


def split_of(english: str) -> str:
    """Returns the split of an English list, as `phrases.split_of` does."""
    return phrases.split_of(english, _HELD_OUT)


def pairs(target_language: str, split: str) -> Iterator[tuple[str, str]]:
    """Yields the pairs of a split, `SPLIT_SIZES[split]` of them.

    Args:
        target_language: "de" or "fr". The English sides are the same in both.
        split: "train", "dev" or "test".

    Yields:
        English lists and their translations, no English list twice. Their
        lengths are `LENGTHS`, over and over: every part of a split that ends
        with the last of them has equally many of each.

    Raises:
        ValueError: no such language or split.
    """
    size = spoken_en.look_up(SPLIT_SIZES, split)
    pool = _pool(target_language)
    generator = random.Random(f"{_SEED} {split}")
    seen = set()
    while len(seen) < size:
        length = LENGTHS[len(seen) % len(LENGTHS)]
        items = _draw(generator, pool, length)
        english = _say("en", [item.english for item in items])
        if split_of(english) == split and english not in seen:
            seen.add(english)
            translations = [item.translation for item in items]
            yield english, _say(target_language, translations)


@functools.lru_cache(maxsize=2)
def _pool(target_language: str) -> dict[str, list[_Item]]:
    """Returns the items to choose from, of each kind."""
    generator = random.Random(_SEED)
    pool = {kind: [] for kind in _KINDS}
    for _ in range(_DRAWS):
        phrase = phrases.sample(generator)
        for kind, members in _KINDS.items():
            if phrase.kind in members:
                english = phrase.say("en")
                translation = phrase.say(target_language)
                pool[kind].append(
                    _Item(english, translation, length_of(english))
                )
    return pool


def _draw(
    generator: random.Random, pool: dict[str, list[_Item]], length: int
) -> list[_Item]:
    """Draws the items of a list whose English side has a length."""
    kind = generator.choice(_KIND_OF_LIST)
    items = []
    while True:
        items.append(generator.choice(pool[kind]))
        found = sum(item.length for item in items)
        if len(items) > 1:  # Two have an "and", of more each but one a comma.
            found += 1 if len(items) == 2 else len(items)
        # Of two numbers, the "and" could be part of one.
        if found == length and (kind, len(items)) != ("numbers", 2):
            return items
        if found >= length:
            del items[-2:]


def _say(language: str, items: list[str]) -> str:
    """Joins the items of a list, which of one is the item."""
    if len(items) == 1:
        return items[0]
    return phrases.Phrase("conjunction", tuple(items)).say(language)
