r"""Lists of generated phrases, equally many of every length.

    relpos-compare --usr_dir=examples/lists --problem=translate_ende_lists \
        --preset=length --train_max_length=20 --train_steps=2000 \
        --output_dir=runs/length_lists

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

from relpos_tf import registry
from relpos_tf.problems import translate
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


@registry.register_problem
def translate_ende_lists():
    """Generated lists, equally many of every length."""
    # A piece for each word, so that lengths in ids are even, too.
    return translate.generated_problem("translate_ende_lists", pairs, 1024)


def pairs(split: str) -> Iterator[tuple[str, str]]:
    """Yields the pairs of a split, `SPLIT_SIZES[split]` of them.

    Args:
        split: "train", "dev" or "test".

    Yields:
        English lists, all different, and their German translations. Their
        lengths go through `LENGTHS` again and again, so that any whole number
        of rounds has each length equally often.
    """
    generator = random.Random(f"{_SEED} {split}")
    seen: set[str] = set()
    while len(seen) < SPLIT_SIZES[split]:
        drawn = _draw(generator, LENGTHS[len(seen) % len(LENGTHS)])
        source = drawn.say("en")
        is_of_split = phrases.split_of(source, _HELD_OUT) == split
        if is_of_split and source not in seen:
            seen.add(source)
            yield source, drawn.say("de")


@functools.cache
def _pool() -> dict[str, list[phrases.Phrase]]:
    """Returns the items to choose from, by kind of list."""
    generator = random.Random(_SEED)
    drawn = [phrases.sample(generator) for _ in range(_POOL_DRAWS)]
    return {
        kind: [phrase for phrase in drawn if phrase.kind in members]
        for kind, members in _KINDS.items()
    }


def _draw(generator: random.Random, length: int) -> phrases.Phrase:
    """Draws a list whose English side has a length."""
    kind = generator.choice(_KIND_OF_LIST)
    items = []
    while True:
        items.append(generator.choice(_pool()[kind]))
        reached = sum(map(_length, items))
        if len(items) == 2:
            reached += 1  # for "and"
        elif len(items) > 2:
            reached += len(items)  # for the commas and "and"
        # The "and" of two numbers could be part of one number.
        if reached == length and (kind, len(items)) != ("numbers", 2):
            if len(items) == 1:
                return items[0]
            return phrases.Phrase("conjunction", tuple(items))
        if reached >= length:
            del items[-2:]


def length_of(source: str) -> int:
    """Counts words, with the parts of hyphenated ones, and marks.

    Example:
    >>> length_of("twenty-one days, one hour, and two years")
    11
    """
    return len(re.findall(r"\w+|[^\w\s]", source))


@functools.cache
def _length(phrase: phrases.Phrase) -> int:
    """Returns the length of an item."""
    return length_of(phrase.say("en"))
