"""Tests of the average command: its checkpoints and its refusals."""

import pathlib

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf import hparam
from relpos_tf.bin import average
from relpos_tf.models import checkpoints
from relpos_tf.models import run_dir
from tests.bin import calls


class AverageTest(tf.test.TestCase, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.run_dir = pathlib.Path(self.create_tempdir().full_path)
        hparams = hparam.HParams().replace(average_checkpoints=3)
        run_dir.RunDir(self.run_dir).write_hparams(hparams)
        for step in (2, 30, 400, 5000):
            checkpoints.write_model(
                str(self.run_dir / f"ckpt-{step}"),
                {"m/w": np.float32([step, 1.0])},
                step,
            )

    def execute(self, *arguments):
        return calls.execute(
            average.main, f"--output_dir={self.run_dir}", *arguments
        )

    def average_at(self, prefix):
        """Returns the one variable of the checkpoint at `prefix`."""
        return checkpoints.read(prefix)["model/m/w"]

    @parameterized.named_parameters(
        ("last_as_the_set_says", [], [30, 400, 5000], "ckpt-5000"),
        ("last_two", ["--n=2"], [400, 5000], "ckpt-5000"),
        ("one", ["--n=1"], [5000], "ckpt-5000"),
        ("named_in_any_order", ["--steps=400,2"], [2, 400], "ckpt-400"),
    )
    def test_result_is_the_mean_of(self, arguments, steps, name):
        code, out, err = self.execute(*arguments)
        path = self.run_dir / "average" / name
        self.assertEqual((code, out), (0, f"{path}\n".encode()))
        self.assertIn(f"Averaged {len(steps)} checkpoints", err)
        self.assertAllClose(
            self.average_at(path), [np.mean(steps), 1.0], atol=1e-6
        )

    def test_an_average_up_to_the_last_step_becomes_the_result(self):
        run_dir.RunDir(self.run_dir).write_hparams(hparam.HParams())
        self.execute("--steps=2,30")
        last = str(self.run_dir / "ckpt-5000")
        self.assertEqual(checkpoints.resolve(self.run_dir), last)
        self.execute("--n=2")
        last = str(self.run_dir / "average" / "ckpt-5000")
        self.assertEqual(checkpoints.resolve(self.run_dir), last)

    def test_average_is_no_checkpoint_to_average(self):
        self.execute("--n=2")
        folder = self.run_dir / "average"
        code, out, err = calls.execute(
            average.main, f"--output_dir={folder}", "--n=1"
        )
        self.assertEqual((code, out), (1, b""))
        self.assertIn(f"Received: {folder / 'ckpt-5000'}, an aver", err)
        self.assertEqual(err.count("\n"), 1)
