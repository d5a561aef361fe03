"""What the trainer says when it cannot go on; it does not train here."""

import contextlib
import io
import re
import signal
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf.bin import command
from relpos_tf.bin import trainer


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

    @parameterized.parameters("--hparams_set=x", "--problem=x", "--usr_dir=x/y")
    def test_bad_names_end_before_training(self, flag):
        code, err = execute(ZeroDivisionError, flag)
        self.assertEqual(code, 2)
        name = re.escape(flag.partition("=")[0])
        self.assertRegex(err, rf"\Arelpos-trainer: {name}: [^\n]+\n\Z")


if __name__ == "__main__":
    absltest.main()
