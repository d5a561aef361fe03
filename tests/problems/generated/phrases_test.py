"""Tests of the generated parallel text."""

import datetime
import hashlib
import inspect
import random

from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf.problems.generated import english
from relpos_tf.problems.generated import german
from relpos_tf.problems.generated import phrases

LANGUAGES = {"en": english, "de": german}
SIZES = {"train": 20_000, "dev": 400, "test": 500}
PAIRS = {split: list(phrases.pairs(split)) for split in SIZES}


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
        with self.assertRaisesRegex(ValueError, "'de'.*Received: 'nl'"):
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
                for module in LANGUAGES.values()
            }
            self.assertLen(signatures, 1, kind)


class SampleTest(parameterized.TestCase):
    def test_one_english_phrase_has_one_translation(self):
        translations = {}
        for phrase in drawn(40_000):
            said = phrase.say("de")
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
            for language in LANGUAGES:
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
        train = {source for source, _ in PAIRS["train"]}
        for noun in ("hour", "day", "week"):
            small = [english.quantity(n, noun) for n in range(1, 100)]
            self.assertGreater(sum(phrase in train for phrase in small), 75)


class SplitsTest(parameterized.TestCase):
    @parameterized.parameters(
        ("twenty-one days", "train"),
        ("three weeks ago", "train"),
        ("fifty-eight hours", "dev"),
        ("forty horses", "dev"),
        ("in seventeen oh one", "test"),
        ("fifty-three days", "test"),
    )
    def test_split_of_a_phrase_never_changes(self, source, split):
        self.assertEqual(phrases.split_of(source), split)

    def test_split_is_by_sha256_of_the_english_side(self):
        for split, pairs in PAIRS.items():
            for source, _ in pairs[:500]:
                digest = hashlib.sha256(source.encode()).hexdigest()
                rank = int(digest[:16], 16) % 1000
                expected = (
                    "dev" if rank < 24 else "test" if rank < 54 else "train"
                )
                self.assertEqual(expected, split)
                self.assertEqual(phrases.split_of(source), split)

    def test_splits_have_their_sizes_and_nothing_in_common(self):
        for split, size in SIZES.items():
            self.assertLen(PAIRS[split], size)
        sources = {source for pairs in PAIRS.values() for source, _ in pairs}
        self.assertLen(sources, 20_900)

    def test_unknown_splits_are_refused(self):
        with self.assertRaisesRegex(ValueError, "'dev'.*Received: 'eval'"):
            next(phrases.pairs("eval"))

    def test_test_split_never_changes(self):
        # Scores on other phrases could not be compared with older ones.
        lines = [f"{e}\t{t}\n" for e, t in PAIRS["test"]]
        digest = hashlib.sha256("".join(lines).encode()).hexdigest()
        self.assertEqual(digest[:16], "1577fbc84800dea7")


if __name__ == "__main__":
    absltest.main()
