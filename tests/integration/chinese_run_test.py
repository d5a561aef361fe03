"""A run whose target language has no blanks between words, and its scores."""

import random

from relpos_tf.bin import trainer
from relpos_tf.models import run_dir
from tests import folders
from tests.bin import calls

DIGITS = "零一二三四五六七八九"
SIDES = ("source", "en"), ("target", "zh")


class ChineseRunTest(folders.TestCase):
    def flags(self):
        """Writes text; returns the flags of a run that takes seconds."""
        draws = random.Random(1)
        for split, size in (("train", 100), ("dev", 4)):
            numbers = [str(draws.randrange(10**4)) for _ in range(size)]
            self.write(f"{split}.en", *(f"today we count {n}" for n in numbers))
            words = ("".join(DIGITS[int(d)] for d in n) for n in numbers)
            self.write(
                f"{split}.zh", *(f"今天我们在学校里数到{w}。" for w in words)
            )
            for side, end in SIDES:
                yield f"--{split}_{side}={self.folder}/{split}.{end}"
        yield from (
            "--problem=translate_files",
            "--vocab_size=320",
            "--hparams_set=transformer_relative_tiny",
            "--hparams=hidden_size=32,filter_size=64,num_heads=2,"
            "num_hidden_layers=1,batch_size=256,beam_size=1,extra_length=4,"
            "learning_rate_warmup_steps=4",
            "--train_steps=8",
            "--local_eval_frequency=4",
            f"--data_dir={self.folder}/data",
            f"--output_dir={self.folder}/run",
        )

    def test_evaluations_have_bleu_of_characters(self):
        code, _, messages = calls.execute(trainer.main, *self.flags())
        self.assertEqual(code, 0, messages)
        scores = {}
        for event in run_dir.RunDir(self.folder / "run").read_metrics():
            if event["split"] == "dev":
                scores[event["step"]] = event["bleu"]
                self.assertIn("|tok:zh|", event["bleu_signature"])
                line = rf"{event['step']}: .*BLEU {event['bleu']:.2f} .*tok:zh"
                self.assertRegex(messages, f"dev at step {line}")
                # No line is right as a whole: BLEU of tok:13a would be 0.
                self.assertEqual(event["exact_match"], 0.0)
        self.assertEqual([*scores], [4, 8])
        self.assertGreater(scores[8], scores[4])
        self.assertNotIn("--bleu_tokenize", messages)
