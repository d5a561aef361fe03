"""A run that diverged says so, and how to go back to a good checkpoint."""

import shutil

from relpos_tf import errors
from tests.training import tiny_runs

# The weights after an update of this rate are finite; no loss of them is.
RUINOUS = "learning_rate_schedule=constant,learning_rate_constant=1e25"


class DivergenceTest(tiny_runs.TestCase):
    config = {"local_eval_frequency": 2}

    def test_a_ruined_checkpoint_is_named_with_the_way_back(self):
        self.trainer("ruined", 4).train()
        self.trainer("ruined", 5, RUINOUS).train()
        path = self.folder / "ruined"
        self.assertTrue((path / "ckpt-5.npz").is_file())
        with self.assertRaisesRegex(
            errors.UserError,
            rf"{path}/ckpt-5 is ruined.* {path}/ckpt-5\.\*.*{path}/ckpt-4",
        ):
            self.trainer("ruined", 9).train()
        # It is still there, also for a run without an earlier checkpoint.
        first = self.folder / "first"
        shutil.copytree(
            path, first, ignore=shutil.ignore_patterns("ckpt-[24].*")
        )
        with self.assertRaisesRegex(
            errors.UserError, "ckpt-5 is ruined.*no earlier.*--output_dir"
        ):
            self.trainer("first", 9).train()
        for file in path.glob("ckpt-5.*"):
            file.unlink()
        self.assertEqual(self.trainer("ruined", 9).step, 4)
