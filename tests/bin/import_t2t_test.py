"""The import command: its files, its messages, and the commands after it."""

import pathlib

import numpy as np
from absl.testing import absltest

import relpos_tf
from relpos_tf.bin import export
from relpos_tf.bin import import_t2t
from relpos_tf.bin import trainer
from relpos_tf.decoding import loading
from tests import t2t_checkpoint
from tests.bin import calls

VOCAB = t2t_checkpoint.subtokens(59)
TEXT = ("a dog and a cat", "der hund", "zwei katzen laufen")


class ImportT2tTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)
        self.t2t_dir = self.folder / "t2t"
        self.run_dir = self.folder / "runs" / "mine"

    def write(self, vocab=VOCAB, extra=False, **overrides):
        hparams = t2t_checkpoint.hparams_dict(**overrides)
        variables = t2t_checkpoint.random_variables(hparams, len(VOCAB), 5)
        t2t_checkpoint.write(
            self.t2t_dir, variables, hparams, vocab=vocab, extra=extra
        )

    def execute(self, *more):
        return calls.execute(
            import_t2t.main,
            f"--t2t_dir={self.t2t_dir}",
            f"--output_dir={self.run_dir}",
            *more,
        )

    def write_vocabulary(self, path, vocab=VOCAB):
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(f"'{piece}'\n" for piece in vocab))
        return path

    def test_one_command_and_the_run_translates(self):
        self.write(extra=True)
        code, out, err = self.execute()
        self.assertEqual((code, out), (0, b""))
        lines = err.splitlines()
        self.assertEqual(
            lines[0],
            f"Read {self.t2t_dir}/model.ckpt-250000: 88 variables of the "
            "model; ignored 183 others. Both are listed in "
            f"{self.run_dir}/t2t_import.json.",
        )
        self.assertEndsWith(
            lines[1],
            "trainer --problem=... --hparams_set=transformer_relative_tiny_t2t "
            "--hparams=hidden_size=32,filter_size=64,max_relative_position=4,"
            "use_target_space_embedding=False "
            f"--warm_start_from={self.run_dir}",
        )
        self.assertEndsWith(lines[2], f"decoder --output_dir={self.run_dir}")
        tokens = loading.load_tokenizer(self.run_dir)
        self.assertEqual(tokens.pieces(), VOCAB)
        texts = relpos_tf.Translator.load(self.run_dir).translate(
            list(TEXT), extra_length=3
        )
        self.assertLen(set(texts), 3)

    def test_without_a_vocabulary_the_model_is_imported_and_a_warning_given(
        self,
    ):
        self.write(vocab=None)
        code, _, err = self.execute()
        self.assertEqual(code, 0)
        self.assertIn("warning: No vocabulary", err)
        self.assertNotIn("Translate with", err)
        relpos_tf.load_model(self.run_dir)
        path = self.write_vocabulary(self.folder / "elsewhere" / "v.subwords")
        code, _, err = self.execute(f"--vocab_file={path}")
        self.assertEqual(code, 0)
        self.assertNotIn("warning: ", err)
        self.assertEqual(loading.load_tokenizer(self.run_dir).pieces(), VOCAB)

    def test_vocabulary_is_found_in_the_data_dir_of_its_flags(self):
        self.write(vocab=None)
        data_dir = self.folder / "t2t_data"
        self.write_vocabulary(data_dir / "vocab.translate_x.59.subwords")
        self.write_vocabulary(data_dir / "vocab.other.9.subwords", VOCAB[:-1])
        (self.t2t_dir / "flags.txt").write_text(
            f"--alsologtostderr\n--data_dir={data_dir}\n--v=0\n"
        )
        self.assertEqual(self.execute()[0], 0)
        self.assertEqual(loading.load_tokenizer(self.run_dir).pieces(), VOCAB)

    def test_rows_that_the_vocabulary_was_rounded_up_to_spell_nothing(self):
        self.write(vocab=VOCAB[:-2] + VOCAB[-1:], vocab_divisor=59)
        self.assertEqual(self.execute()[0], 0)
        tokens = loading.load_tokenizer(self.run_dir)
        self.assertEqual(tokens.vocab_size, 59)
        self.assertEqual(tokens.pieces()[-1], "")
        self.assertEqual(tokens.decode([58, 58]), "")

    def assert_fails(self, code, text, *arguments):
        found, out, err = self.execute(*arguments)
        self.assertEqual((found, out), (code, b""))
        self.assertIn(text, err)
        self.assertNotIn("Traceback", err)
        self.assertFalse(self.run_dir.exists())

    def test_vocabulary_of_another_size_is_left_out_or_refused(self):
        self.write(vocab=VOCAB[:-1])
        text = "Expected a vocabulary of 59 subwords"
        path = self.t2t_dir / t2t_checkpoint.VOCABULARY
        self.assert_fails(1, text, f"--vocab_file={path}")
        code, _, err = self.execute()
        self.assertEqual(code, 0)
        self.assertIn(f"warning: {text}", err)
        self.assertIn("warning: No vocabulary", err)

    def test_notes_on_training_are_warnings(self):
        self.write(optimizer="adafactor")
        _, _, err = self.execute()
        self.assertIn("warning: The optimizer adafactor is not supported", err)

    def test_exporter_and_trainer_take_the_imported_run(self):
        self.write(num_hidden_layers=1)
        self.assertEqual(self.execute()[0], 0)
        search = {"beam_size": 2, "extra_length": 3}
        expected = relpos_tf.Translator.load(self.run_dir).translate(
            list(TEXT), return_scores=True, **search
        )
        export_dir = self.folder / "export"
        code, _, err = calls.execute(
            export.main,
            f"--output_dir={self.run_dir}",
            f"--export_dir={export_dir}",
            "--decode_hparams=beam_size=2,extra_length=3",
        )
        self.assertEqual(code, 0, err)
        translated = relpos_tf.Translator.load(export_dir).translate(
            list(TEXT), return_scores=True
        )
        self.assertEqual([t for t, _ in translated], [t for t, _ in expected])
        np.testing.assert_allclose(
            [s for _, s in translated], [s for _, s in expected], atol=1e-4
        )
        # tensor2tensor's tokenizer removes the blanks around a line.
        for side, line in (("en", "a dog"), ("de", "ein hund")):
            (self.folder / f"text.{side}").write_text(f" {line} \n" * 20)
        arguments = [
            "--problem=translate_files",
            f"--data_dir={self.folder / 'data'}",
            "--hparams_set=transformer_relative_tiny_t2t",
            "--hparams=hidden_size=32,filter_size=64,max_relative_position=4,"
            "use_target_space_embedding=false,num_hidden_layers=1",
            "--schedule=train",
            "--train_steps=2",
            f"--warm_start_from={self.run_dir}",
            f"--output_dir={self.folder / 'on'}",
            *(
                f"--{split}_{name}={self.folder / 'text'}.{side}"
                for split in ("train", "dev")
                for name, side in (("source", "en"), ("target", "de"))
            ),
        ]
        code, _, err = calls.execute(trainer.main, *arguments)
        self.assertEqual(code, 0, err)
        self.assertIn(f"The vocabulary is that of {self.run_dir}.", err)
        self.assertIn("Starting from the weights of", err)
        # The learning rate of the first two updates is 0 and 5e-9.
        for old, new in zip(
            relpos_tf.load_model(self.run_dir).variables,
            relpos_tf.load_model(self.folder / "on").variables,
            strict=True,
        ):
            np.testing.assert_allclose(old, new, rtol=0, atol=1e-6)
        tokens = loading.load_tokenizer(self.folder / "on")
        self.assertEqual(tokens.pieces(), VOCAB)
        code, _, err = calls.execute(trainer.main, *arguments)
        self.assertEqual(code, 0, err)
        self.assertIn("Going on from", err)


if __name__ == "__main__":
    absltest.main()
