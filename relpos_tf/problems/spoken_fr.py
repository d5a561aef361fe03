"""Numbers, dates, times and quantities in French words.

The functions and their arguments are those of `spoken_en`; only what French
does differently is said here.

Conventions: the French of France ("soixante-dix", "quatre-vingt-dix"), in the
spelling from before 1990: hyphens below a hundred only, except around "et".
"vingt" and "cent" take an "s" where they are multiplied and end the number
("quatre-vingts", "deux cents"), also before "millions", which is a noun, but
not before "mille", which never changes, nor in a year, which is a rank ("mille
neuf cent quatre-vingt"). "un" agrees with what it counts ("vingt et une
heures"), and so do the minutes of a time ("trois heures une").
"""

from relpos_tf.problems import spoken_en

_SMALL = (
    "zéro un deux trois quatre cinq six sept huit neuf dix onze douze treize "
    "quatorze quinze seize dix-sept dix-huit dix-neuf"
).split()
# Seventy and ninety go on counting from sixty and eighty.
_TENS = (
    "zéro dix vingt trente quarante cinquante soixante soixante "
    "quatre-vingt quatre-vingt"
).split()
_MONTH_NAMES = (
    "janvier février mars avril mai juin juillet août septembre octobre "
    "novembre décembre"
)
_WEEKDAY_NAMES = "lundi mardi mercredi jeudi vendredi samedi dimanche"
MONTHS = dict(enumerate(_MONTH_NAMES.split(), 1))
WEEKDAYS = dict(enumerate(_WEEKDAY_NAMES.split()))
_PARTS = {
    "morning": "du matin",
    "afternoon": "de l'après-midi",
    "evening": "du soir",
}
_OFFSETS = {-15: " moins le quart", 0: "", 15: " et quart", 30: " et demie"}
_CENTS = {"dollar": "cent", "euro": "centime"}
# Vowels and the mute h drop the "e" of "de"; an aspirated h and numbers do not.
_ELIDED = tuple("aeéhioœu")
_NOT_ELIDED = ("haricot", "huit", "onz")
NOUNS = {
    "second": spoken_en.Noun("la", "seconde", "secondes"),
    "minute": spoken_en.Noun("la", "minute", "minutes"),
    "hour": spoken_en.Noun("la", "heure", "heures"),
    "day": spoken_en.Noun("le", "jour", "jours"),
    "week": spoken_en.Noun("la", "semaine", "semaines"),
    "month": spoken_en.Noun("le", "mois", "mois"),
    "year": spoken_en.Noun("le", "an", "ans"),
    "century": spoken_en.Noun("le", "siècle", "siècles"),
    "kilometer": spoken_en.Noun("le", "kilomètre", "kilomètres"),
    "meter": spoken_en.Noun("le", "mètre", "mètres"),
    "centimeter": spoken_en.Noun("le", "centimètre", "centimètres"),
    "kilogram": spoken_en.Noun("le", "kilogramme", "kilogrammes"),
    "gram": spoken_en.Noun("le", "gramme", "grammes"),
    "liter": spoken_en.Noun("le", "litre", "litres"),
    "degree": spoken_en.Noun("le", "degré", "degrés"),
    "percent": spoken_en.Noun("le", "pour cent", "pour cent"),
    "dollar": spoken_en.Noun("le", "dollar", "dollars"),
    "euro": spoken_en.Noun("le", "euro", "euros"),
    "cent": spoken_en.Noun("le", "cent", "cents"),
    "centime": spoken_en.Noun("le", "centime", "centimes"),
    "apple": spoken_en.Noun("la", "pomme", "pommes"),
    "book": spoken_en.Noun("le", "livre", "livres"),
    "car": spoken_en.Noun("la", "voiture", "voitures"),
    "cat": spoken_en.Noun("le", "chat", "chats"),
    "chapter": spoken_en.Noun("le", "chapitre", "chapitres"),
    "child": spoken_en.Noun("le", "enfant", "enfants"),
    "dog": spoken_en.Noun("le", "chien", "chiens"),
    "egg": spoken_en.Noun("le", "œuf", "œufs"),
    "horse": spoken_en.Noun("le", "cheval", "chevaux"),
    "house": spoken_en.Noun("la", "maison", "maisons"),
    "letter": spoken_en.Noun("la", "lettre", "lettres"),
    "page": spoken_en.Noun("la", "page", "pages"),
    "question": spoken_en.Noun("la", "question", "questions"),
    "tree": spoken_en.Noun("le", "arbre", "arbres"),
}
# A year that is counted is "un an", one in a row is "une année".
_RANKED = NOUNS | {"year": spoken_en.Noun("la", "année", "années")}
SUBSTANCES = {
    "beer": "bière",
    "milk": "lait",
    "oil": "huile",
    "water": "eau",
    "wine": "vin",
    "apricots": "abricots",
    "beans": "haricots",
    "butter": "beurre",
    "flour": "farine",
    "onions": "oignons",
    "rice": "riz",
    "sugar": "sucre",
}


def of(word: str) -> str:
    """Puts "de" before a word: "de lait", "d'eau", "de haricots"."""
    if word.startswith(_ELIDED) and not word.startswith(_NOT_ELIDED):
        return f"d'{word}"
    return f"de {word}"


def cardinal(number: int) -> str:
    """Counts: 21 is "vingt et un", 280 is "deux cent quatre-vingts"."""
    return _count(number, "s")


def ordinal(number: int) -> str:
    """Ranks, masculine: 1 is "premier", 21 is "vingt et unième"."""
    spoken_en.require("number", number, 1, spoken_en.MAX_ORDINAL)
    if number == 1:
        return "premier"
    words = _count(number, "")
    if words.endswith("cinq"):
        words += "u"
    elif words.endswith("neuf"):
        words = f"{words[:-1]}v"
    return f"{words.removesuffix('e')}ième"


def nth(number: int, noun: str) -> str:
    """A thing by its rank: "le troisième jour", "la première heure"."""
    forms = spoken_en.look_up(_RANKED, noun)
    rank = ordinal(number)
    if number == 1 and forms.article == "la":
        rank = "première"
    return f"{forms.article} {rank} {forms.singular}"


def year(number: int) -> str:
    """Years, in full: 1984 is "mille neuf cent quatre-vingt-quatre"."""
    spoken_en.require("year", number, 1, 9999)
    return _count(number, "")


def in_year(number: int) -> str:
    """When: "en mille neuf cent quatre-vingt-quatre"."""
    return f"en {year(number)}"


def quantity(count: int, noun: str) -> str:
    """So many of something: "vingt et une heures", "un million d'euros"."""
    forms = spoken_en.look_up(NOUNS, noun)
    name = forms.plural if abs(count) >= 2 else forms.singular
    if count and count % 1_000_000 == 0:
        return f"{cardinal(count)} {of(name)}"
    number = _feminine(count) if forms.article == "la" else cardinal(count)
    return f"{number} {name}"


def quantity_of(count: int, noun: str, substance: str) -> str:
    """So much of a substance: "deux litres d'eau"."""
    name = spoken_en.look_up(SUBSTANCES, substance)
    return f"{quantity(count, noun)} {of(name)}"


def ago(count: int, noun: str) -> str:
    """A time in the past: "il y a trois jours"."""
    return f"il y a {quantity(count, noun)}"


def from_now(count: int, noun: str) -> str:
    """A time in the future: "dans trois jours"."""
    return f"dans {quantity(count, noun)}"


def money(currency: str, whole: int, cents: int = 0) -> str:
    """An amount: a dollar has cents, a euro "centimes"."""
    spoken_en.require("whole", whole, 1, spoken_en.MAX_CARDINAL)
    spoken_en.require("cents", cents, 0, 99)
    amount = quantity(whole, currency)
    if not cents:
        return amount
    return f"{amount} et {quantity(cents, spoken_en.look_up(_CENTS, currency))}"


def date(
    month: int, day: int, in_year: int | None = None, weekday: int | None = None
) -> str:
    """A day: "le trois mars", but "lundi trois mars"."""
    words = _day(month, day, in_year)
    if weekday is None:
        return f"le {words}"
    return f"{spoken_en.look_up(WEEKDAYS, weekday)} {words}"


def on_date(
    month: int, day: int, in_year: int | None = None, weekday: int | None = None
) -> str:
    """When: "le trois mars", "le lundi trois mars"."""
    if weekday is None:
        return date(month, day, in_year)
    return f"le {date(month, day, in_year, weekday)}"


def in_month(month: int, in_year: int) -> str:
    """When: "en mars mille neuf cent quatre-vingt-quatre"."""
    return f"en {spoken_en.look_up(MONTHS, month)} {year(in_year)}"


def exact_time(hour: int, minute: int) -> str:
    """A time to the minute, of 24 hours: "quinze heures cinq"."""
    spoken_en.require("hour", hour, 0, 23)
    spoken_en.require("minute", minute, 0, 59)
    words = quantity(hour, "hour")
    return f"{words} {_feminine(minute)}" if minute else words


def rounded_time(hour: int, offset: int, part: str | None = None) -> str:
    """A time in everyday words: "quatre heures moins le quart"."""
    spoken_en.require("hour", hour, 1, 12)
    spoken_en.require("offset", offset, -25, 30)
    words = quantity(hour, "hour")
    if offset in _OFFSETS:
        words += _OFFSETS[offset]
    else:  # "moins" is also how a negative number starts
        words += f" {_feminine(offset)}"
    return f"{words} {spoken_en.look_up(_PARTS, part)}" if part else words


def at(time: str, weekday: int | None = None) -> str:
    """When: "lundi à quatre heures"."""
    if weekday is None:
        return f"à {time}"
    return f"{spoken_en.look_up(WEEKDAYS, weekday)} à {time}"


def conjunction(*items: str) -> str:
    """A list: "un, deux et trois"."""
    spoken_en.require("number of items", len(items), 2, 99)
    return f"{', '.join(items[:-1])} et {items[-1]}"


def _count(number: int, plural: str) -> str:
    """Returns a cardinal; `plural`: the "s" of a last "vingts" or "cents"."""
    limit = spoken_en.MAX_CARDINAL
    spoken_en.require("number", number, -limit, limit)
    if number < 0:
        return f"moins {_count(-number, plural)}"
    millions, rest = divmod(number, 1_000_000)
    thousands, rest = divmod(rest, 1000)
    words = []
    if millions:
        words.append(_below_thousand(millions, "s"))
        words.append("million" if millions == 1 else "millions")
    if thousands > 1:
        words.append(_below_thousand(thousands, ""))
    if thousands:
        words.append("mille")
    if rest or not words:
        words.append(_below_thousand(rest, plural))
    return " ".join(words)


def _below_thousand(number: int, plural: str) -> str:
    """Returns the words for 0 .. 999."""
    hundreds, rest = divmod(number, 100)
    words = [_SMALL[hundreds]] if hundreds > 1 else []
    if hundreds:
        words.append("cent" if rest or hundreds == 1 else f"cent{plural}")
    if rest or not hundreds:
        words.append(_below_hundred(rest, plural))
    return " ".join(words)


def _below_hundred(number: int, plural: str) -> str:
    """Returns the words for 0 .. 99."""
    if number < 20:
        return _SMALL[number]
    tens, unit = divmod(number, 10)
    ten = _TENS[tens]
    if tens in (7, 9):
        unit += 10
    if unit == 0:
        return f"{ten}{plural}" if number == 80 else ten
    if unit in (1, 11) and number < 80:
        return f"{ten} et {_SMALL[unit]}"
    return f"{ten}-{_SMALL[unit]}"


def _feminine(number: int) -> str:
    """Returns a cardinal that counts something feminine."""
    words = cardinal(number)
    return f"{words}e" if words.endswith("un") else words


def _day(month: int, day: int, in_year: int | None) -> str:
    """Returns "trois mars", with a year where one is given."""
    spoken_en.require("day", day, 1, 31)
    first = "premier" if day == 1 else cardinal(day)
    words = f"{first} {spoken_en.look_up(MONTHS, month)}"
    return words if in_year is None else f"{words} {year(in_year)}"
