"""Checkpoints at the ends of epochs: which, how many, and their average."""

import itertools
import shutil
from unittest import mock

import numpy as np

from relpos_tf.bin import average
from relpos_tf.data import plan as plan_lib
from relpos_tf.models import averages
from relpos_tf.models import checkpoints
from relpos_tf.models import run_dir
from tests.bin import calls
from tests.training import tiny_runs

# Batches of each epoch.
LENGTHS = [4, 3, 5, 1, 4, 2, 6, 100]
# The updates of three batches that end an epoch.
ENDS_OF_THREE = [1, 2, 4, 5, 6, 8]
REAL_EPOCH = plan_lib.Plan.epoch


class Killed(BaseException):
    """Stands for SIGKILL."""


def short_epoch(plan, seed, epoch, skipped=0):
    """Yields as many batches of an epoch as LENGTHS says."""
    batches = REAL_EPOCH(plan, seed, epoch)
    return itertools.islice(batches, skipped, LENGTHS[epoch])


class EpochEndsTest(tiny_runs.TestCase):
    hparams = tiny_runs.HPARAMS.replace(average_epochs=3)
    config = {"local_eval_frequency": 5, "keep_checkpoint_max": 2}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # One run serves all tests.
        cls.train("whole", 25)

    @classmethod
    def train(cls, name, steps, hparams="", **config):
        """Trains, and returns the prefix of the average."""
        short = mock.patch.object(plan_lib.Plan, "epoch", short_epoch)
        with short, tiny_runs.untraced():
            trainer = cls.trainer(name, steps, hparams, **config)
            trainer.train()
        return trainer.average()

    def test_the_last_ends_stay_and_are_averaged(self):
        path = self.folder / "whole"
        # The last three ends and, with 25, the last two.
        self.assertEqual(run_dir.all_steps(path), [17, 19, 20, 25])
        self.assertEqual(averages.ends_of_epochs(path, 9), [17, 19, 25])
        ends = [self.values_in(path / f"ckpt-{step}") for step in (17, 19, 25)]
        found = self.values_in(path / "average" / "ckpt-25")
        checked = 0
        for key, value in found.items():
            if key.startswith("model/"):
                expected = sum(np.float64(end[key]) for end in ends) / 3
                self.assertAllClose(value, expected, rtol=1e-6, atol=1e-6)
                self.assertNotAllClose(value, ends[2][key], atol=1e-7)
                checked += 1
        self.assertGreater(checked, 10)

    def test_every_end_is_found_with_three_batches_of_an_update(self):
        hparams = "average_epochs=9,optimizer_multistep_accumulate_steps=3"
        self.train("all", ENDS_OF_THREE[-1], hparams)
        found = averages.ends_of_epochs(self.folder / "all", 9)
        self.assertEqual(found, ENDS_OF_THREE)

    def test_a_run_killed_anywhere_gives_the_same_average(self):
        mark, save = run_dir.RunDir.mark, checkpoints._write

        def killed(function, count):
            def call(*args):
                nonlocal count
                count -= 1
                if count < 0:
                    raise Killed
                return function(*args)

            return call

        path = self.folder / "killed"
        # How many saves and marks succeed, and the checkpoints and marks then.
        for saves, marks, steps, ends in (
            (2, 9, [4, 5], [4]),  # before the checkpoint of the end at 7
            (9, 0, [4, 5], [4]),  # before its mark
        ):
            with (
                mock.patch.object(checkpoints, "_write", killed(save, saves)),
                mock.patch.object(run_dir.RunDir, "mark", killed(mark, marks)),
                self.assertRaises(Killed),
            ):
                self.train("killed", 25)
            self.assertEqual(run_dir.all_steps(path), steps)
            self.assertEqual(averages.ends_of_epochs(path, 9), ends)
        found = self.train("killed", 25)
        self.assertEqual(averages.ends_of_epochs(path, 9), [17, 19, 25])
        self.assert_same_values(found, "whole/average/ckpt-25")
        self.assert_same_values("killed/ckpt-25", "whole/ckpt-25")

    def test_the_command_averages_the_ends(self):
        path = self.folder / "command"
        shutil.copytree(self.folder / "whole", path)
        shutil.rmtree(path / "average")
        flag = f"--output_dir={path}"
        code, out, err = calls.execute(average.main, flag)
        self.assertEqual(code, 0, err)
        self.assertEqual(out.decode(), f"{path / 'average' / 'ckpt-25'}\n")
        self.assertIn("3 checkpoints, steps 17, 19, 25.", err)
        names = (f"{name}/average/ckpt-25" for name in ("command", "whole"))
        self.assert_same_values(*names)
        for mark in path.glob("*.epoch"):
            mark.unlink()
        code, out, err = calls.execute(average.main, flag)
        self.assertEqual((code, out), (1, b""))
        self.assertIn("ckpt-STEP.epoch", err)
        self.assertIn("Name the checkpoints with --n or --steps.", err)
