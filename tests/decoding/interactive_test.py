"""The prompt: with a script in place of a person, and at a terminal."""

import contextlib
import dataclasses
import io
import os
import pathlib
import select
import sys
import time
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf.bin import command
from relpos_tf.decoding import beam_search
from relpos_tf.decoding import decode_hparam
from relpos_tf.decoding import engines
from relpos_tf.decoding import interactive
from relpos_tf.decoding import translator as translator_lib
from relpos_tf.utils import terminal
from tests import commands
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
            raise errors.UserError("This export was made with alpha=0.6.")
        return super().complete(decode_hparams)


class FewEngine(translator_test.EchoEngine):
    """Finds fewer translations than are asked for."""

    def translate(self, items, decode_hparams, n_best):
        none = beam_search.NO_HYPOTHESIS
        scores = [-0.5, none, none][:n_best]
        return [engines.Translation(["one", "", ""][:n_best], scores, True)]


class InterruptedEngine(translator_test.EchoEngine):
    """Is interrupted in the lines "stop" and "Hello."."""

    def translate(self, items, decode_hparams, n_best):
        if items[0].content in ("stop", "Hello."):
            raise KeyboardInterrupt
        return super().translate(items, decode_hparams, n_best)


class RecordingEngine(translator_test.EchoEngine):
    """Records the settings of each translation."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def translate(self, items, decode_hparams, n_best):
        self.seen.append(decode_hparams)
        return super().translate(items, decode_hparams, n_best)


class SessionTest(parameterized.TestCase):
    def talk(self, *typed, engine=None, warm_up=False, **settings):
        """Returns the output and the messages of a session.

        Args:
            *typed: Lines, or exceptions in their place.
            engine: `engines.Engine`; by default an echo.
            warm_up: bool. Whether to begin with the warm-up.
            **settings: Of the search.
        """
        engine = engine or translator_test.EchoEngine()
        settings = engine.complete(decode_hparam.DecodeHParams(**settings))
        translator = translator_lib.Translator(engine=engine)
        output, messages, typed = [], io.StringIO(), list(typed)
        session = interactive.Session(translator, settings, output.append)

        def read():
            line = typed.pop(0) if typed else EOFError
            if isinstance(line, type):
                raise line
            return line

        with contextlib.redirect_stderr(messages):
            command.logger()
            if warm_up:
                session.warm_up()
            session.run(read)
        self.left = typed
        return output, messages.getvalue()

    def test_lines_are_translated_and_timed_until_the_end(self):
        output, messages = self.talk("a", "", "  ", "b")
        self.assertEqual(output, ["A", "B"])
        self.assertRegex(
            messages,
            r"\A\[\d+\.\d\d s, the first with these settings\]\n"
            r"\[\d+\.\d\d s\]\n\n\Z",
        )

    def test_warm_up_is_the_first_with_its_settings_and_warns_of_nothing(self):
        with mock.patch.object(interactive, "_WARM_UP", "cut"):
            output, messages = self.talk("a", warm_up=True)
        self.assertEqual(output, ["A"])
        self.assertRegex(
            messages,
            r"\AWarming up, .*\nReady after \d\.\d s\.\nType a line .*\n"
            r"\[\d\.\d\d s\]\n\n\Z",
        )

    def test_n_shows_the_last_line_and_those_to_come_with_scores(self):
        output, messages = self.talk("a", ":n 2", "b", ":n 1")
        self.assertEqual(
            output,
            ["A", " 1    0.0000  A", " 2   -1.0000  A1"]
            + [" 1    0.0000  B", " 2   -1.0000  B1", "B"],
        )
        self.assertIn("n=2, beam_size=3, alpha=0.6, extra_length=7\n", messages)

    def test_return_beams_begins_with_all_hypotheses(self):
        output, _ = self.talk("a", return_beams=True)
        self.assertLen(output, 3)

    def test_missing_hypotheses_are_not_shown(self):
        output, _ = self.talk(":n 3", "a", engine=FewEngine())
        self.assertEqual(output, [" 1   -0.5000  one"])

    @parameterized.parameters(
        (":beam 2", "beam_size", 2),
        (":beam_size=2", "beam_size", 2),
        (":b 2", "beam_size", 2),
        (":alpha 1", "alpha", 1.0),
        (":extra 9", "extra_length", 9),
        (":sampling_m random", "sampling_method", "random"),
    )
    def test_settings_change_by_their_names_or_beginnings(
        self, typed, name, value
    ):
        engine = RecordingEngine()
        output, _ = self.talk("a", typed, engine=engine)
        self.assertEqual(output, ["A", "A"])
        changed = dataclasses.replace(engine.seen[0], **{name: value})
        self.assertNotEqual(engine.seen[0], changed)
        self.assertEqual(engine.seen[1], changed)

    def test_fewer_beams_show_fewer_translations(self):
        output, messages = self.talk(":n 3", ":beam 2", "a")
        self.assertLen(output, 2)
        self.assertIn("n=2, beam_size=2", messages)

    @parameterized.parameters(
        (":n 4", "`n` must be 1 to beam_size=3. Received: 4."),
        (":n 0", "Received: 0."),
        (":n two", "Received: two."),
        (":alpha -1", "`alpha` must be at least 0"),
        (":alpha x", "of type float. Received: 'x'."),
        (":-)", "begins with a colon is typed with two."),
        (":sampling", "Expected one of :sampling_method, :sampling_temp, "),
        (":no_such", "Expected one of :help, :n, :beam_size"),
    )
    def test_mistakes_are_named_and_change_nothing(self, typed, message):
        output, messages = self.talk("a", typed, ":n", "b")
        self.assertIn("error: ", messages)
        self.assertIn(message, messages)
        self.assertIn("n=1, beam_size=3, alpha=0.6, extra_length=7\n", messages)
        self.assertEqual(output, ["A", "B"])

    def test_refusal_of_an_export_does_not_end_the_session(self):
        output, messages = self.talk(":alpha 1", "a", engine=FixedEngine())
        self.assertIn("error: This export was made with alpha=0.6.", messages)
        self.assertEqual(output, ["A"])

    @parameterized.parameters(":help", ":h", ":?", ":")
    def test_help_lists_all_commands_and_values(self, typed):
        _, messages = self.talk(":n 2", typed)
        for name in interactive.COMMANDS:
            self.assertRegex(messages, rf"(?m)^  :{name} +\w")
        self.assertRegex(messages, r":n +.* \(now 2\)\n")
        self.assertRegex(messages, r":alpha +.* \(now 0\.6\)\n")

    def test_text_may_begin_with_a_colon(self):
        output, _ = self.talk("::quit", ":::", " :n 2")
        self.assertEqual(output, [":QUIT", "::", " :N 2"])

    @parameterized.parameters(":quit", ":q", ":exit")
    def test_quit_leaves(self, typed):
        output, _ = self.talk("a", typed, "b")
        self.assertEqual((output, self.left), (["A"], ["b"]))

    def test_lines_of_a_paste_are_lines(self):
        output, _ = self.talk("a\n\nb\n:quit\nc", "d")
        self.assertEqual((output, self.left), (["A", "B"], ["d"]))

    def test_two_interrupts_in_a_row_leave_the_prompt(self):
        press = KeyboardInterrupt
        output, messages = self.talk(press, "a", press, press, "b")
        self.assertEqual((output, self.left), (["A"], ["b"]))
        self.assertEqual(messages.count("Ctrl-C again leaves"), 2)

    def test_interrupt_drops_a_translation(self):
        output, messages = self.talk(
            "stop", "a", engine=InterruptedEngine(), warm_up=True
        )
        self.assertEqual(output, ["A"])
        self.assertEqual(messages.count("\nInterrupted.\n"), 2)
        self.assertNotIn("Ready", messages)
        self.assertNotIn("Ctrl-C again leaves", messages)

    def test_error_of_a_translation_does_not_end_the_session(self):
        engine = translator_test.EchoEngine(memory=5)
        output, messages = self.talk("long line", "a", engine=engine)
        self.assertEqual(output, ["A"])
        self.assertIn("error: Line 1 of 10 ids does not fit", messages)

    def test_bug_is_not_hidden(self):
        engine = translator_test.EchoEngine()
        engine.translate = None
        with self.assertRaises(TypeError):
            self.talk("a", engine=engine)

    def test_output_in_a_file_has_no_prompt(self):
        path = pathlib.Path(self.create_tempdir().full_path, "output")
        stdin = io.TextIOWrapper(io.BytesIO(b"a\n:n 2\n::b\ncaf\xc3\xa9\n\xff"))
        engine, err = translator_test.EchoEngine(), io.StringIO()
        with (
            open(path, "w", encoding="utf-8") as stdout,
            mock.patch.object(sys, "stdin", stdin),
            mock.patch.dict(os.environ, {terminal.HISTORY_VARIABLE: ""}),
            contextlib.redirect_stdout(stdout),
            contextlib.redirect_stderr(err),
        ):
            interactive.run(
                translator_lib.Translator(engine=engine),
                engine.complete(decode_hparam.DecodeHParams()),
            )
        shown = ["A", "A1", ":B", ":B1", "CAF\u00c9", "CAF\u00c91"]
        shown += ["\ufffd", "\ufffd1"]
        self.assertEqual(
            path.read_text("utf-8").splitlines(),
            ["A"]
            + [
                f" {1 + i % 2}   {[' 0', '-1'][i % 2]}.0000  {line}"
                for i, line in enumerate(shown)
            ],
        )
        self.assertEqual(err.getvalue().count("> "), 6)


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
        folder = pathlib.Path(self.create_tempdir().full_path)
        self.history = folder / "relpos_tf" / "history"
        self.history.parent.mkdir()
        self.history.write_text("twenty-one days\n")
        self.seen = b""
        self.screen, inside = pty.openpty()
        self.addCleanup(os.close, self.screen)
        environment = os.environ | {"XDG_STATE_HOME": str(folder)}
        environment |= {"TERM": "dumb", "INPUTRC": os.devnull}
        environment.pop(terminal.HISTORY_VARIABLE, None)
        self.process = commands.Popen(
            [sys.executable, "-c", CHILD, "--decode_interactive"]
            + [f"--output_dir={tiny_run.path(2)}"],
            stdin=inside,
            stdout=inside,
            stderr=inside,
            cwd=ROOT,
            env=environment,
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

    def test_history_completion_interrupt_and_end(self):
        translator = translator_lib.Translator.load(tiny_run.path(2))
        self.expect("Warming up")
        self.expect("Ready after ")
        self.expect("> ")
        self.type("\x10\n")  # Ctrl-P, as the arrow upwards
        self.expect("days\r\n")
        shown = self.expect("\r\n[")
        (first,) = translator.translate(["twenty-one days"])
        # A warning, that there was no end, may stand before it.
        self.assertEqual(shown.split("\r\n")[-1], terminal.printable(first))
        self.expect("> ")
        self.type(":al\t1\n")
        self.expect("alpha=1.0, extra_length=7\r\n")
        shown = self.expect("\r\n[")
        (second,) = translator.translate(["twenty-one days"], alpha=1.0)
        self.assertEqual(shown.split("\r\n")[-1], terminal.printable(second))
        self.expect("> ")
        self.type("half a li")
        self.expect("half a li")
        # Between the prompt and its wait for a key, readline would notice
        # Ctrl-C only with the next key.
        time.sleep(0.5)
        self.type("\x03")
        self.expect("Ctrl-C again leaves")
        self.expect("> ")
        self.type("\x04")
        while self.read():
            pass
        self.assertEqual(self.process.wait(SECONDS), 0)
        self.assertEqual(self.seen, b"\r\n")
        self.assertEqual(
            self.history.read_text(), "twenty-one days\n:alpha 1\n"
        )


class HistoryTest(parameterized.TestCase):
    @parameterized.parameters(
        ({"XDG_STATE_HOME": "/there"}, "/there/relpos_tf/history"),
        ({"HOME": "/me"}, "/me/.local/state/relpos_tf/history"),
        ({"HOME": "/me", "RELPOS_TF_HISTORY": "/it"}, "/it"),
        ({"HOME": "/me", "RELPOS_TF_HISTORY": ""}, None),
    )
    def test_place_of_the_history(self, environment, expected):
        with mock.patch.dict(os.environ, environment, clear=True):
            found = terminal.history_path()
        self.assertEqual(found, expected and pathlib.Path(expected))


if __name__ == "__main__":
    absltest.main()
