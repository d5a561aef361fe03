"""Tests of English and German words, against num2words and Babel.

num2words writes British English: "and" before the last two digits, commas
between thousands and hundreds, "oh-one" in years. Its words are brought to the
American form before they are compared; nothing else differs.
"""

import random

import babel
import num2words
from absl.testing import parameterized
from babel import dates
from babel import units

from relpos_tf.problems.generated import english
from relpos_tf.problems.generated import german
from relpos_tf.problems.generated import phrases

MODULES = {"en": english, "de": german}
LOCALES = {"en": babel.Locale("en", "US"), "de": babel.Locale("de")}
UNITS = {
    **{
        noun: f"duration-{noun}"
        for noun in "second minute hour day week month year century".split()
    },
    "kilometer": "length-kilometer",
    "meter": "length-meter",
    "centimeter": "length-centimeter",
    "kilogram": "mass-kilogram",
    "gram": "mass-gram",
    "liter": "volume-liter",
    "degree": "angle-degree",
    "percent": "concentr-percent",
}
# The stride has every remainder by 1,000.
BELOW_10_000 = [*range(1, 1300), *range(1300, 10_000, 7)]
_draw = random.Random(7)
ABOVE_10_000 = [
    *(int(10 ** _draw.uniform(4, 5.99)) for _ in range(300)),
    *(100_000, 101_000, 200_000, 999_999),
]
# A kind of phrase, its arguments, and its words in both languages.
EXAMPLES = [
    ("cardinal", (-5,), "minus five", "minus fünf"),
    ("quantity", (10**6, "euro"), "one million euros", "eine Million Euro"),
    ("in_year", (1800,), "in eighteen hundred", "im Jahr achtzehnhundert"),
    ("nth", (3, "day"), "the third day", "der dritte Tag"),
    ("quantity", (101, "day"), "one hundred one days", "einhundertein Tage"),
    ("quantity", (-1, "degree"), "minus one degree", "minus ein Grad"),
    ("quantity_of", (2, "liter", "oil"), "two liters of oil", "zwei Liter Öl"),
    ("ago", (1, "year"), "one year ago", "vor einem Jahr"),
    ("ago", (3, "month"), "three months ago", "vor drei Monaten"),
    ("from_now", (21, "day"), "in twenty-one days", "in einundzwanzig Tagen"),
    ("money", ("euro", 5), "five euros", "fünf Euro"),
    ("date", (3, 7, None), "March seventh", "der siebte März"),
    (
        "on_date",
        (3, 7, None, 0),
        "on Monday, March seventh",
        "am Montag, dem siebten März",
    ),
    ("in_month", (5, 2010), "in May twenty ten", "im Mai zweitausendzehn"),
    ("exact_time", (0, 10), "twelve ten a.m.", "null Uhr zehn"),
    ("exact_time", (15, 4), "three oh four p.m.", "fünfzehn Uhr vier"),
    ("rounded_time", (12, 30), "half past twelve", "halb eins"),
    ("rounded_time", (1, 15), "a quarter past one", "Viertel nach eins"),
    (
        "rounded_time",
        (4, -20, "afternoon"),
        "twenty to four in the afternoon",
        "zwanzig vor vier nachmittags",
    ),
    (
        "at",
        (phrases.Phrase("rounded_time", (4, -15)), 0),
        "on Monday at a quarter to four",
        "am Montag um Viertel vor vier",
    ),
    ("conjunction", ("a", "b", "c"), "a, b, and c", "a, b und c"),
]


def expected(number, language, kind="cardinal"):
    """Returns what num2words says, where it is right."""
    words = num2words.num2words(number, lang=language, to=kind)
    if language == "en":
        words = words.replace(" and ", " ").replace(",", "")
        return words.replace("oh-", "oh ")
    # num2words says "einhunderteins" of so many thousands.
    return words.replace("hunderteinstausend", "hunderteintausend")


class WordsTest(parameterized.TestCase):
    @parameterized.parameters(*MODULES)
    def test_numbers_are_those_of_num2words(self, language):
        said = MODULES[language]
        numbers = [*BELOW_10_000, *ABOVE_10_000]
        for number in [0, *numbers, 10**6, 10**6 + 1, 21_004_001, 2 * 10**8]:
            words = expected(number, language)
            self.assertEqual(said.cardinal(number), words)
        for number in numbers:
            words = expected(number, language, "ordinal")
            self.assertEqual(said.ordinal(number), words)
        for number in BELOW_10_000:
            words = expected(number, language, "year")
            # num2words says "einshundert" for 100 to 199, and counts hundreds
            # after 2099 too: "einundzwanzighundert".
            if language == "de" and (
                100 <= number < 200 or number >= 2100 and number % 1000 >= 100
            ):
                words = german.cardinal(number)
            self.assertEqual(said.year(number), words)

    @parameterized.parameters(*MODULES)
    def test_units_months_and_weekdays_are_those_of_babel(self, language):
        said, locale = MODULES[language], LOCALES[language]
        for noun, unit in UNITS.items():
            for count in (0, 1, 2, 5, 11, 21, 101, 1001):
                words = units.format_unit(count, unit, locale=locale)
                self.assertEqual(
                    said.quantity(count, noun).split()[-1], words.split()[-1]
                )
        months = dates.get_month_names("wide", locale=locale)
        self.assertEqual(said.MONTHS, dict(months))
        weekdays = dates.get_day_names("wide", locale=locale)
        self.assertEqual(said.WEEKDAYS, dict(weekdays))

    @parameterized.parameters(*EXAMPLES)
    def test_phrases_are_said_in_both_languages(
        self, kind, arguments, source, target
    ):
        phrase = phrases.Phrase(kind, arguments)
        self.assertEqual(phrase.say("en"), source)
        self.assertEqual(phrase.say("de"), target)
