"""Numbers, dates, times and quantities in English words.

The modules `english` and `german` have the same functions with the same
arguments: the same call of both gives a phrase and its translation. Nouns are
named by their English singular.

Conventions: American English. No "and" inside a number ("one hundred five"),
so "and" always joins two items; a comma before the "and" of a longer list;
month before day; "kilometer". Tens and units are hyphenated.
"""

from typing import Any
from typing import NamedTuple

MAX_CARDINAL = 999_999_999
MAX_ORDINAL = 999_999

_SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve "
    "thirteen fourteen fifteen sixteen seventeen eighteen nineteen"
).split()
_TENS = (
    "zero ten twenty thirty forty fifty sixty seventy eighty ninety"
).split()
_ORDINALS = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}
_MONTH_NAMES = (
    "January February March April May June July August September October "
    "November December"
)
_WEEKDAY_NAMES = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday"
MONTHS = dict(enumerate(_MONTH_NAMES.split(), 1))
WEEKDAYS = dict(enumerate(_WEEKDAY_NAMES.split()))
_IRREGULAR_PLURALS = {
    "century": "centuries",
    "child": "children",
    "percent": "percent",
}


class Noun(NamedTuple):
    """A noun of a language with genders, in the nominative."""

    article: str  # "der", "die" or "das"
    singular: str
    plural: str


def require(name: str, value: int, low: int, high: int) -> None:
    """Checks that a number is in its range, the same in every language.

    Raises:
        ValueError: `value` is not one of `low` .. `high`.
    """
    if not low <= value <= high:
        raise ValueError(
            f"`{name}` must be between {low} and {high}. Received: {value}."
        )


def look_up(table: dict[Any, Any], name: Any) -> Any:
    """Returns `table[name]`.

    Raises:
        ValueError: there is no such name; the message lists the known names.
    """
    if name not in table:
        raise ValueError(f"Expected one of {list(table)}. Received: {name!r}.")
    return table[name]


def cardinal(number: int) -> str:
    """Counts: 21 is "twenty-one", 105 is "one hundred five".

    Args:
        number: int, at most `MAX_CARDINAL` either side of zero.

    Raises:
        ValueError: the number is larger.
    """
    require("number", number, -MAX_CARDINAL, MAX_CARDINAL)
    if number < 0:
        return f"minus {cardinal(-number)}"
    millions, rest = divmod(number, 1_000_000)
    thousands, rest = divmod(rest, 1000)
    words = []
    if millions:
        words += [_below_thousand(millions), "million"]
    if thousands:
        words += [_below_thousand(thousands), "thousand"]
    if rest or not words:
        words.append(_below_thousand(rest))
    return " ".join(words)


def ordinal(number: int) -> str:
    """Ranks: 21 is "twenty-first".

    Raises:
        ValueError: the number is not one of 1 .. `MAX_ORDINAL`.
    """
    require("number", number, 1, MAX_ORDINAL)
    words = cardinal(number)
    start = max(words.rfind(" "), words.rfind("-")) + 1
    last = words[start:]
    if last.endswith("y"):
        return f"{words[:-1]}ieth"
    return words[:start] + _ORDINALS.get(last, f"{last}th")


def nth(number: int, noun: str) -> str:
    """A thing by its rank: "the third day"."""
    return f"the {ordinal(number)} {noun}"


def year(number: int) -> str:
    """Years, in pairs of digits: 1984 is "nineteen eighty-four".

    Raises:
        ValueError: the year is not one of 1 .. 9999.
    """
    require("year", number, 1, 9999)
    century, rest = divmod(number, 100)
    if number % 1000 < 10 or not century:
        return cardinal(number)
    if not rest:
        return f"{cardinal(century)} hundred"
    if rest < 10:
        return f"{cardinal(century)} oh {cardinal(rest)}"
    return f"{cardinal(century)} {cardinal(rest)}"


def in_year(number: int) -> str:
    """When: "in nineteen eighty-four"."""
    return f"in {year(number)}"


def quantity(count: int, noun: str) -> str:
    """A number of things: "twenty-one days"."""
    if abs(count) == 1:
        return f"{cardinal(count)} {noun}"
    return f"{cardinal(count)} {_IRREGULAR_PLURALS.get(noun, f'{noun}s')}"


def quantity_of(count: int, noun: str, substance: str) -> str:
    """An amount of a substance: "two liters of water"."""
    return f"{quantity(count, noun)} of {substance}"


def ago(count: int, noun: str) -> str:
    """A time in the past: "three days ago"."""
    return f"{quantity(count, noun)} ago"


def from_now(count: int, noun: str) -> str:
    """A time in the future: "in three days"."""
    return f"in {quantity(count, noun)}"


def money(currency: str, whole: int, cents: int = 0) -> str:
    """An amount: "five dollars and fifty cents".

    Args:
        currency: "dollar" or "euro".
        whole: int, at least 1: cents alone have no currency.
        cents: int, 0 .. 99.

    Raises:
        ValueError: a number is out of range.
    """
    require("whole", whole, 1, MAX_CARDINAL)
    require("cents", cents, 0, 99)
    amount = quantity(whole, currency)
    return f"{amount} and {quantity(cents, 'cent')}" if cents else amount


def date(
    month: int, day: int, in_year: int | None = None, weekday: int | None = None
) -> str:
    """A day: "Monday, March third, nineteen eighty-four".

    Args:
        month: int, 1 .. 12.
        day: int, 1 .. 31.
        in_year: int or None.
        weekday: int or None; 0 is Monday.

    Raises:
        ValueError: a number is out of range.
    """
    require("day", day, 1, 31)
    parts = [f"{look_up(MONTHS, month)} {ordinal(day)}"]
    if in_year is not None:
        parts.append(year(in_year))
    if weekday is not None:
        parts.insert(0, look_up(WEEKDAYS, weekday))
    return ", ".join(parts)


def on_date(
    month: int, day: int, in_year: int | None = None, weekday: int | None = None
) -> str:
    """When: "on March third". Arguments as for `date`."""
    return f"on {date(month, day, in_year, weekday)}"


def in_month(month: int, in_year: int) -> str:
    """When: "in March nineteen eighty-four"."""
    return f"in {look_up(MONTHS, month)} {year(in_year)}"


def exact_time(hour: int, minute: int) -> str:
    """A time to the minute: 15:05 is "three oh five p.m.".

    Args:
        hour: int, 0 .. 23.
        minute: int, 0 .. 59.

    Raises:
        ValueError: a number is out of range.
    """
    require("hour", hour, 0, 23)
    require("minute", minute, 0, 59)
    words = [cardinal((hour + 11) % 12 + 1)]
    if 0 < minute < 10:
        words.append("oh")
    if minute:
        words.append(cardinal(minute))
    words.append("a.m." if hour < 12 else "p.m.")
    return " ".join(words)


def rounded_time(hour: int, offset: int, part: str | None = None) -> str:
    """A time in everyday words: "ten to four in the afternoon".

    Args:
        hour: int, 1 .. 12. The full hour that English names.
        offset: int. Minutes from that hour: -25 .. 30.
        part: "morning", "afternoon", "evening" or None.

    Raises:
        ValueError: a number is out of range.
    """
    require("hour", hour, 1, 12)
    require("offset", offset, -25, 30)
    name = cardinal(hour)
    if offset == 0:
        words = f"{name} o'clock"
    elif offset == 30:
        words = f"half past {name}"
    else:
        minutes = abs(offset)
        amount = "a quarter" if minutes == 15 else cardinal(minutes)
        words = f"{amount} {'past' if offset > 0 else 'to'} {name}"
    return f"{words} in the {part}" if part else words


def at(time: str, weekday: int | None = None) -> str:
    """When: "on Monday at ten to four"; `time` is in words."""
    if weekday is None:
        return f"at {time}"
    return f"on {look_up(WEEKDAYS, weekday)} at {time}"


def conjunction(*items: str) -> str:
    """A list: "one, two, and three".

    Raises:
        ValueError: fewer than two items.
    """
    require("number of items", len(items), 2, 99)
    if len(items) == 2:
        return f"{items[0]} and {items[1]}"
    return f"{', '.join(items[:-1])}, and {items[-1]}"


def _below_thousand(number: int) -> str:
    """Returns the words for 0 .. 999."""
    hundreds, rest = divmod(number, 100)
    words = [f"{_SMALL[hundreds]} hundred"] if hundreds else []
    if rest >= 20:
        tens, unit = divmod(rest, 10)
        words.append(_TENS[tens] + (f"-{_SMALL[unit]}" if unit else ""))
    elif rest or not hundreds:
        words.append(_SMALL[rest])
    return " ".join(words)
