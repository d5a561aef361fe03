"""Tests of the problems made up on the spot."""

import tempfile

from absl.testing import absltest

from relpos_tf import registry
from relpos_tf.data import tokenizer
from relpos_tf.problems import algorithmic


class AlgorithmicTest(absltest.TestCase):
    def test_targets_are_the_sources_or_their_reverse(self):
        copied = list(algorithmic.algorithmic_copy().splits["dev"](None))
        reversed_ = list(algorithmic.algorithmic_reverse().splits["dev"](None))
        self.assertLen(copied, 100)
        for source, target in copied:
            self.assertEqual(source, target)
        for source, target in reversed_:
            self.assertEqual(source.split()[::-1], target.split())
        self.assertEqual([p[0] for p in copied], [p[0] for p in reversed_])
        lengths = {len(source.split()) for source, _ in copied}
        self.assertEqual(lengths, set(range(2, 10)))

    def test_splits_have_nothing_in_common_and_repeat(self):
        reverse = registry.problem("algorithmic_reverse")
        splits = {s: list(reverse.splits[s](None)) for s in reverse.splits}
        everything = sum(splits.values(), [])
        self.assertLen(set(everything), 3200)
        self.assertLen(everything, 3200)
        self.assertEqual(list(reverse.splits["test"](None)), splits["test"])

    def test_every_syllable_is_one_id(self):
        with tempfile.TemporaryDirectory() as data_dir:
            copy = registry.problem("algorithmic_copy")
            copy.prepare(data_dir)
            tokens = tokenizer.Tokenizer(copy.tokenizer_path(data_dir))
            for source, _ in copy.splits["test"](None):
                self.assertLen(tokens.encode(source), len(source.split()) + 1)
