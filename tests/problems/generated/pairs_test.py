"""Tests of the generated phrases and lists, as parallel text."""

import collections
import datetime
import hashlib
import random
import re

from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf.problems.generated import lists
from relpos_tf.problems.generated import phrases

SIZES = {
    phrases: {"train": 20_000, "dev": 400, "test": 500},
    lists: {"train": 20_000, "dev": 400, "test": 1000},
}
PAIRS = {
    module: {split: list(module.pairs(split)) for split in sizes}
    for module, sizes in SIZES.items()
}


def drawn(count):
    """Returns phrases, some of them twice."""
    generator = random.Random(3)
    return [phrases.sample(generator) for _ in range(count)]


class SplitsTest(parameterized.TestCase):
    @parameterized.parameters(
        # Of a thousand English sides, how many are held out; a checksum.
        (phrases, 24, 30, "1577fbc84800dea7"),
        (lists, 100, 200, "d988cc66169dcb42"),
    )
    def test_splits_have_nothing_in_common_and_never_change(
        self, module, dev, test, checksum
    ):
        for split, pairs in PAIRS[module].items():
            self.assertLen(pairs, SIZES[module][split])
            for source, _ in pairs[:500]:
                digest = hashlib.sha256(source.encode()).hexdigest()
                rank = int(digest[:16], 16) % 1000
                expected = "test" if rank < dev + test else "train"
                self.assertEqual("dev" if rank < dev else expected, split)
        sources = [s for pairs in PAIRS[module].values() for s, _ in pairs]
        self.assertLen(set(sources), sum(SIZES[module].values()))
        # Scores on other text could not be compared with older ones.
        lines = "".join(f"{s}\t{t}\n" for s, t in PAIRS[module]["test"])
        digest = hashlib.sha256(lines.encode()).hexdigest()
        self.assertEqual(digest[:16], checksum)


class PhrasesTest(absltest.TestCase):
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


class ListsTest(absltest.TestCase):
    def test_every_length_is_there_equally_often(self):
        for split, size in SIZES[lists].items():
            lengths = [
                len(english.replace("-", " - ").replace(",", " ,").split())
                for english, _ in PAIRS[lists][split]
            ]
            counts = collections.Counter(lengths)
            self.assertEqual(counts, dict.fromkeys(range(3, 53), size // 50))
            # In turn, so that any first part has all of them.
            self.assertEqual(lengths[:100], [*range(3, 53), *range(3, 53)])

    def test_items_are_translated_one_by_one(self):
        known, ends = {}, []
        for english, translation in PAIRS[lists]["test"]:
            items = re.split(", and | and |, ", english)
            # The last two are joined by a word that numbers may have, too.
            *first, end = translation.split(", ")
            self.assertLen(first, max(0, len(items) - 2))
            ends.append((items[-2:], end))
            for item, words in zip(items, first, strict=False):
                self.assertEqual(known.setdefault(item, words), words)
        self.assertEqual(known["three apples"], "drei Äpfel")
        checked = [
            (" und ".join(known[item] for item in items), end)
            for items, end in ends
            if all(item in known for item in items)
        ]
        self.assertGreater(len(checked), 50)
        for expected, end in checked:
            self.assertEqual(end, expected)


if __name__ == "__main__":
    absltest.main()
