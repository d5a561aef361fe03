"""Frequencies of words: of the training text, and counted once."""

import pathlib

from absl.testing import absltest

from relpos_tf.comparison import runs as runs_lib
from relpos_tf.comparison import word_frequencies
from relpos_tf.comparison import words
from relpos_tf.problems import test_sets
from tests.comparison import examples

LINES = ["Tage und Nächte, Nichts", examples.PAIRS[0][1]]


class WordFrequenciesTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path) / "all"
        examples.copy(self.folder)
        (self.run_of_a,) = runs_lib.find(str(self.folder / "a-seed1"))
        self.problem = test_sets.problem_of(self.run_of_a.files)
        patch = examples.in_this_process()
        self.process = patch.start()
        self.addCleanup(patch.stop)

    def count(self, lines=LINES, data="data"):
        return word_frequencies.in_training(
            lines,
            self.run_of_a,
            str(self.folder / data),
            self.problem,
            self.folder / "out",
        )

    def test_words_are_counted_in_the_targets_of_training(self):
        found, warning = self.count()
        self.assertEqual(warning, "")
        in_training = words.count(target for _, target in examples.PAIRS)
        wanted = set(words.count(LINES))
        self.assertEqual(
            found, {w: n for w, n in in_training.items() if w in wanted}
        )
        self.assertNotEmpty(found)
        self.assertNotIn("Nichts", found)

    def test_words_are_counted_once(self):
        first, second = self.count(), self.count()
        self.assertEqual(first, second)
        self.assertEqual(self.process.call_count, 1)
        self.count([*LINES, "more"])
        self.assertEqual(self.process.call_count, 2)
        (self.folder / "out" / "frequencies.json").write_text("{")
        self.assertNotEmpty(self.count()[0])
        self.assertEqual(self.process.call_count, 3)

    def test_no_training_data_are_a_warning(self):
        for path in (self.folder / "data").glob("*/train*.tfrecord"):
            path.unlink()
        found, warning = self.count()
        self.assertIsNone(found)
        self.assertRegex(warning, r"^No words by frequency: .*tfrecord")


if __name__ == "__main__":
    absltest.main()
