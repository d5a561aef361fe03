"""The prompt, with a script in place of a person."""

import builtins
import contextlib
import io
import sys
from unittest import mock

from absl.testing import parameterized

from relpos_tf.bin import command
from relpos_tf.decoding import decode_hparam
from relpos_tf.decoding import interactive
from relpos_tf.decoding import translator as translator_lib
from tests.decoding import translator_test


class FixedEngine(translator_test.EchoEngine):
    """Has settings that cannot change, as an export has."""

    def complete(self, decode_hparams):
        own = decode_hparam.DecodeHParams(3, 0.6, 7)  # beams, alpha, ids more
        return decode_hparams.fill_from_export(own, "alpha")


class InterruptedEngine(translator_test.EchoEngine):
    """Is interrupted in the line "stop"."""

    def translate(self, items, decode_hparams):
        if items[0].content == "stop":
            raise KeyboardInterrupt
        return super().translate(items, decode_hparams)


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
            "a", ":beam_size=2, n_best=2", "b", ":n_best=1", "c"
        )
        self.assertEqual(output, ["A", "  0.0000  B", " -1.0000  B1", "C"])
        self.assertIn("beam_size=2, alpha=0.6, extra_length=7, ", messages)
        _, messages = self.talk(":")
        self.assertIn("beam_size=3, alpha=0.6, extra_length=7, ", messages)

    def test_scores_are_shown(self):
        output, _ = self.talk("a", write_beam_scores=True)
        self.assertEqual(output, ["  0.0000  A"])

    def test_alignments_are_shown(self):
        engine = translator_test.AlignedEngine()
        output, _ = self.talk("a", engine=engine, return_alignments=True)
        self.assertEqual(output, ["A  0-0"])

    @parameterized.parameters(
        (":alpha=-1", "`alpha` must be at least 0"),
        (":beam_siez=3", "Did you mean beam_size?"),
        (":-)", "Expected name=value"),
        (":alpha=1", "This export has alpha=0.6."),
        (":n_best=4", "`n_best` must be 1 to beam_size=3."),
        (":return_alignments=1", "This export has return_alignments=False."),
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
