"""Tests of the generated parallel text."""

import datetime
import hashlib
import inspect
import random

from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf.problems import phrases
from relpos_tf.problems import spoken_de
from relpos_tf.problems import spoken_en
from relpos_tf.problems import spoken_fr

SPOKEN = {"en": spoken_en, "de": spoken_de, "fr": spoken_fr}


def drawn(count, seed=3):
    """Returns phrases, some of them twice."""
    generator = random.Random(seed)
    return [phrases.sample(generator) for _ in range(count)]


def parts(phrase):
    """Yields a phrase and all that is said inside it."""
    yield phrase
    for argument in phrase.arguments:
        if isinstance(argument, phrases.Phrase):
            yield from parts(argument)


class PhraseTest(parameterized.TestCase):
    def test_a_phrase_is_said_in_every_language(self):
        phrase = phrases.Phrase("quantity", (21, "day"))
        self.assertEqual(phrase.say("en"), "twenty-one days")
        self.assertEqual(phrase.say("de"), "einundzwanzig Tage")
        self.assertEqual(phrase.say("fr"), "vingt et un jours")
        with self.assertRaisesRegex(ValueError, "'fr'.*Received: 'nl'"):
            phrase.say("nl")

    def test_phrases_inside_a_phrase_are_said_first(self):
        time = phrases.Phrase("rounded_time", (4, -15))
        phrase = phrases.Phrase("at", (time, 0))
        self.assertEqual(phrase.say("en"), "on Monday at a quarter to four")
        self.assertEqual(phrase.say("de"), "am Montag um Viertel vor vier")

    def test_languages_have_the_same_functions(self):
        kinds = {part.kind for p in drawn(2000) for part in parts(p)}
        self.assertContainsSubset({"cardinal", "conjunction", "ago"}, kinds)
        for kind in kinds:
            signatures = {
                str(inspect.signature(getattr(module, kind)))
                for module in SPOKEN.values()
            }
            self.assertLen(signatures, 1, kind)

    def test_every_noun_and_substance_is_known(self):
        self.assertEqual(list(spoken_fr.SUBSTANCES), list(spoken_de.SUBSTANCES))
        self.assertEqual(
            set(spoken_fr.NOUNS) - {"centime"}, set(spoken_de.NOUNS)
        )


class SampleTest(parameterized.TestCase):
    def test_one_english_phrase_has_one_translation(self):
        translations = {}
        for phrase in drawn(40_000):
            said = phrase.say("de"), phrase.say("fr")
            known = translations.setdefault(phrase.say("en"), said)
            self.assertEqual(known, said)
        self.assertGreater(len(translations), 20_000)

    def test_weekdays_with_a_year_are_those_of_the_calendar(self):
        checked = 0
        for phrase in drawn(10_000):
            if phrase.kind not in ("date", "on_date"):
                continue
            month, day, year, weekday = phrase.arguments
            # The day exists, in a leap year where no year is said.
            date = datetime.date(year or 2000, month, day)
            if None not in (year, weekday):
                self.assertEqual(date.weekday(), weekday)
                checked += 1
        self.assertGreater(checked, 50)

    def test_phrases_are_tidy(self):
        for phrase in drawn(5000):
            for language in SPOKEN:
                words = phrase.say(language)
                self.assertEqual(words, " ".join(words.split()))
                self.assertRegex(words, r"^[^\W\d_][\w ,.'-]*$")
                self.assertNotRegex(words, r"\d")

    def test_phrases_are_short(self):
        lengths = [len(p.say("en").split()) for p in drawn(10_000)]
        self.assertLess(max(lengths), 20)
        short = sum(length < 12 for length in lengths)
        self.assertGreater(short / len(lengths), 0.97)

    def test_small_counts_of_times_are_well_covered(self):
        train = {english for english, _ in phrases.pairs("de", "train")}
        for noun in ("hour", "day", "week"):
            small = [spoken_en.quantity(n, noun) for n in range(1, 100)]
            self.assertGreater(sum(phrase in train for phrase in small), 75)


class GenerateTest(parameterized.TestCase):
    def test_the_same_seed_gives_the_same_pairs(self):
        pairs = phrases.generate("de", 997, seed=5)
        self.assertLen(pairs, 997)
        self.assertEqual(pairs, phrases.generate("de", 997, seed=5))
        self.assertEqual(pairs[:101], phrases.generate("de", 101, seed=5))
        self.assertNotEqual(pairs, phrases.generate("de", 997, seed=6))

    def test_no_english_phrase_comes_twice(self):
        pairs = phrases.generate("fr", 9973, seed=5)
        self.assertLen({english for english, _ in pairs}, 9973)

    def test_other_languages_are_refused(self):
        with self.assertRaisesRegex(ValueError, "'fr'.*Received: 'nl'"):
            phrases.generate("nl", 1, seed=5)
        with self.assertRaisesRegex(ValueError, "'dev'.*Received: 'eval'"):
            next(phrases.pairs("de", "eval"))


class SplitsTest(parameterized.TestCase):
    @parameterized.parameters(
        ("twenty-one days", "train"),
        ("three weeks ago", "train"),
        ("fifty-eight hours", "dev"),
        ("forty horses", "dev"),
        ("in seventeen oh one", "test"),
        ("fifty-three days", "test"),
    )
    def test_split_of_a_phrase_never_changes(self, english, split):
        self.assertEqual(phrases.split_of(english), split)

    def test_split_is_by_sha256_of_the_english_side(self):
        for english, _ in phrases.generate("de", 3000, seed=5):
            digest = hashlib.sha256(english.encode()).hexdigest()
            rank = int(digest[:16], 16) % 1000
            expected = "dev" if rank < 24 else "test" if rank < 54 else "train"
            self.assertEqual(phrases.split_of(english), expected)

    @parameterized.parameters("de", "fr")
    def test_splits_have_their_sizes_and_nothing_in_common(self, language):
        english = set()
        for split, size in (("train", 20_000), ("dev", 400), ("test", 500)):
            pairs = list(phrases.pairs(language, split))
            self.assertLen(pairs, size)
            self.assertEqual({phrases.split_of(e) for e, _ in pairs}, {split})
            english |= {e for e, _ in pairs}
        self.assertLen(english, 20_900)

    def test_english_sides_are_the_same_for_every_target(self):
        german = [english for english, _ in phrases.pairs("de", "test")]
        french = [english for english, _ in phrases.pairs("fr", "test")]
        self.assertEqual(german, french)

    def test_test_split_never_changes(self):
        # Scores on other phrases could not be compared with older ones.
        lines = [f"{e}\t{t}\n" for e, t in phrases.pairs("de", "test")]
        digest = hashlib.sha256("".join(lines).encode()).hexdigest()
        self.assertEqual(digest[:16], "1577fbc84800dea7")


if __name__ == "__main__":
    absltest.main()
