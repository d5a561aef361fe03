"""The checkpoints and events that a resumed run keeps."""

import shutil

from relpos_tf import errors
from relpos_tf.models import run_dir as run_dir_lib
from tests.training import tiny_runs


class RetentionTest(tiny_runs.TestCase):
    hparams = tiny_runs.HPARAMS.replace(batch_size=64, average_checkpoints=2)
    config = {"local_eval_frequency": 1, "log_step_count_steps": 5}

    def train_events(self, run_dir):
        """Returns the fields of training events that a resume must repeat."""
        names = "step", "loss", "target_tokens", "skipped_steps"
        events = run_dir_lib.RunDir(run_dir).read_metrics()
        return [
            [event[name] for name in names]
            for event in events
            if event["split"] == "train"
        ]

    def test_resume_keeps_the_best_and_repeats_the_events(self):
        self.trainer("whole", 7).train()
        whole, resumed = self.folder / "whole", self.folder / "resumed"
        shutil.copytree(whole, resumed)
        # A kill after the third checkpoint leaves these files.
        for path in resumed.glob("ckpt-[4-7].*"):
            path.unlink()
        run = run_dir_lib.RunDir(resumed)
        for step, bleu in ((1, 5.0), (2, 7.0), (3, 3.0)):
            event = {"step": step, "split": "dev", "loss": 1.0, "bleu": bleu}
            run.append_metrics(event)
        # Events of another split and of an average score no checkpoint.
        for extra in ({"split": "test"}, {"split": "dev", "averaged": 2}):
            run.append_metrics({"step": 3, "loss": 1.0, "bleu": 99.0} | extra)
        self.trainer("resumed", 7, keep_checkpoint_max=2).train()
        self.assertEqual(run_dir_lib.all_steps(resumed), [2, 6, 7])
        events = self.train_events(resumed)
        self.assertEqual([event[0] for event in events], [5, 7])
        self.assertEqual(events, self.train_events(whole))

    def test_evaluation_data_are_checked_before_the_first_step(self):
        folder = self.problem.folder(self.data_dir)
        ids = folder / "dev.ids"
        for path, content, message in (
            (ids, b"7", "dev.ids is damaged"),
            (folder / "dev.target", b"7\n", "dev.target is damaged"),
        ):
            original = path.read_bytes()
            path.write_bytes(content)
            with self.assertRaisesRegex(errors.UserError, message):
                self.trainer("new", 3, evaluate=True).train()
            path.write_bytes(original)
        with self.assertRaisesRegex(errors.UserError, "no split 'quiz'"):
            self.trainer("new", 3, evaluate=True, eval_split="quiz").train()
        self.assertEmpty(run_dir_lib.all_steps(self.folder / "new"))

    def test_events_before_the_first_checkpoint_are_removed(self):
        trainer = self.trainer("begun", 1)
        trainer.run.append_metrics(
            {"step": 3, "split": "dev", "loss": 1.0, "bleu": 7.0}
        )
        self.assertEmpty(self.trainer("begun", 1).run.read_metrics())
