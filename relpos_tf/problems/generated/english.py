"""Numbers, dates, times and quantities in English words.

The modules `english` and `german` have the same functions with the same
arguments: the same call of both gives a phrase and its translation. Nouns are
named by their English singular. Numbers are below a thousand million.

Conventions: American English. No "and" inside a number ("one hundred five"),
so "and" always joins two items; a comma before the "and" of a longer list;
month before day; "kilometer". Tens and units are hyphenated.
"""

from typing import Any

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


def cardinal(number: int) -> str:
    """Counts: 21 is "twenty-one", 105 is "one hundred five"."""
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
    """Ranks: 21 is "twenty-first"."""
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
    """Years, in pairs of digits: 1984 is "nineteen eighty-four"."""
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
        whole: int, at least 1: cents alone would have no currency.
        cents: int, 0 .. 99.
    """
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
    """
    parts = [f"{MONTHS[month]} {ordinal(day)}"]
    if in_year is not None:
        parts.append(year(in_year))
    if weekday is not None:
        parts.insert(0, WEEKDAYS[weekday])
    return ", ".join(parts)


def on_date(*arguments: Any) -> str:
    """When: "on March third". Arguments as for `date`."""
    return f"on {date(*arguments)}"


def in_month(month: int, in_year: int) -> str:
    """When: "in March nineteen eighty-four"."""
    return f"in {MONTHS[month]} {year(in_year)}"


def exact_time(hour: int, minute: int) -> str:
    """A time to the minute: 15:05 is "three oh five p.m.".

    Args:
        hour: int, 0 .. 23.
        minute: int, 0 .. 59.
    """
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
    """
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
    return f"on {WEEKDAYS[weekday]} at {time}"


def conjunction(*items: str) -> str:
    """A list of two or more: "one, two, and three"."""
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
