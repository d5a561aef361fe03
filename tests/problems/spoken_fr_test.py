"""Tests of French words, against num2words and Babel."""

import re

import babel
import num2words
from absl.testing import absltest
from absl.testing import parameterized
from babel import dates
from babel import units

from relpos_tf.problems import spoken_fr
from tests.problems import spoken_en_test

LOCALE = babel.Locale("fr", "FR")


def ends_in_plural(number):
    """Returns whether a number ends in "quatre-vingts", "deux cents" ...

    num2words leaves that "s" in ranks, "quatre-vingtsième", where it never
    stands, and in years, which are ranks too: "l'an mille neuf cent".
    """
    return number % 100 == 80 or number % 100 == 0 < number % 1000 // 200


class NumbersTest(parameterized.TestCase):
    def test_cardinals_are_those_of_num2words(self):
        numbers = [*range(10_000), *spoken_en_test.larger(1000)]
        numbers += [10**6, 10**6 + 1, 80_000_000, 200_000_000, 300_080_200]
        for number in numbers:
            expected = num2words.num2words(number, lang="fr")
            self.assertEqual(spoken_fr.cardinal(number), expected)

    def test_ordinals_are_those_of_num2words(self):
        for number in [*range(1, 10_000), *spoken_en_test.larger(1000)]:
            expected = num2words.num2words(number, lang="fr", to="ordinal")
            if ends_in_plural(number):
                expected = f"{expected.removesuffix('sième')}ième"
            self.assertEqual(spoken_fr.ordinal(number), expected)

    def test_years_are_those_of_num2words(self):
        for number in range(1, 10_000):
            expected = num2words.num2words(number, lang="fr", to="year")
            if ends_in_plural(number):
                expected = expected.removesuffix("s")
            self.assertEqual(spoken_fr.year(number), expected)

    @parameterized.parameters(
        (spoken_fr.cardinal(21), "vingt et un"),
        (spoken_fr.cardinal(71), "soixante et onze"),
        (spoken_fr.cardinal(77), "soixante-dix-sept"),
        (spoken_fr.cardinal(80), "quatre-vingts"),
        (spoken_fr.cardinal(81), "quatre-vingt-un"),
        (spoken_fr.cardinal(91), "quatre-vingt-onze"),
        (spoken_fr.cardinal(200), "deux cents"),
        (spoken_fr.cardinal(201), "deux cent un"),
        (spoken_fr.cardinal(2000), "deux mille"),
        (spoken_fr.cardinal(200_000), "deux cent mille"),
        (spoken_fr.cardinal(200_000_000), "deux cents millions"),
        (spoken_fr.cardinal(-5), "moins cinq"),
        (spoken_fr.ordinal(5), "cinquième"),
        (spoken_fr.ordinal(9), "neuvième"),
        (spoken_fr.ordinal(80), "quatre-vingtième"),
        (spoken_fr.ordinal(300), "trois centième"),
        (spoken_fr.year(1984), "mille neuf cent quatre-vingt-quatre"),
        (spoken_fr.year(1980), "mille neuf cent quatre-vingt"),
        (spoken_fr.year(1900), "mille neuf cent"),
        (spoken_fr.in_year(2010), "en deux mille dix"),
        (spoken_fr.nth(1, "day"), "le premier jour"),
        (spoken_fr.nth(1, "hour"), "la première heure"),
        (spoken_fr.nth(21, "hour"), "la vingt et unième heure"),
        (spoken_fr.nth(3, "year"), "la troisième année"),
        (spoken_fr.nth(11, "century"), "le onzième siècle"),
    )
    def test_numbers_are_what_is_said(self, words, expected):
        self.assertEqual(words, expected)

    def test_numbers_out_of_range_are_refused(self):
        with self.assertRaisesRegex(ValueError, "Received: 1000000000"):
            spoken_fr.cardinal(10**9)
        with self.assertRaisesRegex(ValueError, "Received: 0"):
            spoken_fr.ordinal(0)


class QuantitiesTest(parameterized.TestCase):
    @parameterized.parameters(*spoken_en_test.UNITS)
    def test_units_have_the_number_babel_gives_them(self, noun):
        unit = spoken_en_test.UNITS[noun]
        forms = spoken_fr.NOUNS[noun]
        names = {"one": forms.singular, "other": forms.plural}
        for count in (0, 1, 2, 5, 11, 21, 101, 1001):
            expected = units.format_unit(count, unit, locale=LOCALE)
            found = spoken_fr.quantity(count, noun)
            self.assertEndsWith(found, names[LOCALE.plural_form(count)])
            # Digits, with and before no-break spaces.
            name = re.sub(r"^[\d\s]+", "", expected)
            self.assertEqual(
                found, f"{found.removesuffix(name).rstrip()} {name}"
            )

    @parameterized.parameters(
        (spoken_fr.quantity(0, "day"), "zéro jour"),
        (spoken_fr.quantity(1, "hour"), "une heure"),
        (spoken_fr.quantity(21, "hour"), "vingt et une heures"),
        (spoken_fr.quantity(21, "day"), "vingt et un jours"),
        (spoken_fr.quantity(71, "week"), "soixante et onze semaines"),
        (spoken_fr.quantity(81, "page"), "quatre-vingt-une pages"),
        (spoken_fr.quantity(101, "apple"), "cent une pommes"),
        (spoken_fr.quantity(80, "euro"), "quatre-vingts euros"),
        (spoken_fr.quantity(2000, "week"), "deux mille semaines"),
        (spoken_fr.quantity(1_000_000, "euro"), "un million d'euros"),
        (spoken_fr.quantity(2_000_000, "day"), "deux millions de jours"),
        (spoken_fr.quantity(1_000_001, "hour"), "un million une heures"),
        (spoken_fr.quantity(-1, "degree"), "moins un degré"),
        (spoken_fr.quantity(-21, "degree"), "moins vingt et un degrés"),
        (spoken_fr.quantity(2, "horse"), "deux chevaux"),
        (spoken_fr.quantity_of(2, "liter", "water"), "deux litres d'eau"),
        (spoken_fr.quantity_of(1, "liter", "oil"), "un litre d'huile"),
        (spoken_fr.quantity_of(1, "gram", "onions"), "un gramme d'oignons"),
        (spoken_fr.quantity_of(1, "gram", "beans"), "un gramme de haricots"),
        (spoken_fr.quantity_of(9, "gram", "rice"), "neuf grammes de riz"),
        (spoken_fr.of("onze"), "de onze"),
        (spoken_fr.of("huit"), "de huit"),
        (spoken_fr.of("œufs"), "d'œufs"),
        (spoken_fr.ago(3, "year"), "il y a trois ans"),
        (spoken_fr.from_now(1, "week"), "dans une semaine"),
        (spoken_fr.money("euro", 5, 50), "cinq euros et cinquante centimes"),
        (spoken_fr.money("euro", 1, 1), "un euro et un centime"),
        (
            spoken_fr.money("dollar", 80, 2),
            "quatre-vingts dollars et deux cents",
        ),
        (spoken_fr.money("dollar", 200), "deux cents dollars"),
    )
    def test_quantities_are_what_is_said(self, words, expected):
        self.assertEqual(words, expected)

    def test_unknown_words_are_refused_with_the_list(self):
        with self.assertRaisesRegex(ValueError, "'day'.*Received: 'fork'"):
            spoken_fr.quantity(2, "fork")
        with self.assertRaisesRegex(ValueError, "'rice'.*Received: 'gold'"):
            spoken_fr.quantity_of(2, "gram", "gold")


class DatesTest(parameterized.TestCase):
    def test_names_are_those_of_babel(self):
        months = dates.get_month_names("wide", locale=LOCALE)
        weekdays = dates.get_day_names("wide", locale=LOCALE)
        self.assertEqual(spoken_fr.MONTHS, dict(months))
        self.assertEqual(spoken_fr.WEEKDAYS, dict(weekdays))

    @parameterized.parameters(
        (spoken_fr.date(3, 1), "le premier mars"),
        (spoken_fr.date(3, 31), "le trente et un mars"),
        (spoken_fr.date(3, 11, None, 1), "mardi onze mars"),
        (
            spoken_fr.date(8, 1, 1980, 4),
            "vendredi premier août mille neuf cent quatre-vingt",
        ),
        (spoken_fr.on_date(5, 8), "le huit mai"),
        (spoken_fr.on_date(5, 2, None, 0), "le lundi deux mai"),
        (spoken_fr.in_month(2, 1900), "en février mille neuf cent"),
    )
    def test_dates_are_what_is_said(self, words, expected):
        self.assertEqual(words, expected)


class TimesTest(parameterized.TestCase):
    @parameterized.parameters(
        (spoken_fr.exact_time(0, 10), "zéro heure dix"),
        (spoken_fr.exact_time(1, 0), "une heure"),
        (spoken_fr.exact_time(15, 1), "quinze heures une"),
        (spoken_fr.exact_time(21, 51), "vingt et une heures cinquante et une"),
        (spoken_fr.rounded_time(3, 0), "trois heures"),
        (spoken_fr.rounded_time(3, 30), "trois heures et demie"),
        (spoken_fr.rounded_time(1, 15), "une heure et quart"),
        (spoken_fr.rounded_time(4, -15), "quatre heures moins le quart"),
        (spoken_fr.rounded_time(4, 20), "quatre heures vingt"),
        (
            spoken_fr.rounded_time(4, -20, "afternoon"),
            "quatre heures moins vingt de l'après-midi",
        ),
        (spoken_fr.at("une heure"), "à une heure"),
        (spoken_fr.at("une heure", 2), "mercredi à une heure"),
    )
    def test_times_are_what_is_said(self, words, expected):
        self.assertEqual(words, expected)


class ListsTest(absltest.TestCase):
    def test_no_comma_before_the_last(self):
        self.assertEqual(spoken_fr.conjunction("a", "b"), "a et b")
        self.assertEqual(spoken_fr.conjunction("a", "b", "c"), "a, b et c")


if __name__ == "__main__":
    absltest.main()
