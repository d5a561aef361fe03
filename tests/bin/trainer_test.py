"""Messages of the trainer when it cannot continue; nothing is trained."""

import os
import pathlib
import shlex
import signal
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf.bin import trainer
from relpos_tf.data import pieces
from tests import testing
from tests.bin import calls
from tests.campaigns import kill

testing.use_two_cpus()


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


class TrainerTest(parameterized.TestCase):
    def test_too_little_memory_names_hparams_to_lower_that_there_are(self):
        code, err = replace_training(
            MemoryError, "--hparams=batch_size=600,max_length=70"
        )
        self.assertEqual(code, 1)
        self.assertStartsWith(err, "relpos-trainer: Out of memory. Lower the")
        self.assertEqual(err.count("\n"), 1)
        for flag in ("--hparams=batch_size=300", "--hparams=max_length=35"):
            self.assertIn(flag, err)
            self.assertEqual(replace_training([7], flag), (7, ""))

    @parameterized.parameters(
        (KeyboardInterrupt, 130, "interrupted"), (terminate, 143, "terminated")
    )
    def test_stopped_before_anything_is_saved(self, effect, code, word):
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGTERM, before)
        found, err = replace_training(effect)
        self.assertEqual(found, code)
        self.assertRegex(err, r"\ARun again with:\n  \S[^\n]+\n[^\n]+\n\Z")
        self.assertEndsWith(err, f"\nrelpos-trainer: {word}.\n")

    @parameterized.parameters(
        ("file/in/a/file", "output_dir: .*is a file"),
        ("latin-\udce9", "output_dir: .*in UTF-8"),
    )
    def test_folders_that_cannot_be_written_are_refused_before_preparation(
        self, name, message
    ):
        folder = pathlib.Path(self.create_tempdir().full_path)
        (folder / "file").touch()
        code, _, err = calls.execute(
            trainer.main,
            f"--output_dir={folder / name}",
            f"--data_dir={folder}/data",
        )
        self.assertEqual(code, 2)
        self.assertRegex(err, f"relpos-trainer: --{message}")
        self.assertEqual(os.listdir(folder), ["file"])


class NothingIsLeftTest(parameterized.TestCase):
    """One clear line, an exit code, and no data or run half-written."""

    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)
        self.own = [
            f"--data_dir={self.folder / 'data'}",
            f"--output_dir={self.folder / 'run'}",
        ]

    def refuse(self, *arguments):
        """Returns the message of a failed command."""
        code, out, err = calls.execute(trainer.main, *self.own, *arguments)
        self.assertEqual((code, out), (1, b""), err)
        for name in ("run", "data"):
            self.assertFalse((self.folder / name).exists(), name)
        return err

    @parameterized.parameters(
        ("no.en", "a.de", r"no\.en"),
        ("a.en", "short.de", r"short\.de"),
        ("empty.en", "empty.en", r"empty\.en"),
    )
    def test_unusable_text_is_refused(self, source, target, message):
        for name, text in (
            ("a.en", "one\ntwo\n"),
            ("a.de", "eins\nzwei\n"),
            ("short.de", "eins\n"),
            ("empty.en", ""),
        ):
            (self.folder / name).write_text(text)
        err = self.refuse(
            "--problem=translate_files",
            f"--train_source={self.folder / source}",
            f"--train_target={self.folder / target}",
            f"--dev_source={self.folder / 'a.en'}",
            f"--dev_target={self.folder / 'a.de'}",
        )
        self.assertRegex(err, message)
        self.assertNotIn("Traceback", err)

    def test_terminated_while_data_are_prepared(self):
        with mock.patch.object(pieces, "learn", side_effect=terminate):
            code, _, err = calls.execute(
                trainer.main, "--problem=algorithmic_reverse", *self.own
            )
        self.assertEqual(code, 143, err)
        *_, title, line, last, end = err.split("\n")
        self.assertEqual((title, end), ("Run again with:", ""))
        self.assertNotEmpty(shlex.split(line))
        self.assertEqual(last, "relpos-trainer: terminated.")
        self.assertEmpty(kill.halves(self.folder))


if __name__ == "__main__":
    absltest.main()
