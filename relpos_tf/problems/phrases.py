"""Generated parallel text: numbers, dates, times, money and quantities.

A `Phrase` is what is said, without a language: the name of a function that
`spoken_en`, `spoken_de` and `spoken_fr` all have, and its arguments. Saying it
in two languages gives a pair. Nothing is looked up in a text, so the corpus
needs no download and can be checked against other spellers of numbers.

One English phrase has exactly one translation. To keep it so, the sampler
leaves out what English does not tell apart, such as cents alone, which French
calls "cents" or "centimes", or lists of two numbers ("one hundred and five").

A split holds other phrases than the next, made of the same words: which one a
phrase belongs to is decided by a hash of its English side.
"""

import calendar
import dataclasses
import datetime
import hashlib
import itertools
import random
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

from relpos_tf.problems import spoken_de
from relpos_tf.problems import spoken_en
from relpos_tf.problems import spoken_fr

SPLIT_SIZES = {"train": 20_000, "dev": 400, "test": 500}
_LANGUAGES = {"en": spoken_en, "de": spoken_de, "fr": spoken_fr}
_SEED = 2018
# Of a thousand phrases, this many are held out. A little more than the sizes
# ask for, so that the training pairs are the last to be complete.
_HELD_OUT = {"dev": 24, "test": 30}

_TIMES = "second minute hour day week month year".split()
_MEASURES = (
    "kilometer meter centimeter kilogram gram liter degree percent dollar euro"
).split()
_THINGS = "book car house letter page question tree".split()
_LIVING = "apple cat child dog egg horse".split()
# Times twice: the most useful phrases are to be known best.
_COUNTED = _TIMES + _TIMES + _MEASURES + _THINGS + _LIVING
# "the third second" would be hard to read.
_RANKED = ["century", "chapter", *_TIMES[2:], *_THINGS]
_SUBSTANCES = {
    "liter": ("beer", "milk", "oil", "water", "wine"),
    "kilogram": ("apricots", "beans", "butter", "flour", "onions", "rice"),
    "gram": ("apricots", "beans", "butter", "flour", "onions", "sugar"),
}
# The full hours that a part of the day is said with.
_HOURS = {"morning": (5, 10), "afternoon": (1, 5), "evening": (6, 10)}
_YEARS = (1100, 2099)
# Nobody agrees on the weekdays before every country took the calendar of 1582.
_WEEKDAY_YEARS = (1930, 2049)


@dataclasses.dataclass(frozen=True)
class Phrase:
    """Something to say.

    Attributes:
        kind: str. A function of the `spoken` modules.
        arguments: What it is called with; a `Phrase` among them is said first.
    """

    kind: str
    arguments: tuple[Any, ...]

    def say(self, language: str) -> str:
        """Returns the phrase in words.

        Args:
            language: "en", "de" or "fr".

        Raises:
            ValueError: another language, or arguments out of range.
        """
        words = [
            item.say(language) if isinstance(item, Phrase) else item
            for item in self.arguments
        ]
        module = spoken_en.look_up(_LANGUAGES, language)
        return getattr(module, self.kind)(*words)


def split_of(english: str, held_out: Mapping[str, int] = _HELD_OUT) -> str:
    """Returns the split of an English phrase: "train", "dev" or "test".

    The same on every machine, in every process and for every language pair.

    Args:
        english: The phrase.
        held_out: Of a thousand phrases, how many are not for training.
    """
    digest = hashlib.sha256(english.encode("utf-8")).digest()
    rank = int.from_bytes(digest[:8], "big") % 1000
    for split, share in held_out.items():
        if rank < share:
            return split
        rank -= share
    return "train"


def pairs(target_language: str, split: str) -> Iterator[tuple[str, str]]:
    """Yields the pairs of a split, `SPLIT_SIZES[split]` of them.

    Args:
        target_language: "de" or "fr". The English sides are the same in both.
        split: "train", "dev" or "test".

    Yields:
        English phrases and their translations, no English phrase twice.

    Raises:
        ValueError: no such language or split.
    """
    size = spoken_en.look_up(SPLIT_SIZES, split)
    found = (pair for pair in _different(_SEED) if split_of(pair[0]) == split)
    for english, phrase in itertools.islice(found, size):
        yield english, phrase.say(target_language)


def generate(
    target_language: str, count: int, seed: int
) -> list[tuple[str, str]]:
    """Makes pairs of all splits.

    Args:
        target_language: "de" or "fr".
        count: int. How many pairs; there are some millions of phrases.
        seed: int. The same seed gives the same pairs.

    Returns:
        English phrases and their translations, no English phrase twice.

    Raises:
        ValueError: no such language.
    """
    return [
        (english, phrase.say(target_language))
        for english, phrase in itertools.islice(_different(seed), count)
    ]


def sample(generator: random.Random) -> Phrase:
    """Draws a phrase: a kind by its weight, then its arguments."""
    draw = generator.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
    return draw(generator)


def _different(seed: int) -> Iterator[tuple[str, Phrase]]:
    """Yields phrases and their English side, endlessly, none of them twice."""
    generator = random.Random(seed)
    seen = set()
    while True:
        phrase = sample(generator)
        english = phrase.say("en")
        if english not in seen:
            seen.add(english)
            yield english, phrase


def _count(generator: random.Random) -> int:
    """Draws how many there are of something: mostly below a hundred."""
    ranges = ((1, 100), (100, 1000), (1000, 10_000))
    return generator.randrange(*generator.choices(ranges, (72, 21, 7))[0])


def _cardinal(generator: random.Random) -> Phrase:
    """Draws a number to be spelled out: most have three or four digits."""
    ranges = (
        (0, 100),
        (100, 1000),
        (1000, 10_000),
        (10_000, 1_000_000, 10),
        (1_000_000, 1_000_000_000, 1_000_000),
    )
    chosen = generator.choices(ranges, (8, 27, 50, 10, 5))[0]
    return Phrase("cardinal", (generator.randrange(*chosen),))


def _ordinal(generator: random.Random) -> Phrase:
    return Phrase("ordinal", (generator.randrange(1, 1000),))


def _nth(generator: random.Random) -> Phrase:
    below = 100 if generator.random() < 0.8 else 1000
    rank = generator.randrange(1, below)
    return Phrase("nth", (rank, generator.choice(_RANKED)))


def _year(generator: random.Random) -> Phrase:
    return Phrase("year", (generator.randint(*_YEARS),))


def _in_year(generator: random.Random) -> Phrase:
    return Phrase("in_year", (generator.randint(*_YEARS),))


def _quantity(generator: random.Random) -> Phrase:
    noun = generator.choice(_COUNTED)
    count = _count(generator)
    if noun == "degree":
        count = generator.randrange(-60, 100)
    return Phrase("quantity", (count, noun))


def _quantity_of(generator: random.Random) -> Phrase:
    noun = generator.choice(list(_SUBSTANCES))
    substance = generator.choice(_SUBSTANCES[noun])
    return Phrase("quantity_of", (_count(generator), noun, substance))


def _distance_in_time(generator: random.Random) -> Phrase:
    kind = generator.choice(("ago", "from_now"))
    return Phrase(kind, (_count(generator), generator.choice(_TIMES)))


def _money(generator: random.Random) -> Phrase:
    currency = generator.choice(("dollar", "euro"))
    cents = generator.randrange(1, 100)
    return Phrase("money", (currency, _count(generator), cents))


def _date(generator: random.Random) -> Phrase:
    """Draws a date, with a year, a weekday, both or neither."""
    kind = generator.choice(("date", "on_date"))
    with_year = generator.random() < 0.4
    with_weekday = generator.random() < 0.5
    years = _WEEKDAY_YEARS if with_weekday else _YEARS
    year = generator.randint(*years) if with_year else None
    month = generator.randint(1, 12)
    # Without a year it may be a leap year.
    days = calendar.monthrange(year or 2000, month)[1]
    day = generator.randint(1, days)
    weekday = generator.randrange(7) if with_weekday else None
    if with_year and with_weekday:
        weekday = datetime.date(year, month, day).weekday()
    return Phrase(kind, (month, day, year, weekday))


def _in_month(generator: random.Random) -> Phrase:
    month = generator.randint(1, 12)
    return Phrase("in_month", (month, generator.randint(*_YEARS)))


def _exact_time(generator: random.Random) -> Phrase:
    hour, minute = generator.randrange(24), generator.randrange(60)
    return Phrase("exact_time", (hour, minute))


def _rounded_time(generator: random.Random) -> Phrase:
    """Draws a time in steps of five minutes; twelve is noon or midnight."""
    part = generator.choice((None, *_HOURS))
    low, high = _HOURS.get(part, (1, 11))
    offset = generator.randrange(-25, 35, 5)
    return Phrase("rounded_time", (generator.randint(low, high), offset, part))


def _time(generator: random.Random) -> Phrase:
    time = generator.choice((_exact_time, _rounded_time))(generator)
    if generator.random() < 0.25:
        return time
    return Phrase("at", (time, generator.choice((None, *range(7)))))


def _list(generator: random.Random) -> Phrase:
    """Draws a list of two or three short items of one kind."""
    draw = generator.choice((_quantity, _quantity, _nth, _year, _short_date))
    length = 2 if generator.random() < 0.7 else 3
    return Phrase("conjunction", tuple(draw(generator) for _ in range(length)))


def _number_list(generator: random.Random) -> Phrase:
    """Draws three numbers; of two, the "and" could be part of a number."""
    numbers = [generator.randrange(100) for _ in range(3)]
    items = [Phrase("cardinal", (number,)) for number in numbers]
    return Phrase("conjunction", tuple(items))


def _short_date(generator: random.Random) -> Phrase:
    month = generator.randint(1, 12)
    days = calendar.monthrange(2000, month)[1]
    return Phrase("date", (month, generator.randint(1, days)))


# How often each is drawn, of a hundred.
_WEIGHTS = {
    _cardinal: 12,
    _ordinal: 3,
    _nth: 7,
    _year: 3,
    _in_year: 3,
    _quantity: 25,
    _quantity_of: 6,
    _distance_in_time: 9,
    _money: 7,
    _date: 7,
    _in_month: 2,
    _time: 7,
    _list: 7,
    _number_list: 2,
}
