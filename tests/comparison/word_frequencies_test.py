"""Frequencies of words: of the training text, and counted once."""

import pathlib

from absl.testing import absltest

from relpos_tf.comparison import runs as runs_lib
from relpos_tf.comparison import word_frequencies
from relpos_tf.comparison import words
from relpos_tf.decoding import loading
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

    def count(self, lines=LINES, data="data", runs=()):
        return word_frequencies.in_training(
            lines,
            runs or [self.run_of_a],
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

    def test_pairs_that_are_too_long_for_training_are_not_counted(self):
        tokenizer = loading.load_tokenizer(self.run_of_a.path)
        lengths = [
            max(len(tokenizer.encode(line)) for line in pair)
            for pair in examples.PAIRS
        ]
        # One pair is longer by an id, on one of its sides.
        most = sorted(lengths)[1]
        hparams = self.run_of_a.hparams().replace(max_length=most)
        lines = [target for _, target in examples.PAIRS]
        before, _ = self.count(lines)
        self.run_of_a.files.write_hparams(hparams)
        found, _ = self.count(lines)
        expected = words.count(
            line
            for line, length in zip(lines, lengths, strict=True)
            if length <= most
        )
        self.assertEqual(found, dict(expected))
        self.assertGreater(sum(before.values()), sum(found.values()))

    def test_labels_of_different_lengths_are_a_warning(self):
        examples.add_run(self.folder, "b-seed1")
        runs = runs_lib.find(f"{self.folder}/a-seed1,{self.folder}/b-seed1")
        self.assertNotEmpty(self.count(runs=runs)[0])
        runs[1].files.write_hparams(runs[1].hparams().replace(max_length=7))
        found, warning = self.count(runs=runs)
        self.assertIsNone(found)
        self.assertRegex(
            warning,
            r"^No words by frequency: .* trained .* max_length 7 and 256\.",
        )

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
        for path in (self.folder / "data").glob("*/train.ids"):
            path.unlink()
        found, warning = self.count()
        self.assertIsNone(found)
        self.assertRegex(warning, r"^No words by frequency: .*train.ids")


if __name__ == "__main__":
    absltest.main()
