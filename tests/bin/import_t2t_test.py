"""The import command: its files, its messages, and the commands after it."""

import numpy as np

import relpos_tf
from relpos_tf.bin import import_t2t
from relpos_tf.bin import trainer
from relpos_tf.decoding import loading
from tests import folders
from tests import t2t_checkpoint
from tests.bin import calls

VOCAB = t2t_checkpoint.subtokens(59)
TEXT = ("a dog and a cat", "der hund", "zwei katzen laufen")


class ImportT2tTest(folders.TestCase):
    def setUp(self):
        super().setUp()
        self.t2t_dir = self.folder / "t2t"
        self.run_dir = self.folder / "runs" / "mine"

    def write_model(self, vocab=VOCAB, extra=False, **overrides):
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

    def write_vocabulary(self, name, vocab=VOCAB):
        return self.write(name, *(f"'{piece}'" for piece in vocab))

    def test_one_command_and_the_run_translates(self):
        # The rate has no effect with its schedule.
        self.write_model(extra=True, learning_rate=0.05)
        code, out, err = self.execute()
        self.assertEqual((code, out), (0, b""))
        lines = err.splitlines()
        self.assertRegex(lines[0], "ckpt-250000: 88 variables.*183 others")
        self.assertEndsWith(
            lines[2],
            "trainer --problem=... --hparams_set=transformer_relative_tiny_t2t "
            "--hparams=hidden_size=32,filter_size=64,max_relative_position=4,"
            "use_target_space_embedding=False "
            f"--warm_start_from={self.run_dir}",
        )
        self.assertEndsWith(lines[4], f"decoder --output_dir={self.run_dir}")
        tokens = loading.load_tokenizer(self.run_dir)
        self.assertEqual(tokens.pieces(), VOCAB)
        texts = relpos_tf.Translator.load(self.run_dir).translate(
            list(TEXT), extra_length=3
        )
        self.assertLen(set(texts), 3)

    def test_without_a_vocabulary_the_model_is_imported_and_a_warning_given(
        self,
    ):
        self.write_model(vocab=None, optimizer="adafactor")
        code, _, err = self.execute()
        self.assertEqual(code, 0)
        self.assertIn("warning: No vocabulary", err)
        self.assertIn("warning: The optimizer adafactor is not supported", err)
        self.assertNotIn("Translate with", err)
        relpos_tf.load_model(self.run_dir)
        path = self.write_vocabulary("elsewhere/v.subwords")
        code, _, err = self.execute(f"--vocab_file={path}")
        self.assertEqual(code, 0)
        self.assertNotIn("warning: No vocabulary", err)
        self.assertEqual(loading.load_tokenizer(self.run_dir).pieces(), VOCAB)

    def test_vocabulary_is_found_in_the_data_dir_of_its_flags(self):
        self.write_model(vocab=None)
        self.write_vocabulary("t2t_data/vocab.translate_x.59.subwords")
        self.write_vocabulary("t2t_data/vocab.other.9.subwords", VOCAB[:-1])
        data_dir = f"--data_dir={self.folder / 't2t_data'}"
        lines = "--alsologtostderr", data_dir, "--v=0"
        self.write("t2t/flags.txt", "--data_dir=~nobody-of-this-name")
        self.write("t2t/flags_t2t.txt", *lines)
        self.assertEqual(self.execute()[0], 0)
        self.assertEqual(loading.load_tokenizer(self.run_dir).pieces(), VOCAB)

    def test_rows_that_the_vocabulary_was_rounded_up_to_spell_nothing(self):
        self.write_model(vocab=VOCAB[:-2] + VOCAB[-1:], vocab_divisor=59)
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
        self.write_model(vocab=VOCAB[:-1])
        text = "Expected a vocabulary of 59 subwords"
        path = self.t2t_dir / t2t_checkpoint.VOCABULARY
        self.assert_fails(1, text, f"--vocab_file={path}")
        code, _, err = self.execute()
        self.assertEqual(code, 0)
        self.assertIn(f"warning: {text}", err)
        self.assertIn("warning: No vocabulary", err)

    def test_trainer_goes_on_from_the_imported_run(self):
        self.write_model(num_hidden_layers=1)
        self.assertEqual(self.execute()[0], 0)
        # tensor2tensor's tokenizer removes the blanks around a line.
        for side, line in (("en", "a dog"), ("de", "ein hund")):
            self.write(f"text.{side}", *[f" {line} "] * 20)
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
        self.assertIn("Resuming from", err)
