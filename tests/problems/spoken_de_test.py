"""Tests of German words, against num2words and Babel."""

import babel
import num2words
from absl.testing import absltest
from absl.testing import parameterized
from babel import dates
from babel import units

from relpos_tf.problems import spoken_de
from tests.problems import spoken_en_test

LOCALE = babel.Locale("de")


def ends_in_one(count):
    """Returns whether num2words says "einhunderteins" of so many thousands.

    Before "tausend" the "s" is dropped: "einhunderteintausend".
    """
    return count > 1 and count % 100 == 1


class NumbersTest(parameterized.TestCase):
    def test_cardinals_are_those_of_num2words(self):
        numbers = [*range(10_000), *spoken_en_test.larger(1000)]
        for number in [*numbers, 10**6, 10**6 + 1, 21_004_001, 200_000_000]:
            expected = num2words.num2words(number, lang="de")
            if ends_in_one(number // 1000 % 1000):
                expected = expected.replace("einstausend", "eintausend")
            self.assertEqual(spoken_de.cardinal(number), expected)

    def test_ordinals_are_those_of_num2words(self):
        for number in [*range(1, 10_000), *spoken_en_test.larger(1000)]:
            expected = num2words.num2words(number, lang="de", to="ordinal")
            if ends_in_one(number // 1000 % 1000):
                expected = expected.replace("einstausend", "eintausend")
            self.assertEqual(spoken_de.ordinal(number), expected)

    def test_years_are_those_of_num2words(self):
        # num2words says "einshundert" for 100 to 199, and counts hundreds
        # after 2099 too: "einundzwanzighundert", where German says
        # "zweitausendeinhundert".
        for number in range(1, 10_000):
            if 100 <= number < 200 or number >= 2100 and number % 1000 >= 100:
                self.assertEqual(
                    spoken_de.year(number), spoken_de.cardinal(number)
                )
                continue
            expected = num2words.num2words(number, lang="de", to="year")
            self.assertEqual(spoken_de.year(number), expected)

    @parameterized.parameters(
        (spoken_de.cardinal(21), "einundzwanzig"),
        (spoken_de.cardinal(77), "siebenundsiebzig"),
        (spoken_de.cardinal(101), "einhunderteins"),
        (spoken_de.cardinal(101_016), "einhunderteintausendsechzehn"),
        (spoken_de.cardinal(1_000_000), "eine Million"),
        (spoken_de.cardinal(101_000_000), "einhundertein Millionen"),
        (spoken_de.cardinal(-5), "minus fünf"),
        (spoken_de.year(1984), "neunzehnhundertvierundachtzig"),
        (spoken_de.year(1900), "neunzehnhundert"),
        (spoken_de.year(2010), "zweitausendzehn"),
        (spoken_de.year(2101), "zweitausendeinhunderteins"),
        (spoken_de.in_year(1800), "im Jahr achtzehnhundert"),
        (spoken_de.nth(3, "day"), "der dritte Tag"),
        (spoken_de.nth(1, "week"), "die erste Woche"),
        (spoken_de.nth(21, "century"), "das einundzwanzigste Jahrhundert"),
        (spoken_de.nth(107, "page"), "die einhundertsiebte Seite"),
    )
    def test_numbers_are_what_is_said(self, words, expected):
        self.assertEqual(words, expected)

    def test_numbers_out_of_range_are_refused(self):
        with self.assertRaisesRegex(ValueError, "Received: 1000000000"):
            spoken_de.cardinal(10**9)
        with self.assertRaisesRegex(ValueError, "Received: 0"):
            spoken_de.ordinal(0)


class QuantitiesTest(parameterized.TestCase):
    @parameterized.parameters(*spoken_en_test.UNITS)
    def test_units_have_the_number_babel_gives_them(self, noun):
        unit = spoken_en_test.UNITS[noun]
        forms = spoken_de.NOUNS[noun]
        for count in (0, 1, 2, 5, 11, 21, 101, 1001):
            expected = units.format_unit(count, unit, locale=LOCALE).split()[-1]
            found = spoken_de.quantity(count, noun).split()[-1]
            self.assertEqual(found, expected)
        self.assertEqual(forms.singular[0], forms.singular[0].upper())

    @parameterized.parameters("second", "minute", "hour", "day", "week", "year")
    def test_times_have_the_case_babel_gives_them(self, noun):
        for count in (1, 2, 21):
            seconds = dates.TIMEDELTA_UNITS
            length = count * dict((u, s) for u, s, *_ in seconds)[noun]
            for sign, said in ((-1, spoken_de.ago), (1, spoken_de.from_now)):
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
        (spoken_de.quantity(1, "hour"), "eine Stunde"),
        (spoken_de.quantity(1, "day"), "ein Tag"),
        (spoken_de.quantity(1, "house"), "ein Haus"),
        (spoken_de.quantity(21, "day"), "einundzwanzig Tage"),
        (spoken_de.quantity(101, "day"), "einhundertein Tage"),
        (spoken_de.quantity(3, "house"), "drei Häuser"),
        (spoken_de.quantity(-1, "degree"), "minus ein Grad"),
        (spoken_de.quantity(-12, "degree"), "minus zwölf Grad"),
        (spoken_de.quantity(2_000_000, "euro"), "zwei Millionen Euro"),
        (spoken_de.quantity_of(2, "liter", "water"), "zwei Liter Wasser"),
        (spoken_de.ago(1, "day"), "vor einem Tag"),
        (spoken_de.ago(1, "year"), "vor einem Jahr"),
        (spoken_de.ago(1, "hour"), "vor einer Stunde"),
        (spoken_de.ago(3, "month"), "vor drei Monaten"),
        (spoken_de.from_now(21, "day"), "in einundzwanzig Tagen"),
        (spoken_de.from_now(4, "century"), "in vier Jahrhunderten"),
        (spoken_de.from_now(2, "car"), "in zwei Autos"),
        (spoken_de.from_now(2, "chapter"), "in zwei Kapiteln"),
        (spoken_de.from_now(2, "liter"), "in zwei Litern"),
        (spoken_de.money("euro", 1), "ein Euro"),
        (spoken_de.money("dollar", 5, 1), "fünf Dollar und ein Cent"),
        (
            spoken_de.money("euro", 31, 50),
            "einunddreißig Euro und fünfzig Cent",
        ),
    )
    def test_quantities_are_what_is_said(self, words, expected):
        self.assertEqual(words, expected)

    def test_unknown_nouns_are_refused_with_the_list(self):
        with self.assertRaisesRegex(ValueError, "'day'.*Received: 'fork'"):
            spoken_de.quantity(2, "fork")


class DatesTest(parameterized.TestCase):
    def test_names_are_those_of_babel(self):
        months = dates.get_month_names("wide", locale=LOCALE)
        weekdays = dates.get_day_names("wide", locale=LOCALE)
        self.assertEqual(spoken_de.MONTHS, dict(months))
        self.assertEqual(spoken_de.WEEKDAYS, dict(weekdays))

    @parameterized.parameters(
        (spoken_de.date(3, 3), "der dritte März"),
        (spoken_de.date(5, 1, 2010), "der erste Mai zweitausendzehn"),
        (spoken_de.date(5, 20, None, 6), "Sonntag, der zwanzigste Mai"),
        (spoken_de.on_date(3, 3), "am dritten März"),
        (spoken_de.on_date(3, 7, None, 0), "am Montag, dem siebten März"),
        (spoken_de.in_month(8, 1900), "im August neunzehnhundert"),
    )
    def test_dates_are_what_is_said(self, words, expected):
        self.assertEqual(words, expected)


class TimesTest(parameterized.TestCase):
    @parameterized.parameters(
        (spoken_de.exact_time(0, 10), "null Uhr zehn"),
        (spoken_de.exact_time(1, 1), "ein Uhr eins"),
        (spoken_de.exact_time(15, 0), "fünfzehn Uhr"),
        (spoken_de.exact_time(21, 45), "einundzwanzig Uhr fünfundvierzig"),
        (spoken_de.rounded_time(1, 0), "ein Uhr"),
        (spoken_de.rounded_time(3, 30), "halb vier"),
        (spoken_de.rounded_time(12, 30), "halb eins"),
        (spoken_de.rounded_time(1, 15), "Viertel nach eins"),
        (spoken_de.rounded_time(4, -15), "Viertel vor vier"),
        (
            spoken_de.rounded_time(4, -20, "afternoon"),
            "zwanzig vor vier nachmittags",
        ),
        (spoken_de.at("halb vier"), "um halb vier"),
        (spoken_de.at("halb vier", 2), "am Mittwoch um halb vier"),
    )
    def test_times_are_what_is_said(self, words, expected):
        self.assertEqual(words, expected)


class ListsTest(absltest.TestCase):
    def test_no_comma_before_the_last(self):
        self.assertEqual(spoken_de.conjunction("a", "b"), "a und b")
        self.assertEqual(spoken_de.conjunction("a", "b", "c"), "a, b und c")


if __name__ == "__main__":
    absltest.main()
