"""The prompt: with a script in place of a person, and at a terminal."""

import builtins
import contextlib
import io
import os
import pathlib
import select
import subprocess
import sys
import time
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf.bin import command
from relpos_tf.decoding import decode_hparam
from relpos_tf.decoding import engines
from relpos_tf.decoding import interactive
from relpos_tf.decoding import translator as translator_lib
from relpos_tf.utils import terminal
from tests import tiny_run
from tests.decoding import translator_test

try:
    import pty
except ImportError:  # Windows has no such terminals.
    pty = None

ROOT = pathlib.Path(__file__).resolve().parents[2]
SECONDS = 60.0


class FixedEngine(translator_test.EchoEngine):
    """Has settings that cannot change, as an export has."""

    def complete(self, decode_hparams):
        if decode_hparams.alpha not in (None, 0.6):
            raise errors.UserError("This export has alpha=0.6.")
        return super().complete(decode_hparams)


class FewEngine(translator_test.EchoEngine):
    """Finds fewer translations than are asked for."""

    def translate(self, items, decode_hparams, n_best):
        found = [engines.Hypothesis("one", -0.5)]
        return [engines.translation(found, n_best, True)]


class InterruptedEngine(translator_test.EchoEngine):
    """Is interrupted in the line "stop"."""

    def translate(self, items, decode_hparams, n_best):
        if items[0].content == "stop":
            raise KeyboardInterrupt
        return super().translate(items, decode_hparams, n_best)


class RunTest(parameterized.TestCase):
    def talk(self, *typed, engine=None, **settings):
        """Returns the output and the messages of a session.

        Args:
            *typed: Lines, or exceptions in their place.
            engine: `engines.Engine`; by default an echo.
            **settings: Of the search.
        """
        engine = engine or translator_test.EchoEngine()
        settings = engine.complete(decode_hparam.DecodeHParams(**settings))
        output = io.TextIOWrapper(io.BytesIO(), "utf-8")
        messages, typed = io.StringIO(), list(typed)

        def read(prompt):
            self.assertEqual(prompt, "")  # the output is no terminal
            line = typed.pop(0) if typed else EOFError
            if isinstance(line, type):
                raise line
            return line

        with (
            mock.patch.object(builtins, "input", read),
            mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO())),
            mock.patch.object(sys, "stdout", output),
            contextlib.redirect_stderr(messages),
        ):
            command.logger()
            interactive.run(translator_lib.Translator(engine=engine), settings)
        self.assertEmpty(typed)
        lines = output.buffer.getvalue().decode().splitlines()
        return lines, messages.getvalue()

    def test_lines_are_translated_and_timed_until_the_end(self):
        output, messages = self.talk("a", "", "  ", "b")
        self.assertEqual(output, ["A", "B"])
        self.assertRegex(
            messages, r"\AType a line .*\n\[\d+\.\d\d s\]\n\[.* s\]\n\Z"
        )

    def test_settings_change_and_are_shown(self):
        output, messages = self.talk(
            "a", ":beam_size=2, return_beams=true", "b", ":return_beams=no", "c"
        )
        self.assertEqual(output, ["A", "  0.0000  B", " -1.0000  B1", "C"])
        self.assertIn("beam_size=2, alpha=0.6, extra_length=7, ", messages)
        _, messages = self.talk(":")
        self.assertIn("beam_size=3, alpha=0.6, extra_length=7, ", messages)

    def test_missing_hypotheses_are_not_shown(self):
        output, _ = self.talk("a", engine=FewEngine(), return_beams=True)
        self.assertEqual(output, [" -0.5000  one"])

    @parameterized.parameters(
        (":alpha=-1", "`alpha` must be at least 0"),
        (":beam_siez=3", "Did you mean beam_size?"),
        (":-)", "Expected name=value"),
        (":alpha=1", "This export has alpha=0.6."),
        ("long line", "Line 1 of 10 ids does not fit"),
    )
    def test_mistakes_are_named_and_change_nothing(self, typed, message):
        output, messages = self.talk(
            "a", typed, "b", engine=FixedEngine(memory=5)
        )
        self.assertIn("error: ", messages)
        self.assertIn(message, messages)
        self.assertEqual(output, ["A", "B"])

    def test_interrupts_drop_a_line_and_no_more(self):
        press = KeyboardInterrupt
        output, _ = self.talk(
            press, "stop", "a", press, press, "b", engine=InterruptedEngine()
        )
        self.assertEqual(output, ["A", "B"])


# The decoder, with a terminal that sends it Ctrl-C.
CHILD = """
import fcntl, signal, sys, termios
# A shell that runs the tests in the background has SIGINT ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from relpos_tf.bin import decoder
sys.argv[0] = "decoder.py"
decoder.run()
"""


@absltest.skipIf(pty is None, "There are no pseudo-terminals here.")
class TerminalTest(absltest.TestCase):
    """Runs the decoder in a terminal of its own."""

    def setUp(self):
        super().setUp()
        self.seen = b""
        self.screen, inside = pty.openpty()
        self.addCleanup(os.close, self.screen)
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD, "--decode_interactive"]
            + [f"--output_dir={tiny_run.path(2)}"],
            stdin=inside,
            stdout=inside,
            stderr=inside,
            cwd=ROOT,
            env=os.environ | {"TERM": "dumb", "INPUTRC": os.devnull},
            start_new_session=True,
        )
        self.addCleanup(self.process.wait)
        self.addCleanup(self.process.kill)  # first
        os.close(inside)

    def expect(self, words):
        """Reads until the words come; returns what came before them."""
        ends, words = time.monotonic() + SECONDS, words.encode()
        while words not in self.seen:
            if time.monotonic() > ends or not self.read():
                self.fail(f"{words} did not come after {self.seen[-2000:]}")
        before, _, self.seen = self.seen.partition(words)
        return before.decode()

    def read(self):
        if not select.select([self.screen], [], [], 1.0)[0]:
            return True
        try:
            new = os.read(self.screen, 4096)
        except OSError:  # the other end is closed
            return False
        self.seen += new
        return bool(new)

    def type(self, words):
        os.write(self.screen, words.encode())

    def test_keys_interrupt_and_end(self):
        translator = translator_lib.Translator.load(tiny_run.path(2))
        (expected,) = translator.translate(["twenty-one days"])
        self.expect("Ctrl-D leaves.")
        self.expect("> ")
        for typed in ("twenty-one days\n", "\x10\n"):  # Ctrl-P: the last line
            self.type(typed)
            self.expect("days\r\n")
            shown = self.expect("\r\n[")
            # A warning, that there was no end, may stand before it.
            self.assertEqual(
                shown.split("\r\n")[-1], terminal.printable(expected)
            )
            self.expect("> ")
        self.type("half a li")
        self.expect("half a li")
        # Between the prompt and its wait for a key, readline would notice
        # Ctrl-C only with the next key.
        time.sleep(0.5)
        self.type("\x03")
        self.expect("> ")
        self.type("\x04")
        while self.read():
            pass
        self.assertEqual(self.process.wait(SECONDS), 0)


if __name__ == "__main__":
    absltest.main()
