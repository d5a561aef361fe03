"""Tests of English words, against num2words and Babel.

num2words writes British English: "and" before the last two digits, commas
between thousands and hundreds, "oh-one" in years. Its words are brought to the
American form before they are compared; nothing else differs.
"""

import random

import babel
import num2words
from absl.testing import absltest
from absl.testing import parameterized
from babel import dates
from babel import units

from relpos_tf.problems.generated import english

LOCALE = babel.Locale("en", "US")
UNITS = {
    "second": "duration-second",
    "minute": "duration-minute",
    "hour": "duration-hour",
    "day": "duration-day",
    "week": "duration-week",
    "month": "duration-month",
    "year": "duration-year",
    "century": "duration-century",
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


def american(words):
    """Turns British English into American English."""
    return words.replace(" and ", " ").replace(",", "").replace("oh-", "oh ")


class NumbersTest(parameterized.TestCase):
    def test_cardinals_are_those_of_num2words(self):
        numbers = [
            0,
            *BELOW_10_000,
            *ABOVE_10_000,
            10**6,
            21_000_001,
            105 * 10**6,
        ]
        for number in numbers:
            expected = american(num2words.num2words(number, lang="en"))
            self.assertEqual(english.cardinal(number), expected)
            negative = english.cardinal(-number) if number else "minus zero"
            self.assertEqual(negative, f"minus {expected}")

    def test_ordinals_are_those_of_num2words(self):
        for number in [*BELOW_10_000, *ABOVE_10_000]:
            expected = num2words.num2words(number, lang="en", to="ordinal")
            self.assertEqual(english.ordinal(number), american(expected))

    def test_years_are_those_of_num2words(self):
        for number in BELOW_10_000:
            expected = num2words.num2words(number, lang="en", to="year")
            self.assertEqual(english.year(number), american(expected))

    @parameterized.parameters(
        (1984, "nineteen eighty-four"),
        (1900, "nineteen hundred"),
        (1907, "nineteen oh seven"),
        (2000, "two thousand"),
        (2008, "two thousand eight"),
        (2026, "twenty twenty-six"),
    )
    def test_years_are_read_in_pairs(self, number, words):
        self.assertEqual(english.year(number), words)
        self.assertEqual(english.in_year(number), f"in {words}")

    def test_numbers_out_of_range_are_refused(self):
        with self.assertRaisesRegex(ValueError, "between .* 999999999"):
            english.cardinal(10**9)
        with self.assertRaisesRegex(ValueError, "Received: 0"):
            english.ordinal(0)
        with self.assertRaisesRegex(ValueError, "Received: 10000"):
            english.year(10_000)


class QuantitiesTest(parameterized.TestCase):
    @parameterized.parameters(*UNITS)
    def test_units_have_the_number_babel_gives_them(self, noun):
        for count in (0, 1, 2, 5, 11, 21, 101, 1001):
            number = english.cardinal(count)
            expected = units.format_unit(count, UNITS[noun], locale=LOCALE)
            self.assertEqual(
                english.quantity(count, noun),
                " ".join([number, *expected.split()[1:]]),
            )

    @parameterized.parameters(
        (english.quantity(3, "child"), "three children"),
        (english.quantity(1, "child"), "one child"),
        (english.quantity(-1, "degree"), "minus one degree"),
        (english.quantity(-21, "degree"), "minus twenty-one degrees"),
        (english.quantity_of(2, "liter", "oil"), "two liters of oil"),
        (english.ago(1, "hour"), "one hour ago"),
        (english.from_now(21, "day"), "in twenty-one days"),
        (english.nth(21, "century"), "the twenty-first century"),
        (english.money("euro", 1), "one euro"),
        (english.money("dollar", 5, 1), "five dollars and one cent"),
        (english.money("dollar", 1, 50), "one dollar and fifty cents"),
    )
    def test_quantities_are_in_words(self, words, expected):
        self.assertEqual(words, expected)

    def test_cents_alone_are_refused(self):
        with self.assertRaisesRegex(ValueError, "whole.*Received: 0"):
            english.money("euro", 0, 50)


class DatesTest(parameterized.TestCase):
    def test_names_are_those_of_babel(self):
        months = dates.get_month_names("wide", locale=LOCALE)
        weekdays = dates.get_day_names("wide", locale=LOCALE)
        self.assertEqual(english.MONTHS, dict(months))
        self.assertEqual(english.WEEKDAYS, dict(weekdays))

    @parameterized.parameters(
        ((3, 3), "March third"),
        ((3, 21, 1984), "March twenty-first, nineteen eighty-four"),
        ((3, 5, None, 0), "Monday, March fifth"),
        ((3, 5, 1984, 0), "Monday, March fifth, nineteen eighty-four"),
    )
    def test_dates_are_in_words(self, arguments, expected):
        self.assertEqual(english.date(*arguments), expected)
        self.assertEqual(english.on_date(*arguments), f"on {expected}")

    def test_invalid_dates_are_refused(self):
        with self.assertRaisesRegex(ValueError, "Received: 13"):
            english.date(13, 1)
        with self.assertRaisesRegex(ValueError, "Received: 32"):
            english.date(1, 32)
        with self.assertRaisesRegex(ValueError, "Received: 7"):
            english.date(1, 1, None, 7)

    def test_month_of_a_year(self):
        self.assertEqual(english.in_month(5, 2010), "in May twenty ten")


class TimesTest(parameterized.TestCase):
    @parameterized.parameters(
        ((0, 0), "twelve a.m."),
        ((0, 10), "twelve ten a.m."),
        ((1, 1), "one oh one a.m."),
        ((11, 59), "eleven fifty-nine a.m."),
        ((12, 0), "twelve p.m."),
        ((15, 42), "three forty-two p.m."),
    )
    def test_exact_times(self, arguments, expected):
        self.assertEqual(english.exact_time(*arguments), expected)

    @parameterized.parameters(
        ((3, 0), "three o'clock"),
        ((3, 30), "half past three"),
        ((3, 15), "a quarter past three"),
        ((4, -15), "a quarter to four"),
        ((4, -20, "afternoon"), "twenty to four in the afternoon"),
        ((8, 5, "evening"), "five past eight in the evening"),
    )
    def test_rounded_times(self, arguments, expected):
        self.assertEqual(english.rounded_time(*arguments), expected)

    def test_when(self):
        self.assertEqual(english.at("noon"), "at noon")
        self.assertEqual(english.at("noon", 6), "on Sunday at noon")

    def test_times_that_are_none_are_refused(self):
        with self.assertRaisesRegex(ValueError, "hour.*Received: 24"):
            english.exact_time(24, 0)
        with self.assertRaisesRegex(ValueError, "offset.*Received: 35"):
            english.rounded_time(3, 35)


class ListsTest(absltest.TestCase):
    def test_the_last_comma_needs_three(self):
        self.assertEqual(english.conjunction("a", "b"), "a and b")
        self.assertEqual(english.conjunction("a", "b", "c"), "a, b, and c")
        with self.assertRaisesRegex(ValueError, "Received: 1"):
            english.conjunction("a")


if __name__ == "__main__":
    absltest.main()
