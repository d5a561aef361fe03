"""What the trainer says when it cannot go on; it does not train here."""

import contextlib
import io
import os
import pathlib
import re
import signal
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf.bin import command
from relpos_tf.bin import trainer

OWN_TEXT = " ".join(
    f"--{split}_{side}={__file__}"
    for split in ("train", "dev")
    for side in ("source", "target")
)


def execute(effect, *arguments):
    """Runs the command with `effect` in place of training.

    Returns:
        (exit code, standard error).
    """
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        with mock.patch.object(trainer, "train", side_effect=effect):
            code = command.execute(trainer.main, arguments)
    return code, err.getvalue()


def terminate(*arguments):
    del arguments
    signal.raise_signal(signal.SIGTERM)


class TrainerTest(parameterized.TestCase):
    def test_too_little_memory_names_hparams_to_lower_that_there_are(self):
        code, err = execute(
            MemoryError, "--hparams=batch_size=600,max_length=70"
        )
        self.assertEqual(code, 1)
        self.assertStartsWith(err, "relpos-trainer: Out of memory. Lower the")
        self.assertEqual(err.count("\n"), 1)
        for flag in ("--hparams=batch_size=300", "--hparams=max_length=35"):
            self.assertIn(flag, err)
            self.assertEqual(execute([7], flag), (7, ""))

    @parameterized.parameters(
        (KeyboardInterrupt, 130, "interrupted"), (terminate, 143, "terminated")
    )
    def test_stopped_before_anything_is_saved(self, effect, code, word):
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGTERM, before)
        found, err = execute(effect)
        self.assertEqual(found, code)
        self.assertRegex(err, r"\ARun again with:\n  \S[^\n]+\n[^\n]+\n\Z")
        self.assertEndsWith(err, f"\nrelpos-trainer: {word}.\n")

    @parameterized.parameters(
        "--vocab_size=3000000000",
        "--vocab_size=0",
        "--train_steps=3000000000",
        "--eval_steps=99999999999999999999",
        "--keep_checkpoint_max=3000000000",
        "--random_seed=3000000000",
        "--random_seed=-1",
        "--num_logical_cpus=1000000",
        "--hparams=vocab_size=3000000000",
        "--hparams=extra_length=2147483647",
    )
    def test_numbers_that_mean_nothing_end_before_training(self, flag):
        code, err = execute(ZeroDivisionError, flag)
        self.assertEqual(code, 2)
        name, _, value = flag.rpartition("=")
        self.assertIn(name.lstrip("-").rpartition("=")[2], err)
        self.assertIn(value, err)
        self.assertEqual(err.count("\n"), 1)

    @parameterized.parameters("--hparams_set=x", "--problem=x", "--usr_dir=x/y")
    def test_bad_names_end_before_training(self, flag):
        code, err = execute(ZeroDivisionError, flag)
        self.assertEqual(code, 2)
        name = re.escape(flag.partition("=")[0])
        self.assertRegex(err, rf"\Arelpos-trainer: {name}: [^\n]+\n\Z")

    @parameterized.parameters(
        ("--eval_early_stopping_metric=blue", "loss.*bleu.*chrf"),
        (
            f"--problem=translate_files {OWN_TEXT} --eval_use_test_set",
            "--eval_use_test_set: translate_files has no test set",
        ),
        (
            "--schedule=train --eval_early_stopping_steps=5",
            "--eval_early_stopping_steps needs evaluations",
        ),
    )
    def test_what_an_evaluation_lacks_is_said_before_training(
        self, arguments, message
    ):
        code, err = execute(ZeroDivisionError, *arguments.split())
        self.assertEqual(code, 2)
        self.assertRegex(err, rf"\Arelpos-trainer: [^\n]*{message}[^\n]*\n\Z")

    @parameterized.parameters(
        ("file/in/a/file", "output_dir: .*not a directory"),
        ("latin-\udce9", "output_dir: .*in UTF-8"),
    )
    def test_a_folder_that_cannot_be_written_is_said_before_data_are_prepared(
        self, name, message
    ):
        folder = pathlib.Path(self.create_tempdir().full_path)
        (folder / "file").touch()
        err = io.StringIO()
        with contextlib.redirect_stderr(err):
            code = command.execute(
                trainer.main,
                [f"--output_dir={folder / name}", f"--data_dir={folder}/data"],
            )
        self.assertEqual(code, 2)
        self.assertRegex(err.getvalue(), f"relpos-trainer: --{message}")
        self.assertEqual(os.listdir(folder), ["file"])

    @parameterized.parameters("-1", "2147483648", "99999999999999999999")
    def test_seed_that_nothing_can_take_is_refused_at_once(self, seed):
        code, err = execute(ZeroDivisionError, f"--random_seed={seed}")
        self.assertEqual(code, 2)
        self.assertRegex(err, r"\Arelpos-trainer: [^\n]*random_seed[^\n]*\n\Z")


if __name__ == "__main__":
    absltest.main()
