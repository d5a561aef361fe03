"""--schedule=evaluate scores a run as it was trained, and changes no file."""

import pathlib
from unittest import mock

from absl.testing import absltest

from relpos_tf.bin import trainer
from relpos_tf.models import checkpoints
from relpos_tf.training import evaluation
from relpos_tf.training import metrics
from tests import folders
from tests.bin import calls

SIZES = "hidden_size=8,filter_size=12,num_heads=2,num_hidden_layers=1,"
RECORDS = ("metrics.jsonl", "events.")  # which a score is added to


class EvaluateTest(absltest.TestCase):
    @classmethod
    def setUpClass(cls):
        """Trains a run with moving averages for two updates."""
        super().setUpClass()
        cls.folder = pathlib.Path(cls.create_tempdir(cls()).full_path)
        cls.run_dir = cls.folder / "run"
        for side, line in (("en", "we count to"), ("zh", "今天我们数到")):
            text = "".join(f"{line} {i}\n" for i in range(40))
            (cls.folder / f"text.{side}").write_text(text, "utf-8")
        cls.execute(
            "run",
            "--schedule=train",
            "--train_steps=2",
            f"--hparams={SIZES}batch_size=128,moving_average_decay=0.5",
        )

    @classmethod
    def execute(cls, name, *arguments):
        """Runs the command; returns exit code and standard error."""
        fixed = (
            "--problem=translate_files",
            "--vocab_size=310",
            *(
                f"--{split}_{name}={cls.folder}/text.{side}"
                for split in ("train", "dev")
                for name, side in (("source", "en"), ("target", "zh"))
            ),
            f"--data_dir={cls.folder / 'data'}",
            f"--output_dir={cls.folder / name}",
        )
        code, _, err = calls.execute(trainer.main, *fixed, *arguments)
        return code, err

    def files(self):
        return {
            name: checksum
            for name, checksum in folders.checksums(self.run_dir).items()
            if not name.startswith(RECORDS)
        }

    def test_other_flags_change_neither_the_run_nor_the_scored_weights(self):
        before, scored, tokenizers = self.files(), [], []
        self.assertIn("hparams.json", before)

        def forced(model, dataset):
            del dataset
            scored.append({v.path: v.numpy() for v in model.variables})
            return {"loss": 1.0, "teacher_forced_accuracy": 0.5}

        def translate(translator, *args, **kwargs):
            del translator, kwargs
            tokenizers.append(args[-1])
            return metrics.corpus_bleu(["a b"], ["a c"]), []

        with (
            mock.patch.object(evaluation, "teacher_forced", forced),
            mock.patch.object(evaluation, "translate_and_score", translate),
        ):
            for more in ((), ("--bleu_tokenize=char",)):
                code, err = self.execute(
                    "run",
                    "--schedule=evaluate",
                    f"--hparams={SIZES}batch_size=64,beam_size=3,alpha=1.3",
                    *more,
                )
                self.assertEqual(code, 0, err)
        self.assertEqual(tokenizers, ["zh", "char"])
        self.assertIn("beam_size was 4 in this run so far and is now 3", err)
        self.assertEqual(self.files(), before)
        weights, _ = scored
        saved = checkpoints.read(self.run_dir / "ckpt-2")
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
