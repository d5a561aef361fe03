"""A run whose target language has no blanks between words, and its scores."""

import pathlib
import random
from unittest import mock

import tensorflow as tf
from absl.testing import absltest

from relpos_tf.bin import trainer
from relpos_tf.decoding import translator
from relpos_tf.models import checkpoints
from relpos_tf.models import run_dir
from relpos_tf.training import evaluation
from relpos_tf.training import metrics
from relpos_tf.training import schedules
from relpos_tf.utils import text
from tests import folders
from tests.bin import calls

DIGITS = "零一二三四五六七八九"
# So that training takes seconds.
SMALL = "hidden_size=32,filter_size=64,num_heads=2,num_hidden_layers=1,"
RECORDS = ("metrics.jsonl", "events.")  # which a score is added to


class ChineseRunTest(absltest.TestCase):
    @classmethod
    def setUpClass(cls):
        """Trains, and ruins the model in the last step."""
        super().setUpClass()
        cls.folder = pathlib.Path(cls.create_tempdir(cls()).full_path)
        cls.run_dir = run_dir.RunDir(cls.folder / "run")
        draws = random.Random(1)
        for split, size in (("train", 100), ("dev", 4)):
            numbers = [str(draws.randrange(10**4)) for _ in range(size)]
            words = [
                "".join(DIGITS[int(digit)] for digit in number)
                for number in numbers
            ]
            for end, lines in (
                ("en", [f"today we count {n}" for n in numbers]),
                ("zh", [f"今天我们在学校里数到{w}。" for w in words]),
            ):
                text.write_lines(cls.folder / f"{split}.{end}", lines)
        usual = schedules.learning_rate

        def ruinous(hparams):
            rate = usual(hparams)
            return lambda step: tf.where(step < 8, rate(step), 1000.0)

        with mock.patch.object(schedules, "learning_rate", ruinous):
            code, cls.messages = cls.execute(
                "run",
                f"--hparams={SMALL}batch_size=256,beam_size=1,extra_length=4,"
                "learning_rate_warmup_steps=4,moving_average_decay=0.5",
                "--train_steps=9",
                "--local_eval_frequency=4",
                "--keep_checkpoint_max=1",
                "--eval_early_stopping_metric=bleu",
                "--eval_early_stopping_steps=4",
            )
        if code:
            raise RuntimeError(cls.messages)
        cls.events = {
            event["step"]: event
            for event in cls.run_dir.read_metrics()
            if event["split"] == "dev"
        }

    @classmethod
    def execute(cls, name, *arguments):
        """Runs the command; returns exit code and standard error."""
        fixed = (
            "--problem=translate_files",
            "--vocab_size=320",
            "--hparams_set=transformer_relative_tiny",
            *(
                f"--{split}_{side}={cls.folder}/{split}.{end}"
                for split in ("train", "dev")
                for side, end in (("source", "en"), ("target", "zh"))
            ),
            f"--data_dir={cls.folder / 'data'}",
            f"--output_dir={cls.folder / name}",
        )
        code, _, err = calls.execute(trainer.main, *fixed, *arguments)
        return code, err

    def test_evaluations_choose_by_bleu_of_characters(self):
        self.assertEqual([*self.events], [4, 8, 9])
        for step, event in self.events.items():
            self.assertIn("|tok:zh|", event["bleu_signature"])
            line = rf"dev at step {step}: .*BLEU {event['bleu']:.2f} .*tok:zh"
            self.assertRegex(self.messages, line)
            # No line is right as a whole, so that BLEU of tok:13a would be 0
            # throughout, and end the run at step 8.
            self.assertEqual(event["exact_match"], 0.0)
        self.assertGreater(self.events[8]["bleu"], self.events[4]["bleu"])
        self.assertNotIn("Stopping", self.messages)
        self.assertNotIn("--bleu_tokenize", self.messages)
        best = max(self.events, key=lambda step: self.events[step]["bleu"])
        self.assertLess(best, 9)
        self.assertEqual(run_dir.all_steps(self.run_dir.path), [best, 9])

    def files(self):
        return {
            name: checksum
            for name, checksum in folders.checksums(self.run_dir.path).items()
            if not name.startswith(RECORDS)
        }

    def test_other_flags_change_neither_the_run_nor_the_scored_weights(self):
        before, scored, tokenizers = self.files(), [], []
        self.assertIn("hparams.json", before)

        def forced(model, dataset):
            del dataset
            scored.append({v.path: v.numpy() for v in model.variables})
            return {"loss": 1.0, "teacher_forced_accuracy": 0.5}

        def translate(own, lines, progress):
            return [mock.Mock(texts=["a b"])] * len(lines)

        def score(hypotheses, references, tokenize, bleu=metrics.corpus_bleu):
            tokenizers.append(tokenize)
            return bleu(["a b"], ["a c"])

        with (
            mock.patch.object(evaluation, "teacher_forced", forced),
            mock.patch.object(translator.Translator, "translations", translate),
            mock.patch.object(metrics, "corpus_bleu", score),
        ):
            for more in ((), ("--bleu_tokenize=char",)):
                code, err = self.execute(
                    "run",
                    "--schedule=evaluate",
                    f"--hparams={SMALL}batch_size=64,beam_size=3,alpha=1.3",
                    *more,
                )
                self.assertEqual(code, 0, err)
        self.assertEqual(tokenizers, ["zh", "char"])
        self.assertIn("beam_size was 1 in this run so far and is now 3", err)
        self.assertEqual(self.files(), before)
        weights, _ = scored
        saved = checkpoints.read(self.run_dir.path / "ckpt-9")
        self.assertGreater(len(weights), 10)
        for name, value in weights.items():
            averages = saved[f"moving_average/{name}"]
            self.assertEqual(value.tolist(), averages.tolist(), name)
            raw = saved[f"model/{name}"]
            self.assertNotEqual(value.tolist(), raw.tolist(), name)

    def test_a_mistyped_directory_is_refused_and_not_made(self):
        code, err = self.execute("rum", "--schedule=evaluate")
        self.assertEqual(code, 1)
        self.assertIn(f"{self.folder / 'rum'}, which does not exist", err)
        self.assertEqual(err.count("\n"), 1)
        self.assertFalse((self.folder / "rum").exists())
