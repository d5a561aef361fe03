"""Numbers, dates, times and quantities in German words.

The functions and their arguments are those of `english`, whose docstrings
describe them; only differences of German are described here.

Conventions: a number below a million is one word, the unit before the ten
("einundzwanzig"), and starts with "ein" ("einhundert", "eintausend"). "eins"
loses its "s" before a noun, also in "einhundertein Tage". Measures
and currencies stay in the singular ("zwei Kilometer", "fünf Euro").
"""

from typing import NamedTuple

_SMALL = (
    "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf "
    "dreizehn vierzehn fünfzehn sechzehn siebzehn achtzehn neunzehn"
).split()
_TENS = (
    "null zehn zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig"
).split()
_ORDINALS = {1: "erste", 3: "dritte", 7: "siebte", 8: "achte"}
_MONTH_NAMES = (
    "Januar Februar März April Mai Juni Juli August September Oktober "
    "November Dezember"
)
_WEEKDAY_NAMES = "Montag Dienstag Mittwoch Donnerstag Freitag Samstag Sonntag"
MONTHS = dict(enumerate(_MONTH_NAMES.split(), 1))
WEEKDAYS = dict(enumerate(_WEEKDAY_NAMES.split()))
_PARTS = {"morning": "morgens", "afternoon": "nachmittags", "evening": "abends"}


class Noun(NamedTuple):
    """A noun in the nominative."""

    article: str  # "der", "die" or "das"
    singular: str
    plural: str


NOUNS = {
    "second": Noun("die", "Sekunde", "Sekunden"),
    "minute": Noun("die", "Minute", "Minuten"),
    "hour": Noun("die", "Stunde", "Stunden"),
    "day": Noun("der", "Tag", "Tage"),
    "week": Noun("die", "Woche", "Wochen"),
    "month": Noun("der", "Monat", "Monate"),
    "year": Noun("das", "Jahr", "Jahre"),
    "century": Noun("das", "Jahrhundert", "Jahrhunderte"),
    "kilometer": Noun("der", "Kilometer", "Kilometer"),
    "meter": Noun("der", "Meter", "Meter"),
    "centimeter": Noun("der", "Zentimeter", "Zentimeter"),
    "kilogram": Noun("das", "Kilogramm", "Kilogramm"),
    "gram": Noun("das", "Gramm", "Gramm"),
    "liter": Noun("der", "Liter", "Liter"),
    "degree": Noun("der", "Grad", "Grad"),
    "percent": Noun("das", "Prozent", "Prozent"),
    "dollar": Noun("der", "Dollar", "Dollar"),
    "euro": Noun("der", "Euro", "Euro"),
    "cent": Noun("der", "Cent", "Cent"),
    "apple": Noun("der", "Apfel", "Äpfel"),
    "book": Noun("das", "Buch", "Bücher"),
    "car": Noun("das", "Auto", "Autos"),
    "cat": Noun("die", "Katze", "Katzen"),
    "chapter": Noun("das", "Kapitel", "Kapitel"),
    "child": Noun("das", "Kind", "Kinder"),
    "dog": Noun("der", "Hund", "Hunde"),
    "egg": Noun("das", "Ei", "Eier"),
    "horse": Noun("das", "Pferd", "Pferde"),
    "house": Noun("das", "Haus", "Häuser"),
    "letter": Noun("der", "Brief", "Briefe"),
    "page": Noun("die", "Seite", "Seiten"),
    "question": Noun("die", "Frage", "Fragen"),
    "tree": Noun("der", "Baum", "Bäume"),
}
SUBSTANCES = {
    "beer": "Bier",
    "milk": "Milch",
    "oil": "Öl",
    "water": "Wasser",
    "wine": "Wein",
    "apricots": "Aprikosen",
    "beans": "Bohnen",
    "butter": "Butter",
    "flour": "Mehl",
    "onions": "Zwiebeln",
    "rice": "Reis",
    "sugar": "Zucker",
}


def cardinal(number: int) -> str:
    """Counts: 21 is "einundzwanzig", 1,000,001 is "eine Million eins"."""
    return _count(number, "eins")


def ordinal(number: int) -> str:
    """Ranks, as after an article: 21 is "einundzwanzigste"."""
    if number in (100, 1000):
        return "hundertste" if number == 100 else "tausendste"
    rest = number % 100
    if not 0 < rest < 20:
        return f"{_compound(number)}ste"
    return _compound(number - rest) + _ORDINALS.get(rest, f"{_SMALL[rest]}te")


def nth(number: int, noun: str) -> str:
    """A thing by its rank: "der dritte Tag"."""
    forms = NOUNS[noun]
    return f"{forms.article} {ordinal(number)} {forms.singular}"


def year(number: int) -> str:
    """Years: 1984 counts hundreds, "neunzehnhundertvierundachtzig"."""
    if not 1100 <= number < 2000:
        return cardinal(number)
    century, rest = divmod(number, 100)
    return f"{_compound(century)}hundert{_compound(rest)}"


def in_year(number: int) -> str:
    """When: "im Jahr neunzehnhundertvierundachtzig"."""
    return f"im Jahr {year(number)}"


def quantity(count: int, noun: str) -> str:
    """A number of things: "eine Stunde", "einundzwanzig Tage"."""
    forms = NOUNS[noun]
    if abs(count) != 1:
        return f"{_count(count, 'ein')} {forms.plural}"
    one = "eine" if forms.article == "die" else "ein"
    return f"{'minus ' if count < 0 else ''}{one} {forms.singular}"


def quantity_of(count: int, noun: str, substance: str) -> str:
    """An amount of a substance: "zwei Liter Wasser"."""
    return f"{quantity(count, noun)} {SUBSTANCES[substance]}"


def ago(count: int, noun: str) -> str:
    """A time in the past, in the dative: "vor einem Tag"."""
    return f"vor {_dative_quantity(count, noun)}"


def from_now(count: int, noun: str) -> str:
    """A time in the future, in the dative: "in drei Tagen"."""
    return f"in {_dative_quantity(count, noun)}"


def money(currency: str, whole: int, cents: int = 0) -> str:
    """An amount: "fünf Dollar und fünfzig Cent"."""
    amount = quantity(whole, currency)
    return f"{amount} und {quantity(cents, 'cent')}" if cents else amount


def date(
    month: int, day: int, in_year: int | None = None, weekday: int | None = None
) -> str:
    """A day: "Montag, der dritte März neunzehnhundert"."""
    words = f"der {_day(month, day, '', in_year)}"
    if weekday is None:
        return words
    return f"{WEEKDAYS[weekday]}, {words}"


def on_date(
    month: int, day: int, in_year: int | None = None, weekday: int | None = None
) -> str:
    """When: "am dritten März", "am Montag, dem dritten März"."""
    words = _day(month, day, "n", in_year)
    if weekday is None:
        return f"am {words}"
    return f"am {WEEKDAYS[weekday]}, dem {words}"


def in_month(month: int, in_year: int) -> str:
    """When: "im März neunzehnhundertvierundachtzig"."""
    return f"im {MONTHS[month]} {year(in_year)}"


def exact_time(hour: int, minute: int) -> str:
    """A time to the minute, of 24 hours: "fünfzehn Uhr fünf"."""
    words = f"{_count(hour, 'ein')} Uhr"
    return f"{words} {cardinal(minute)}" if minute else words


def rounded_time(hour: int, offset: int, part: str | None = None) -> str:
    """A time in everyday words: half past three is "halb vier"."""
    if offset == 0:
        words = f"{_count(hour, 'ein')} Uhr"
    elif offset == 30:
        words = f"halb {cardinal(hour % 12 + 1)}"
    else:
        minutes = abs(offset)
        amount = "Viertel" if minutes == 15 else cardinal(minutes)
        words = f"{amount} {'nach' if offset > 0 else 'vor'} {cardinal(hour)}"
    return f"{words} {_PARTS[part]}" if part else words


def at(time: str, weekday: int | None = None) -> str:
    """When: "am Montag um zehn vor vier"."""
    if weekday is None:
        return f"um {time}"
    return f"am {WEEKDAYS[weekday]} um {time}"


def conjunction(*items: str) -> str:
    """A list: "eins, zwei und drei"."""
    return f"{', '.join(items[:-1])} und {items[-1]}"


def _count(number: int, one: str) -> str:
    """Returns a cardinal whose last "eins", if any, is said `one`."""
    if number < 0:
        return f"minus {_count(-number, one)}"
    millions, rest = divmod(number, 1_000_000)
    if not millions:
        return _compound(rest, one) or _SMALL[0]
    words = "eine Million"
    if millions > 1:
        words = f"{_compound(millions, 'ein')} Millionen"
    return f"{words} {_compound(rest, one)}".rstrip()


def _compound(number: int, one: str = "eins") -> str:
    """Returns the one word for 0 .. 999,999; nothing for 0."""
    for size, name in ((1000, "tausend"), (100, "hundert")):
        if number >= size:
            high, low = divmod(number, size)
            return f"{_compound(high, 'ein')}{name}{_compound(low, one)}"
    if number < 20:
        return ["", one, *_SMALL[2:]][number]
    tens, unit = divmod(number, 10)
    return (f"{_compound(unit, 'ein')}und" if unit else "") + _TENS[tens]


def _dative_quantity(count: int, noun: str) -> str:
    """Returns "einem Tag", "einer Stunde", "drei Tagen"."""
    forms = NOUNS[noun]
    if count != 1:
        plural = forms.plural
        if plural.endswith(("e", "el", "er")):
            plural += "n"
        return f"{_count(count, 'ein')} {plural}"
    one = "einer" if forms.article == "die" else "einem"
    return f"{one} {forms.singular}"


def _day(month: int, day: int, ending: str, in_year: int | None) -> str:
    """Returns "dritte März", with a year where one is given."""
    words = f"{ordinal(day)}{ending} {MONTHS[month]}"
    return words if in_year is None else f"{words} {year(in_year)}"
