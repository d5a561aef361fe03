"""The checkpoints and events that a resumed run keeps."""

import dataclasses
import shutil
from unittest import mock

from relpos_tf import errors
from relpos_tf.decoding import translator
from relpos_tf.models import checkpoints
from relpos_tf.models import run_dir as run_dir_lib
from relpos_tf.problems import manifest
from relpos_tf.training import evaluation
from relpos_tf.training import run_setup
from relpos_tf.training import trainer as trainer_lib
from tests.training import tiny_runs


class RetentionTest(tiny_runs.TestCase):
    hparams = tiny_runs.HPARAMS.replace(batch_size=64, average_checkpoints=2)
    config = {"local_eval_frequency": 1, "log_step_count_steps": 5}

    def train_events(self, run_dir):
        """Returns the fields of training events that a resume must repeat."""
        names = "step", "loss", "target_tokens", "skipped_steps"
        return [
            [event[name] for name in names]
            for event in run_dir_lib.RunDir(run_dir).read_metrics()
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
        trainer = self.trainer("resumed", 7, keep_checkpoint_max=2)
        same = {"split": "dev", "conditions": trainer._conditions}
        # Step 0 stands for a checkpoint that is gone.
        for step, bleu in ((0, 9.0), (1, 5.0), (2, 7.0), (3, 3.0)):
            event = {"step": step, "loss": 1.0, "bleu": bleu} | same
            run.append_metrics(event)
        # Those of another split or set cannot be compared, nor an average.
        for extra in ({"split": "test"}, {"conditions": {}}, {"averaged": 2}):
            event = {"step": 3, "loss": 1.0, "bleu": 99.0}
            run.append_metrics(event | same | extra)
        run.mark(run_dir_lib.BEST, 3)
        trainer.train()
        self.assertEqual(run_dir_lib.all_steps(resumed), [2, 6, 7])
        self.assertEqual(run.best(), 2)
        events = self.train_events(resumed)
        self.assertEqual([event[0] for event in events], [5, 7])
        self.assertEqual(events, self.train_events(whole))

    def test_an_evaluation_is_told_with_its_rank_and_two_examples(self):
        _, references = self.problem.lines(self.data_dir, "dev")
        half = len(references) // 2
        made = []

        def translate(own, lines, progress):
            """Gives right lines: half of them, all, then half of them."""
            made.append(len(references) if len(made) == 1 else half)
            texts = [*references[: made[-1]], *lines[made[-1] :]]
            return [mock.Mock(texts=[text]) for text in texts]

        forced = {"loss": 2.0, "teacher_forced_accuracy": 0.5}
        with (
            mock.patch.object(translator.Translator, "translations", translate),
            mock.patch.object(
                evaluation, "teacher_forced", return_value=forced
            ),
            tiny_runs.untraced(),
            self.assertLogs("relpos_tf") as logs,
        ):
            self.trainer("told", 3, **tiny_runs.EVALUATES).train()
        told = [line for line in logs.output if "dev at step" in line]
        bests = ["best so far" in line for line in told]
        self.assertEqual(bests, [False, True, False])
        # e ** 2
        self.assertIn("loss 2.0000  perplexity 7.389  teacher", told[0])
        examples = logs.output[logs.output.index(told[0]) + 1]
        sides = [line.split(None, 1) for line in examples.split("\n")]
        self.assertEqual(
            sides[4:],
            [["reference", references[1]], ["translation", references[1]]],
        )

    def test_evaluation_data_are_checked_before_the_first_step(self):
        for name in ("dev.ids", "dev.target"):
            path = self.problem.folder(self.data_dir) / name
            original = path.read_bytes()
            path.write_bytes(b"7\n")
            with self.assertRaisesRegex(
                errors.UserError, f"{name} is .*damaged"
            ):
                self.trainer("new", 3, **tiny_runs.EVALUATES).train()
            path.write_bytes(original)
        self.assertEmpty(run_dir_lib.all_steps(self.folder / "new"))

    def test_a_run_that_is_removed_while_it_trains_does_not_end_well(self):
        trainer = self.trainer("gone", 3)
        (self.folder / "gone" / "hparams.json").unlink()
        with (
            tiny_runs.untraced(),
            self.assertRaisesRegex(errors.UserError, "holds hparams.js.*gone"),
        ):
            trainer.train()


class ConditionsTest(tiny_runs.TestCase):
    hparams = tiny_runs.HPARAMS.replace(beam_size=1, extra_length=1)
    config = {
        "local_eval_frequency": 2,
        "keep_checkpoint_max": 1,
        "eval_early_stopping_steps": 4,
        **tiny_runs.EVALUATES,
    }

    def setUp(self):
        super().setUp()
        self.enter_context(tiny_runs.untraced())

    def train(self, name, steps, scores, **config):
        """Trains with these scores of evaluations; returns the trainer."""
        scores = iter(scores)

        def score(trainer, step):
            value = next(scores)
            event = {
                "step": step,
                "split": trainer.config.eval_split,
                "loss": -value,
                "bleu": value,
            }
            event["conditions"] = trainer._conditions
            trainer._record(event)
            return event

        trainer = self.trainer(name, steps, **config)
        with mock.patch.object(trainer_lib.Trainer, "_score", score):
            trainer.train()
        self.assertIsNone(next(scores, None))
        return trainer

    def test_all_that_scores_depend_on_is_a_condition(self):
        known = manifest.fingerprints
        other = known(self.problem.manifest(self.data_dir)) | {"dev": "other"}
        found = []
        for data, hparams, config in (
            (None, "", {}),
            (other, "", {}),
            (None, "", {"eval_steps": 3}),
            (None, "", {"bleu_tokenize": "char"}),
            (None, "", {"eval_use_test_set": True}),
            (None, "beam_size=2", {}),
            (None, "alpha=0.9", {}),
            (None, "extra_length=2", {}),
            (None, "batch_size=64", {}),
        ):
            trainer = self.trainer("conditions", 1, hparams, **config)
            with mock.patch.object(
                manifest,
                "fingerprints",
                lambda it, data=data: data or known(it),
            ):
                found.append(str(trainer._conditions))
        self.assertLen(set(found), len(found))
        trainer._problem = dataclasses.replace(
            self.problem, target_language="zh"
        )
        del trainer._conditions  # which are cached
        self.assertEqual(trainer._conditions["bleu_tokenize"], "zh")

    def test_scores_under_other_conditions_are_not_compared(self):
        run = self.train("run", 4, [8.0, 7.0], keep_checkpoint_max=2).run
        self.assertEqual(run.best(), 2)
        other = {"bleu_tokenize": "char"}
        self.train("run", 6, [], schedule="train", **other)
        self.assertEqual(run_dir_lib.all_steps(run.path), [2, 6])
        # Each is better than the one before, and worse than the old ones.
        trainer = self.train("run", 12, [1.0, 2.0, 3.0, 4.0], **other)
        self.assertEqual(trainer.step, 12)
        self.assertEqual(run.best(), 12)
        # The best was the one before, when the last was saved.
        self.assertEqual(run_dir_lib.all_steps(run.path), [10, 12])
        # Without that change, they are compared: this one is not better.
        self.assertEqual(self.train("run", 20, [7.0]).step, 12)

    def test_the_end_is_marked_after_the_average(self):
        trainer = self.train("ended", 4, [1.0, 2.0])
        trainer.run.write_flags("--train_steps=0\n")
        self.assertIn("4 of", trainer.run.unfinished())
        with (
            mock.patch.object(trainer_lib.Trainer, "average") as average,
            self.assertRaises(KeyboardInterrupt),
        ):
            average.side_effect = KeyboardInterrupt
            trainer.end()
        self.assertIn("4 of", trainer.run.unfinished())
        trainer.end()
        self.assertEqual(trainer.run.unfinished(), "")
        # Early stopping is an end as well.
        trainer = self.train("ended", 20, [1.0, 1.0])
        self.assertEqual(trainer.step, 8)
        self.assertIn("8 of", trainer.run.unfinished())
        trainer.end()
        self.assertEqual(trainer.run.unfinished(), "")

    def test_a_run_with_more_steps_than_asked_for_is_scored(self):
        self.trainer("more", 3, schedule="train").train()
        self.train("more", 2, [1.0], local_eval_frequency=2)  # is scored

    def test_an_average_is_scored_alone(self):
        whole = self.trainer("whole", 4, "average_checkpoints=2")
        whole.train()
        average = whole.average()
        event = whole.run.read_metrics()[-1]
        self.assertEqual((event["step"], event["averaged"]), (4, 2))
        metrics = whole.run.path / "metrics.jsonl"
        before = metrics.read_bytes()
        for path in whole.run.path.glob("ckpt-*"):
            path.unlink()
        run_setup.check_same_run(
            whole.run, whole.hparams, self.problem, self.data_dir
        )
        trainer = self.trainer_of(whole.run, whole.hparams)
        self.assertEqual(metrics.read_bytes(), before)
        self.assertEqual(checkpoints.resolve(whole.run.path), average)
        found = trainer.score(average)
        for name in ("step", "averaged", "loss"):
            self.assertEqual(found[name], event[name], name)
        # Scoring reads nothing else, and leaves damaged checkpoints alone.
        newest = whole.run.path / "ckpt-4.npz"
        newest.write_bytes(b"damaged")
        config = {"schedule": "evaluate"}
        trainer = self.trainer_of(whole.run, whole.hparams, **config)
        self.assertEqual(trainer.score(average)["loss"], event["loss"])
        self.assertTrue(newest.exists())

    def test_time_of_an_evaluation_makes_no_checkpoint_due(self):
        clock = mock.Mock(monotonic=mock.Mock(return_value=0.0))

        def evaluate(trainer):
            clock.monotonic.return_value += 90.0
            return {"loss": 1.0, "bleu": 1.0}

        trainer = self.trainer(
            "timed", 5, keep_checkpoint_max=9, save_checkpoints_secs=60
        )
        with (
            mock.patch.object(trainer_lib, "time", clock),
            mock.patch.object(trainer_lib.Trainer, "evaluate", evaluate),
        ):
            trainer.train()
        self.assertEqual(run_dir_lib.all_steps(trainer.run.path), [2, 4, 5])

    def test_only_an_end_is_told_as_one(self):
        self.train("patient", 6, [3.0, 1.0, 9.0], eval_early_stopping_steps=9)
        config = {"eval_early_stopping_steps": 2}
        with self.assertLogs("relpos_tf") as logs:
            self.train("patient", 8, [10.0], **config)
            self.assertNotIn("Stopping", str(logs.output))
            self.assertEqual(
                self.train("patient", 12, [1.0], **config).step, 10
            )
        self.assertEqual(str(logs.output).count("Stopping: no better"), 1)

    def test_an_average_of_fewer_checkpoints_is_told(self):
        config = {"schedule": "train", "local_eval_frequency": 1}
        for field, expected in (
            ("average_checkpoints", "3 of 5"),
            ("average_epochs", "0 of 5"),
        ):
            trainer = self.trainer(field, 3, f"{field}=5", **config)
            trainer.train()
            with self.assertLogs("relpos_tf", "WARNING") as logs:
                trainer.average()
            self.assertIn(f"Checkpoints to average: {expected}", logs.output[0])
