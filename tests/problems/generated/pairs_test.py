"""Tests of the generated phrases and lists, as parallel text."""

import hashlib
import random

from absl.testing import parameterized

from relpos_tf.problems.generated import phrases
from tests import examples

lists = examples.load("lists")


class SplitsTest(parameterized.TestCase):
    @parameterized.parameters(
        # Of a thousand English sides, how many are held out; a checksum.
        (phrases, 24, 30, "1577fbc84800dea7"),
        (lists, 100, 200, "d988cc66169dcb42"),
    )
    def test_splits_have_nothing_in_common_and_never_change(
        self, module, dev, test, checksum
    ):
        all_pairs = {
            split: list(module.pairs(split)) for split in module.SPLIT_SIZES
        }
        for split, pairs in all_pairs.items():
            self.assertLen(pairs, module.SPLIT_SIZES[split])
            for source, _ in pairs[:500]:
                digest = hashlib.sha256(source.encode()).hexdigest()
                rank = int(digest[:16], 16) % 1000
                expected = "test" if rank < dev + test else "train"
                self.assertEqual("dev" if rank < dev else expected, split)
        sources = [s for pairs in all_pairs.values() for s, _ in pairs]
        self.assertLen(set(sources), sum(module.SPLIT_SIZES.values()))
        # Scores on other text could not be compared with older ones.
        lines = "".join(f"{s}\t{t}\n" for s, t in all_pairs["test"])
        digest = hashlib.sha256(lines.encode()).hexdigest()
        self.assertEqual(digest[:16], checksum)

    def test_one_english_phrase_has_one_translation(self):
        translations, generator = {}, random.Random(3)
        for _ in range(40_000):
            phrase = phrases.sample(generator)
            said = phrase.say("de")
            known = translations.setdefault(phrase.say("en"), said)
            self.assertEqual(known, said)
        self.assertGreater(len(translations), 20_000)
