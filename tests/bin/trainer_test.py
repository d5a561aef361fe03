"""Messages of the trainer when it cannot continue; nothing is trained."""

import hashlib
import os
import shlex
import shutil
import signal
from unittest import mock

import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.bin import trainer
from relpos_tf.data import pieces
from relpos_tf.training import run_setup
from relpos_tf.training import trainer as trainer_lib
from tests import folders
from tests import tiny_run
from tests.bin import calls
from tests.campaigns import kill

# Those of `tiny_run`.
SIZES = (
    "hidden_size=16,filter_size=29,num_heads=2,num_hidden_layers=1,pos=timing,"
    "max_relative_position=3,heads_share_relative_embedding=false,"
    "shared_embedding_and_softmax_weights=false"
)
OWN = "--problem=translate_files --dev_source=a --dev_target=a"


def replace_training(effect, *arguments):
    """Runs the command with `effect` in place of training.

    Returns:
        (exit code, standard error).
    """
    with mock.patch.object(trainer, "train", side_effect=effect):
        code, _, err = calls.execute(trainer.main, *arguments)
    return code, err


def terminate(*arguments):
    del arguments
    signal.raise_signal(signal.SIGTERM)


class TrainerTest(folders.TestCase):
    def test_check_env_names_versions_and_devices_that_work(self):
        code, out, err = calls.execute(trainer.main, "--check_env")
        self.assertEqual((code, err), (0, ""))
        self.assertIn(f"\ntensorflow: {tf.__version__}\n", out.decode())
        self.assertIn("/device:CPU:0: works\n", out.decode())
        self.assertIn("\nGPUs used: 0\nbfloat16: ", out.decode())

    @parameterized.parameters(
        (KeyboardInterrupt, 130, "SIGINT"), (terminate, 143, "SIGTERM")
    )
    def test_stop_says_what_is_saved_and_what_goes_on(self, effect, code, word):
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGTERM, before)
        for step in (0, 12):
            if step:
                self.write(f"ckpt-{step}.npz")
            found, err = replace_training(effect, f"--output_dir={self.folder}")
            self.assertEqual(found, code)
            said, again, end = err.split("\n  ")[0], *err.splitlines()[1:]
            kept = f"saved up to step {step}" if step else "no step is saved"
            self.assertIn(f"Stopped; {kept}. Run again with:", said)
            self.assertNotEmpty(shlex.split(again))
            self.assertEqual(end, f"relpos-trainer: stopped by {word}.")
        evaluate = "--schedule=evaluate", f"--output_dir={self.folder}"
        _, err = replace_training(effect, *evaluate)
        self.assertIn("Stopped; no score is saved. Run again with:", err)

    @parameterized.parameters(
        ("--output_dir=a/b", "--output_dir: .*is a file"),
        ("--output_dir=latin-\udce9", "--output_dir: .*in UTF-8"),
        (f"{OWN} --train_source=no --train_target=a", "no: no such file"),
        (f"{OWN} --train_source=a --train_target=b", "a has 2 .*b has 1 "),
        (f"{OWN} --train_source=blank --train_target=blank", "blank"),
    )
    def test_what_it_cannot_read_or_write_is_refused_first(self, flags, words):
        self.enter_folder()
        for name, lines in (("a", "xy"), ("b", "x"), ("blank", "")):
            self.write(name, *lines)
        code, out, err = calls.execute(trainer.main, *flags.split())
        self.assertIn(code, (1, 2))
        self.assertEqual(out, b"")
        self.assertRegex(err, rf"(\A|\n)relpos-trainer: .*{words}.*\n\Z")
        self.assertCountEqual(os.listdir(), ["a", "b", "blank"])

    def test_terminated_while_data_are_prepared(self):
        with mock.patch.object(pieces, "learn", side_effect=terminate):
            code, _, err = calls.execute(
                trainer.main,
                "--problem=algorithmic_reverse",
                f"--data_dir={self.folder / 'data'}",
                f"--output_dir={self.folder / 'run'}",
            )
        self.assertEqual(code, 143, err)
        *_, title, line, last, end = err.split("\n")
        self.assertEqual(end, "")
        self.assertEndsWith(title, "Run again with:")
        self.assertNotEmpty(shlex.split(line))
        self.assertEqual(last, "relpos-trainer: stopped by SIGTERM.")
        self.assertEmpty(kill.halves(self.folder))


class VocabularyTest(folders.TestCase):
    """A trained run goes on with its own tokenizer; nothing is trained."""

    def setUp(self):
        super().setUp()
        self.base, self.run_dir = self.folder / "base", self.folder / "run"
        self.data_dir = self.folder / "data"
        shutil.copytree(tiny_run.path(), self.base)

    def train(self, output_dir="run", sizes=SIZES, *flags):
        """Runs the command; returns the exit code and standard error."""
        with (
            mock.patch.object(trainer_lib, "Trainer") as made,
            mock.patch.object(run_setup, "describe"),
        ):
            made.return_value.average.return_value = None
            code, _, err = calls.execute(
                trainer.main,
                "--problem=algorithmic_reverse",
                f"--data_dir={self.data_dir}",
                f"--output_dir={self.folder / output_dir}",
                f"--warm_start_from={self.base}",
                f"--hparams={sizes}",
                *flags,
            )
        return code, err

    @parameterized.parameters(
        ([SIZES, "--random_seed=8"], "random_seed .*run is trained with 9. "),
        ([f"{SIZES},label_smoothing=0.5"], "label_smoothing` has no effect"),
        ([f"{SIZES},max_length=99"], "max_length` has no effect"),
        ([f"{SIZES},train_steps=8"], "effect beside --train_steps"),
        ([f"{SIZES},alpha=2"], ""),
    )
    def test_a_run_keeps_the_settings_it_was_trained_with(self, given, words):
        once = "--train_steps=7", "--generate_data"
        self.train("run", SIZES, "--random_seed=9", *once)
        (self.run_dir / "ckpt-7.npz").touch()
        code, err = self.train("run", *given, *once)
        self.assertEqual(code, 2 if words else 0, err)
        self.assertRegex(err, words or "alpha was")
        flags = (self.run_dir / "flags.txt").read_text("utf-8")
        self.assertIn("--random_seed=9\n", flags)
        self.assertIn("--nogenerate_data\n", flags)

    @parameterized.parameters(
        *("max_length=9", "average_checkpoints=2", "train_steps=9"),
        "activation_dtype=bfloat16",
    )
    def test_an_evaluation_is_that_of_the_training(self, change):
        code, _, err = calls.execute(
            trainer.main,
            *("--problem=algorithmic_reverse", "--schedule=evaluate"),
            *(f"--data_dir={self.data_dir}", f"--output_dir={self.base}"),
            f"--hparams={SIZES},{change}",
        )
        self.assertEqual(code, 2, err)
        self.assertIn(f"`{change.partition('=')[0]}` has no effect: ", err)

    def assert_goes_on(self):
        """Checks that the run is accepted, and which data are prepared."""
        self.assertEqual(self.train()[0], 0)
        own = (self.base.parent / "run/tokenizer.model").read_bytes()
        checksum = hashlib.sha256(own).hexdigest()[:8]
        self.assertEqual(
            os.listdir(self.data_dir), [f"algorithmic_reverse-{checksum}"]
        )

    def test_a_trained_run_needs_no_longer_the_one_that_it_started_from(self):
        self.assert_goes_on()
        tokenizer = (self.run_dir / "tokenizer.model").read_bytes()
        self.assertEqual(
            tokenizer, (self.base / "tokenizer.model").read_bytes()
        )
        (self.run_dir / "ckpt-7.npz").touch()
        another = self.base.rename(self.folder / "another")
        with mock.patch.object(self, "base", another):
            code, err = self.train()
        self.assertEqual(code, 2)
        self.assertRegex(err, "no effect: .*run is trained with .*/base. Leave")
        shutil.rmtree(another)
        self.assert_goes_on()
        shutil.rmtree(self.data_dir)  # as on another machine
        self.assert_goes_on()
        self.base.mkdir()
        self.run_dir.joinpath("tokenizer.model").write_bytes(tokenizer[:-9])
        shutil.rmtree(self.data_dir)
        code, err = self.train()
        self.assertEqual(code, 1)
        self.assertRegex(err, "run/tokenizer.model.*damaged")
        self.assertFalse(self.data_dir.exists())

    def test_a_start_of_another_model_is_refused_before_data_are_made(self):
        for sizes, words in (
            (SIZES.replace("=16", "=32"), r"hidden_size=16 \(now 32\)"),
            # It has the same weights.
            (SIZES.replace("=timing", "=none"), r"pos=timing \(now none\)"),
        ):
            code, err = self.train("new", sizes)
            self.assertEqual(code, 2)
            self.assertRegex(err, rf"_start_from: .*base .*{words}\. Give its ")
            self.assertFalse(self.data_dir.exists())
        code, err = self.train("new", f"{SIZES},batch_size=500,max_length=9")
        self.assertEqual(code, 0, err)

    def test_a_start_without_its_tokenizer_is_refused(self):
        self.base.joinpath("tokenizer.model").unlink()
        code, err = self.train("new")
        self.assertEqual(code, 1)
        self.assertRegex(err, "base/tokenizer.model")
        self.assertFalse(self.data_dir.exists())

    def test_a_start_that_is_not_there_is_refused_before_data_are_made(self):
        shutil.rmtree(self.base)
        code, err = self.train("new")
        self.assertEqual(code, 2)
        self.assertRegex(err, f"Received: {self.base}, which does not exist")
        self.assertFalse(self.data_dir.exists())
