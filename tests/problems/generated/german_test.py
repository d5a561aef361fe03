"""Tests of German words, against num2words and Babel."""

import babel
import num2words
from absl.testing import absltest
from absl.testing import parameterized
from babel import dates
from babel import units

from relpos_tf.problems.generated import german
from tests.problems.generated import english_test

LOCALE = babel.Locale("de")


def ends_in_one(count):
    """Returns whether num2words says "einhunderteins" of so many thousands.

    Before "tausend" the "s" is dropped: "einhunderteintausend".
    """
    return count > 1 and count % 100 == 1


class NumbersTest(parameterized.TestCase):
    def test_cardinals_are_those_of_num2words(self):
        numbers = [0, *english_test.BELOW_10_000, *english_test.ABOVE_10_000]
        for number in [*numbers, 10**6, 10**6 + 1, 21_004_001, 200_000_000]:
            expected = num2words.num2words(number, lang="de")
            if ends_in_one(number // 1000 % 1000):
                expected = expected.replace("einstausend", "eintausend")
            self.assertEqual(german.cardinal(number), expected)

    def test_ordinals_are_those_of_num2words(self):
        for number in [
            *english_test.BELOW_10_000,
            *english_test.ABOVE_10_000,
        ]:
            expected = num2words.num2words(number, lang="de", to="ordinal")
            if ends_in_one(number // 1000 % 1000):
                expected = expected.replace("einstausend", "eintausend")
            self.assertEqual(german.ordinal(number), expected)

    def test_years_are_those_of_num2words(self):
        # num2words says "einshundert" for 100 to 199, and counts hundreds
        # after 2099 too: "einundzwanzighundert", where German says
        # "zweitausendeinhundert".
        for number in english_test.BELOW_10_000:
            if 100 <= number < 200 or number >= 2100 and number % 1000 >= 100:
                self.assertEqual(german.year(number), german.cardinal(number))
                continue
            expected = num2words.num2words(number, lang="de", to="year")
            self.assertEqual(german.year(number), expected)

    @parameterized.parameters(
        (german.cardinal(21), "einundzwanzig"),
        (german.cardinal(77), "siebenundsiebzig"),
        (german.cardinal(101), "einhunderteins"),
        (german.cardinal(101_016), "einhunderteintausendsechzehn"),
        (german.cardinal(1_000_000), "eine Million"),
        (german.cardinal(101_000_000), "einhundertein Millionen"),
        (german.cardinal(-5), "minus fünf"),
        (german.year(1984), "neunzehnhundertvierundachtzig"),
        (german.year(1900), "neunzehnhundert"),
        (german.year(2010), "zweitausendzehn"),
        (german.year(2101), "zweitausendeinhunderteins"),
        (german.in_year(1800), "im Jahr achtzehnhundert"),
        (german.nth(3, "day"), "der dritte Tag"),
        (german.nth(1, "week"), "die erste Woche"),
        (german.nth(21, "century"), "das einundzwanzigste Jahrhundert"),
        (german.nth(107, "page"), "die einhundertsiebte Seite"),
    )
    def test_numbers_are_in_words(self, words, expected):
        self.assertEqual(words, expected)

    def test_numbers_out_of_range_are_refused(self):
        with self.assertRaisesRegex(ValueError, "Received: 1000000000"):
            german.cardinal(10**9)
        with self.assertRaisesRegex(ValueError, "Received: 0"):
            german.ordinal(0)


class QuantitiesTest(parameterized.TestCase):
    @parameterized.parameters(*english_test.UNITS)
    def test_units_have_the_number_babel_gives_them(self, noun):
        unit = english_test.UNITS[noun]
        forms = german.NOUNS[noun]
        for count in (0, 1, 2, 5, 11, 21, 101, 1001):
            expected = units.format_unit(count, unit, locale=LOCALE).split()[-1]
            found = german.quantity(count, noun).split()[-1]
            self.assertEqual(found, expected)
        self.assertEqual(forms.singular[0], forms.singular[0].upper())

    @parameterized.parameters("second", "minute", "hour", "day", "week", "year")
    def test_times_have_the_case_babel_gives_them(self, noun):
        for count in (1, 2, 21):
            seconds = dates.TIMEDELTA_UNITS
            length = count * dict((u, s) for u, s, *_ in seconds)[noun]
            for sign, said in ((-1, german.ago), (1, german.from_now)):
                expected = dates.format_timedelta(
                    sign * length,
                    granularity=noun,
                    threshold=1000,
                    add_direction=True,
                    locale=LOCALE,
                )
                words = said(count, noun).split()
                self.assertEqual(words[0], expected.split()[0])
                self.assertEqual(words[-1], expected.split()[-1])

    @parameterized.parameters(
        (german.quantity(1, "hour"), "eine Stunde"),
        (german.quantity(1, "day"), "ein Tag"),
        (german.quantity(1, "house"), "ein Haus"),
        (german.quantity(21, "day"), "einundzwanzig Tage"),
        (german.quantity(101, "day"), "einhundertein Tage"),
        (german.quantity(3, "house"), "drei Häuser"),
        (german.quantity(-1, "degree"), "minus ein Grad"),
        (german.quantity(-12, "degree"), "minus zwölf Grad"),
        (german.quantity(2_000_000, "euro"), "zwei Millionen Euro"),
        (german.quantity_of(2, "liter", "water"), "zwei Liter Wasser"),
        (german.ago(1, "day"), "vor einem Tag"),
        (german.ago(1, "year"), "vor einem Jahr"),
        (german.ago(1, "hour"), "vor einer Stunde"),
        (german.ago(3, "month"), "vor drei Monaten"),
        (german.from_now(21, "day"), "in einundzwanzig Tagen"),
        (german.from_now(4, "century"), "in vier Jahrhunderten"),
        (german.from_now(2, "car"), "in zwei Autos"),
        (german.from_now(2, "chapter"), "in zwei Kapiteln"),
        (german.from_now(2, "liter"), "in zwei Litern"),
        (german.money("euro", 1), "ein Euro"),
        (german.money("dollar", 5, 1), "fünf Dollar und ein Cent"),
        (
            german.money("euro", 31, 50),
            "einunddreißig Euro und fünfzig Cent",
        ),
    )
    def test_quantities_are_in_words(self, words, expected):
        self.assertEqual(words, expected)

    def test_unknown_nouns_are_refused_with_the_list(self):
        with self.assertRaisesRegex(ValueError, "'day'.*Received: 'fork'"):
            german.quantity(2, "fork")


class DatesTest(parameterized.TestCase):
    def test_names_are_those_of_babel(self):
        months = dates.get_month_names("wide", locale=LOCALE)
        weekdays = dates.get_day_names("wide", locale=LOCALE)
        self.assertEqual(german.MONTHS, dict(months))
        self.assertEqual(german.WEEKDAYS, dict(weekdays))

    @parameterized.parameters(
        (german.date(3, 3), "der dritte März"),
        (german.date(5, 1, 2010), "der erste Mai zweitausendzehn"),
        (german.date(5, 20, None, 6), "Sonntag, der zwanzigste Mai"),
        (german.on_date(3, 3), "am dritten März"),
        (german.on_date(3, 7, None, 0), "am Montag, dem siebten März"),
        (german.in_month(8, 1900), "im August neunzehnhundert"),
    )
    def test_dates_are_in_words(self, words, expected):
        self.assertEqual(words, expected)


class TimesTest(parameterized.TestCase):
    @parameterized.parameters(
        (german.exact_time(0, 10), "null Uhr zehn"),
        (german.exact_time(1, 1), "ein Uhr eins"),
        (german.exact_time(15, 0), "fünfzehn Uhr"),
        (german.exact_time(21, 45), "einundzwanzig Uhr fünfundvierzig"),
        (german.rounded_time(1, 0), "ein Uhr"),
        (german.rounded_time(3, 30), "halb vier"),
        (german.rounded_time(12, 30), "halb eins"),
        (german.rounded_time(1, 15), "Viertel nach eins"),
        (german.rounded_time(4, -15), "Viertel vor vier"),
        (
            german.rounded_time(4, -20, "afternoon"),
            "zwanzig vor vier nachmittags",
        ),
        (german.at("halb vier"), "um halb vier"),
        (german.at("halb vier", 2), "am Mittwoch um halb vier"),
    )
    def test_times_are_in_words(self, words, expected):
        self.assertEqual(words, expected)


class ListsTest(absltest.TestCase):
    def test_no_comma_before_the_last(self):
        self.assertEqual(german.conjunction("a", "b"), "a und b")
        self.assertEqual(german.conjunction("a", "b", "c"), "a, b und c")


if __name__ == "__main__":
    absltest.main()
