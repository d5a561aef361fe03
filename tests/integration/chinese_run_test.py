"""A run whose target language has no blanks between words."""

import pathlib
import random
from unittest import mock

import tensorflow as tf
from absl.testing import absltest

from relpos_tf.bin import trainer
from relpos_tf.models import run_dir
from relpos_tf.training import schedules
from relpos_tf.utils import text
from tests.bin import calls

DIGITS = "零一二三四五六七八九"
# So that training takes seconds.
SMALL = (
    "hidden_size=32,filter_size=64,num_heads=2,num_hidden_layers=1,"
    "batch_size=256,beam_size=1,extra_length=4,learning_rate_warmup_steps=4"
)


class ChineseRunTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)
        self.run_dir = run_dir.RunDir(self.folder / "run")
        draws = random.Random(1)
        self.flags = ["--problem=translate_files", "--vocab_size=320"]
        for split, size in (("train", 100), ("dev", 4)):
            numbers = [str(draws.randrange(10**4)) for _ in range(size)]
            words = [
                "".join(DIGITS[int(digit)] for digit in number)
                for number in numbers
            ]
            for side, end, lines in (
                ("source", "en", [f"today we count {n}" for n in numbers]),
                ("target", "zh", [f"今天我们在学校里数到{w}。" for w in words]),
            ):
                path = self.folder / f"{split}.{end}"
                text.write_lines(path, lines)
                self.flags.append(f"--{split}_{side}={path}")

    def train(self):
        """Trains, and ruins the model in the last step; returns the log."""
        usual = schedules.learning_rate

        def ruinous(hparams):
            rate = usual(hparams)
            return lambda step: tf.where(step < 8, rate(step), 1000.0)

        with mock.patch.object(schedules, "learning_rate", ruinous):
            code, _, err = calls.execute(
                trainer.main,
                *self.flags,
                f"--data_dir={self.folder / 'data'}",
                f"--output_dir={self.run_dir.path}",
                "--hparams_set=transformer_relative_tiny",
                f"--hparams={SMALL}",
                "--train_steps=9",
                "--local_eval_frequency=4",
                "--keep_checkpoint_max=1",
                "--eval_early_stopping_metric=bleu",
                "--eval_early_stopping_steps=4",
            )
        self.assertEqual(code, 0, err)
        return err

    def events(self):
        """Returns the evaluations, by step."""
        return {
            event["step"]: event
            for event in self.run_dir.read_metrics()
            if event["split"] == "dev"
        }

    def test_evaluations_choose_by_bleu_of_characters(self):
        err = self.train()
        events = self.events()
        self.assertEqual([*events], [4, 8, 9])
        for step, event in events.items():
            self.assertIn("|tok:zh|", event["bleu_signature"])
            line = rf"dev at step {step}: .*BLEU {event['bleu']:.2f} .*tok:zh"
            self.assertRegex(err, line)
            # No line is right as a whole, so that BLEU of tok:13a would be 0
            # throughout, and end the run at step 8.
            self.assertEqual(event["exact_match"], 0.0)
        self.assertGreater(events[8]["bleu"], events[4]["bleu"])
        self.assertNotIn("Stopping", err)
        self.assertNotIn("--bleu_tokenize", err)
        best = max(events, key=lambda step: events[step]["bleu"])
        self.assertLess(best, 9)
        self.assertEqual(run_dir.all_steps(self.run_dir.path), [best, 9])
