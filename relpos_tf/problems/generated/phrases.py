"""Generated parallel text: numbers, dates, times, money and quantities.

A `Phrase` has no language: it is the name of a function that `english` and
`german` both have, and its arguments. Its words in both languages are a pair.
The corpus needs no download, and other spellers of numbers can check it.

An English phrase has exactly one translation: the sampler leaves out phrases
that are ambiguous in English, such as a list of two numbers ("one hundred and
five") or cents without a currency.

The splits are disjoint: a hash of the English side decides to which split a
phrase belongs.
"""

import calendar
import datetime
import hashlib
import random
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

from relpos_tf.problems.generated import english
from relpos_tf.problems.generated import german

SPLIT_SIZES = {"train": 20_000, "dev": 400, "test": 500}
_LANGUAGES = {"en": english, "de": german}
_SEED = 2018
# Of a thousand phrases, this many are held out: slightly more than the sizes
# require, so that the training split is the last to be complete.
_HELD_OUT = {"dev": 24, "test": 30}

_TIMES = "second minute hour day week month year".split()
_MEASURES = (
    "kilometer meter centimeter kilogram gram liter degree percent dollar euro"
).split()
_THINGS = "book car house letter page question tree".split()
_LIVING = "apple cat child dog egg horse".split()
# Units of time twice: the most useful phrases are the most frequent.
_COUNTED = _TIMES + _TIMES + _MEASURES + _THINGS + _LIVING
# Without seconds: "the third second" would be hard to read.
_RANKED = ["century", "chapter", *_TIMES[2:], *_THINGS]
_SUBSTANCES = {
    "liter": ("beer", "milk", "oil", "water", "wine"),
    "kilogram": ("apricots", "beans", "butter", "flour", "onions", "rice"),
    "gram": ("apricots", "beans", "butter", "flour", "onions", "sugar"),
}
# The full hours that may be named with a part of the day.
_HOURS: dict[str | None, tuple[int, int]] = {
    "morning": (5, 10),
    "afternoon": (1, 5),
    "evening": (6, 10),
}
_YEARS = (1100, 2099)
# Weekdays are ambiguous before every country had the calendar of 1582.
_WEEKDAY_YEARS = (1930, 2049)


class Phrase(NamedTuple):
    """A meaning that has words in each language.

    Attributes:
        kind: str. A function of `english` and `german`.
        arguments: Its arguments; a `Phrase` among them is put into words first.
    """

    kind: str
    arguments: tuple[Any, ...]

    def say(self, language: str) -> str:
        """Returns the phrase in words.

        Args:
            language: "en" or "de".
        """
        words = [
            item.say(language) if isinstance(item, Phrase) else item
            for item in self.arguments
        ]
        return getattr(_LANGUAGES[language], self.kind)(*words)


def split_of(source: str, held_out: Mapping[str, int] = _HELD_OUT) -> str:
    """Returns the split of an English phrase: "train", "dev" or "test".

    It is the same on every machine and in every process.

    Args:
        source: The English phrase.
        held_out: Of a thousand phrases, how many each split other than "train"
            has.
    """
    digest = hashlib.sha256(source.encode("utf-8")).digest()
    rank = int.from_bytes(digest[:8], "big") % 1000
    for split, share in held_out.items():
        if rank < share:
            return split
        rank -= share
    return "train"


def pairs(split: str) -> Iterator[tuple[str, str]]:
    """Yields the pairs of a split, `SPLIT_SIZES[split]` of them.

    Args:
        split: "train", "dev" or "test".

    Yields:
        English phrases, all different, and their German translations.
    """
    generator = random.Random(_SEED)
    seen: set[str] = set()
    while len(seen) < SPLIT_SIZES[split]:
        phrase = sample(generator)
        source = phrase.say("en")
        if source not in seen and split_of(source) == split:
            seen.add(source)
            yield source, phrase.say("de")


def sample(generator: random.Random) -> Phrase:
    """Draws a phrase: a kind by its weight, then its arguments."""
    draw = generator.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
    return draw(generator)


def _count(generator: random.Random) -> int:
    """Draws a count, mostly below a hundred."""
    ranges = ((1, 100), (100, 1000), (1000, 10_000))
    return generator.randrange(*generator.choices(ranges, (72, 21, 7))[0])


def _cardinal(generator: random.Random) -> Phrase:
    """Draws a number, most often of three or four digits."""
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
    # Without a year, February has 29 days.
    day = generator.randint(1, calendar.monthrange(year or 2000, month)[1])
    weekday = generator.randrange(7) if with_weekday else None
    if year and with_weekday:
        weekday = datetime.date(year, month, day).weekday()
    return Phrase(kind, (month, day, year, weekday))


def _in_month(generator: random.Random) -> Phrase:
    month = generator.randint(1, 12)
    return Phrase("in_month", (month, generator.randint(*_YEARS)))


def _exact_time(generator: random.Random) -> Phrase:
    hour, minute = generator.randrange(24), generator.randrange(60)
    return Phrase("exact_time", (hour, minute))


def _rounded_time(generator: random.Random) -> Phrase:
    """Draws a time in steps of five minutes, without noon and midnight."""
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
    """Draws three numbers: the "and" of two could be part of a number."""
    numbers = [generator.randrange(100) for _ in range(3)]
    items = [Phrase("cardinal", (number,)) for number in numbers]
    return Phrase("conjunction", tuple(items))


def _short_date(generator: random.Random) -> Phrase:
    month = generator.randint(1, 12)
    days = calendar.monthrange(2000, month)[1]
    return Phrase("date", (month, generator.randint(1, days)))


# How many of a hundred phrases each draws.
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
