"""Tests of a vocab_size among the hparams, which the data decide."""

import pathlib
import shutil

import tensorflow as tf
from absl.testing import absltest

from relpos_tf import hparam
from relpos_tf.training import hosts
from relpos_tf.training import run_setup
from tests.problems import problem_test

ONE_HOST = hosts.Hosts(tf.distribute.get_strategy())


class VocabSizeTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        problem_test.prepared_once()  # with warnings of its own

    def open(self, **changes):
        """Returns the hparams of a run that is opened with such hparams."""
        folder = pathlib.Path(self.create_tempdir().full_path)
        shutil.copytree(problem_test.prepared_once(), folder / "data")
        hparams = hparam.HParams(hidden_size=16, num_heads=2, **changes)
        _, hparams = run_setup.open_run(
            ONE_HOST,
            str(folder / "run"),
            problem_test.make(),
            str(folder / "data"),
            hparams,
            "",
        )
        return hparams

    def test_a_size_that_has_no_effect_is_warned_of(self):
        with self.assertLogs("relpos_tf", "WARNING") as logs:
            hparams = self.open(vocab_size=5000)
        [line] = logs.output
        self.assertIn("vocab_size=5000 of the hparams has no effect", line)
        self.assertIn(f"has {hparams.vocab_size} pieces", line)

    def test_the_default_and_the_right_size_are_not_warned_of(self):
        with self.assertNoLogs("relpos_tf", "WARNING"):
            hparams = self.open()
            self.assertEqual(self.open(vocab_size=hparams.vocab_size), hparams)
        self.assertLess(hparams.vocab_size, 400)


if __name__ == "__main__":
    absltest.main()
