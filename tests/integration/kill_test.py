"""Runs that are stopped, in several ways. More of it: tests/campaigns/."""

import pathlib
import shlex
import shutil
import signal
import time

from absl.testing import absltest

from relpos_tf.models import run_dir
from tests import commands
from tests.campaigns import kill

STEPS, FREQUENCY = 40, 30
OPTIONS = (
    "--problem=algorithmic_reverse",
    f"--train_steps={STEPS}",
    f"--local_eval_frequency={FREQUENCY}",
    "--log_step_count_steps=7",  # which is not when it saves
    "--deterministic",
    "--hparams=hidden_size=16,filter_size=24,num_heads=2,num_hidden_layers=1,"
    "max_relative_position=3,batch_size=128,beam_size=1,extra_length=2",
)


class KillTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.root = pathlib.Path(self.create_tempdir().full_path)

    def start(self, name, command=None):
        run = kill.Run(self.root / name, OPTIONS, command, commands.Popen)
        self.addCleanup(run.process.stderr.close)
        self.addCleanup(run.process.kill)
        return run

    def assert_kept(self, run, there):
        """Checks that all checkpoints are there, and says which are."""
        self.assertNotIn("Traceback", run.text())
        now = kill.checkpoints_in(run.directory)
        self.assertEqual({name: now.get(name) for name in there}, there)
        return now

    def test_stopped_three_times_it_ends_like_one_undisturbed(self):
        undisturbed = self.start("undisturbed")
        self.assertEqual(undisturbed.finish(), 0, undisturbed.text())
        folder = self.root / "it's stopped"
        folder.mkdir()
        shutil.copytree(undisturbed.folder / "data", folder / "data")

        command, there = self.terminate_in_a_hurry(self.start(folder.name))

        run = self.start(folder.name, command)
        run.wait_for_half(0)
        self.assertEqual(run.stop(signal.SIGKILL), -signal.SIGKILL)
        self.assertNotEmpty(kill.halves(folder))
        there = self.assert_kept(run, there)

        run = self.start(folder.name)
        self.assertTrue(run.wait_for(r"^Saved .*/ckpt-30\.$"), run.text())
        # Now it evaluates, which takes seconds.
        self.assertEqual(run.stop(signal.SIGKILL), -signal.SIGKILL)
        there = self.assert_kept(run, there)
        self.assertIn("ckpt-30.index", there)

        run = self.start(folder.name)
        self.assertEqual(run.finish(), 0, run.text())
        self.assert_kept(run, there)
        self.assertEmpty(kill.differences(run, undisturbed, there, STEPS))

    def terminate_in_a_hurry(self, run):
        """Terminates a run twice; returns what to type and its checkpoint."""
        self.assertTrue(run.wait_for(r"^step 7/"), run.text())
        run.process.send_signal(signal.SIGTERM)
        time.sleep(0.01)
        self.assertEqual(run.stop(signal.SIGTERM), 0, run.text())
        self.assertEmpty(kill.halves(run.folder))
        [step] = run_dir.all_steps(run.directory)
        self.assertBetween(step, 7, FREQUENCY - 1)
        stopped = f"Stopped at step {step}. The same command goes on from there"
        self.assertIn(stopped, run.text())
        command = run.lines[-1][1].strip()
        self.assertEqual(shlex.split(command), run.process.args)
        return command, self.assert_kept(run, {})

    def test_terminated_with_nothing_to_save_it_says_so(self):
        run = self.start("early")
        self.assertTrue(run.wait_for(r"^Preparing"), run.text())
        self.assertEqual(run.stop(signal.SIGTERM), 143, run.text())
        *_, again, command, last = run.text().split("\n")
        self.assertEqual(again, "Run again with:")
        self.assertEqual(shlex.split(command), run.process.args)
        self.assertEqual(last, "relpos-trainer: terminated.")
        self.assertNotIn("Traceback", run.text())
        self.assertEmpty(kill.halves(run.folder))


if __name__ == "__main__":
    absltest.main()
