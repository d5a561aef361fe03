"""What a run keeps when it is resumed: checkpoints and events."""

import pathlib
import sys
import time
from unittest import mock

import tensorflow as tf
from absl.testing import absltest

from relpos_tf import errors
from relpos_tf import hparam
from relpos_tf import registry
from relpos_tf.bin import command
from relpos_tf.training import evaluation
from relpos_tf.training import hosts
from relpos_tf.training import metrics
from relpos_tf.training import run_config
from relpos_tf.training import run_setup
from relpos_tf.training import trainer as trainer_lib
from tests.utils import terminal_test

HPARAMS = hparam.HParams(
    hidden_size=8,
    filter_size=12,
    num_heads=2,
    num_hidden_layers=1,
    batch_size=64,
    max_length=32,
    average_checkpoints=2,
)


class RetentionTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)
        self.problem = registry.problem("algorithmic_reverse")
        self.problem.prepare(self.folder / "data")

    def trainer(self, **options):
        """Starts the run or goes on with it, saving every step."""
        run, hparams = run_setup.open_run(
            hosts.Hosts(tf.distribute.get_strategy()),
            str(self.folder / "run"),
            self.problem,
            str(self.folder / "data"),
            HPARAMS,
            "",
        )
        return trainer_lib.Trainer(
            hparams,
            self.problem,
            str(self.folder / "data"),
            run,
            tf.distribute.get_strategy(),
            run_config.RunConfig(
                **{"local_eval_frequency": 1, "evaluate": False} | options
            ),
        )

    def steps(self):
        names = (self.folder / "run").glob("ckpt-*.index")
        return sorted(int(path.stem.removeprefix("ckpt-")) for path in names)

    def test_best_survives_a_resume(self):
        trainer = self.trainer(train_steps=3)
        trainer.train()
        self.assertEqual(self.steps(), [1, 2, 3])
        for step, bleu in ((1, 5.0), (2, 7.0), (3, 3.0)):
            event = {"step": step, "split": "dev", "loss": 1.0, "bleu": bleu}
            trainer.run.append_metrics(event)
        # Neither another split nor an average is a checkpoint's score.
        for extra in ({"split": "test"}, {"split": "dev", "averaged": 2}):
            trainer.run.append_metrics(
                {"step": 3, "loss": 1.0, "bleu": 99.0} | extra
            )
        self.trainer(train_steps=7, keep_checkpoint_max=2).train()
        self.assertEqual(self.steps(), [2, 6, 7])

    def test_evaluation_data_are_looked_at_before_the_first_step(self):
        folder = self.problem.folder(self.folder / "data")
        (shard,) = folder.glob("dev-*.tfrecord")
        for path, content, message in (
            (shard, b"7", "dev-.* is damaged"),
            (folder / "dev.target", b"7\n", "dev.target is damaged"),
        ):
            original = path.read_bytes()
            path.write_bytes(content)
            with self.assertRaisesRegex(errors.UserError, message):
                self.trainer(evaluate=True, train_steps=3).train()
            path.write_bytes(original)
        with self.assertRaisesRegex(errors.UserError, "no split 'quiz'"):
            self.trainer(
                evaluate=True, eval_split="quiz", train_steps=3
            ).train()
        (self.folder / "run" / "average").touch()
        with self.assertRaisesRegex(errors.UserError, "average is a file"):
            self.trainer(train_steps=3).train()
        self.assertEmpty(self.steps())

    def test_events_before_the_first_checkpoint_do_not_stay(self):
        trainer = self.trainer()
        trainer.run.append_metrics(
            {"step": 3, "split": "dev", "loss": 1.0, "bleu": 7.0}
        )
        self.assertEmpty(self.trainer().run.read_metrics())

    def test_updates_between_two_reports_are_not_lost(self):
        options = {"train_steps": 7, "log_step_count_steps": 5}
        trainer = self.trainer(**options)
        command.logger()
        with mock.patch.object(sys, "stderr", terminal_test.Terminal()) as seen:
            trainer.train()
        # Long before the first report.
        self.assertRegex(
            seen.getvalue(),
            r"(?s)\A\rBuilding the graph of the first step\..*"
            r"\rstep 1/7  loss ",
        )

        def events():
            names = "step", "loss", "target_tokens", "skipped_steps"
            return [
                [event[name] for name in names]
                for event in trainer.run.read_metrics()
            ]

        expected = events()
        self.assertEqual([event[0] for event in expected], [5, 7])
        # As a kill after the checkpoint of the third update leaves it.
        for path in (self.folder / "run").glob("ckpt-[4-7].*"):
            path.unlink()
        self.trainer(**options).train()
        self.assertEqual(events(), expected)

    def test_evaluation_shows_how_far_it_is(self):
        trainer = self.trainer(train_steps=1, log_step_count_steps=1)
        trainer.train()
        scores = metrics.corpus_bleu(["a b"], ["a c"])

        def forced(model, dataset):
            self.assertNotEmpty(list(dataset))
            return {"loss": 1.0, "teacher_forced_accuracy": 0.5}

        def translate(translator, sources, references, progress):
            time.sleep(0.15)
            progress(57)
            return scores, []

        command.logger()
        with (
            mock.patch.object(evaluation, "teacher_forced", forced),
            mock.patch.object(evaluation, "translate_and_score", translate),
            mock.patch.object(sys, "stderr", terminal_test.Terminal()) as seen,
        ):
            trainer.evaluate()
        self.assertIn("\rEvaluating on dev: batch 1", seen.getvalue())
        self.assertIn("\rEvaluating on dev: line 57 of 100", seen.getvalue())
        self.assertRegex(seen.seen()[0], "^dev at step 1: loss 1.0000")


if __name__ == "__main__":
    absltest.main()
