"""The conversation: with a script in place of a person, and at a terminal."""

import contextlib
import dataclasses
import io
import os
import pathlib
import select
import subprocess
import sys
import threading
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

    def complete(self, wanted):
        if wanted.alpha not in (None, 0.6):
            raise errors.UserError("This export was made with alpha=0.6.")
        return super().complete(wanted)


class FewEngine(translator_test.EchoEngine):
    """Finds fewer translations than are asked for."""

    def translate(self, items, settings, n_best):
        none = beam_search.NO_HYPOTHESIS
        scores = [-0.5, none, none][:n_best]
        return [engines.Translation(["one", "", ""][:n_best], scores, True)]


class BlockingEngine(translator_test.EchoEngine):
    """Translates nothing before it is allowed to."""

    def __init__(self):
        super().__init__()
        self.is_allowed = threading.Event()

    def translate(self, items, settings, n_best):
        if not self.is_allowed.wait(SECONDS):
            raise TimeoutError
        return super().translate(items, settings, n_best)


class SessionTest(parameterized.TestCase):
    def talk(self, *typed, engine=None, **settings):
        """Returns (output, messages) of a conversation.

        Args:
            *typed: Lines, exceptions in their place, or functions to call.
            engine: What translates; by default an echo.
            **settings: Of the search.
        """
        self.engine = engine or translator_test.EchoEngine()
        settings = self.engine.complete(decode_hparam.DecodeHParams(**settings))
        translator = translator_lib.Translator(engine=self.engine)
        output, messages, typed = [], io.StringIO(), list(typed)
        self.session = interactive.Session(translator, settings, output.append)

        def read():
            following = typed.pop(0) if typed else EOFError
            if isinstance(following, type):
                raise following
            return following() if callable(following) else following

        with contextlib.redirect_stderr(messages):
            command.logger()
            self.session.run(read)
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

    def test_n_shows_the_last_line_again_with_scores_and_those_to_come(self):
        output, messages = self.talk("a", ":n 2", "b", ":n 1", engine=None)
        self.assertEqual(
            output,
            ["A", " 1    0.0000  A", " 2   -1.0000  A1"]
            + [" 1    0.0000  B", " 2   -1.0000  B1", "B"],
        )
        self.assertIn("n=2, beam_size=3, alpha=0.6, extra_length=7\n", messages)

    def test_return_beams_begins_with_all_hypotheses(self):
        output, _ = self.talk("a", return_beams=True)
        self.assertLen(output, 3)

    def test_hypotheses_that_were_not_found_are_not_shown(self):
        output, _ = self.talk(":n 3", "a", engine=FewEngine())
        self.assertEqual(output, [" 1   -0.5000  one"])

    @parameterized.parameters(
        (":beam 2", "beam_size", 2),
        (":beam_size=2", "beam_size", 2),
        (":b 2", "beam_size", 2),
        (":alpha 1", "alpha", 1.0),
        (":extra 9", "extra_length", 9),
    )
    def test_settings_change_by_their_names_or_beginnings(
        self, typed, name, value
    ):
        seen = []
        engine = translator_test.EchoEngine()
        with mock.patch.object(
            engine,
            "translate",
            lambda items, settings, n: (
                seen.append(settings)
                or type(engine).translate(engine, items, settings, n)
            ),
        ):
            output, _ = self.talk("a", typed, engine=engine)
        self.assertEqual(output, ["A", "A"])
        changed = dataclasses.replace(seen[0], **{name: value})
        self.assertNotEqual(seen[0], changed)
        self.assertEqual(seen[1].search_settings(), changed.search_settings())

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
        (":e", None),
        (":no_such", "Expected one of :help, :n, :beam_size"),
    )
    def test_mistakes_are_named_and_change_nothing(self, typed, message):
        output, messages = self.talk("a", typed, ":n", "b")
        if message:
            self.assertIn("error: ", messages)
            self.assertIn(message, messages)
        self.assertIn("n=1, beam_size=3, alpha=0.6, extra_length=7\n", messages)
        self.assertEqual(output, ["A", "B"])

    def test_beginning_of_two_commands_is_refused_with_both(self):
        with mock.patch.object(
            interactive.Session, "commands", lambda self: ["alpha", "also"]
        ):
            _, messages = self.talk(":al")
        self.assertIn("Expected one of :alpha, :also. Received: :al.", messages)

    def test_settings_of_an_export_are_fixed_and_the_talk_goes_on(self):
        output, messages = self.talk(":alpha 1", "a", engine=FixedEngine())
        self.assertIn("error: This export was made with alpha=0.6.", messages)
        self.assertEqual(output, ["A"])

    @parameterized.parameters(":help", ":h", ":?", ":")
    def test_help_lists_all_commands_and_what_is_set(self, typed):
        _, messages = self.talk(":n 2", typed)
        for name in self.session.commands():
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

    def test_lines_pasted_together_are_lines(self):
        output, _ = self.talk("a\n\nb\n:quit\nc", "d")
        self.assertEqual((output, self.left), (["A", "B"], ["d"]))

    def test_interrupt_at_the_prompt_leaves_only_at_once_again(self):
        again = KeyboardInterrupt
        output, messages = self.talk(again, "a", again, again, "b")
        self.assertEqual((output, self.left), (["A"], ["b"]))
        self.assertEqual(messages.count("Ctrl-C again leaves"), 2)

    def test_error_of_a_translation_is_named_and_the_talk_goes_on(self):
        engine = translator_test.EchoEngine(memory=5)
        output, messages = self.talk("long line", "a", engine=engine)
        self.assertEqual(output, ["A"])
        self.assertIn("error: Line 1 of 10 ids does not fit", messages)

    def test_bug_is_not_hidden(self):
        engine = translator_test.EchoEngine()
        engine.translate = None
        with self.assertRaises(TypeError):
            self.talk("a", engine=engine)

    def test_interrupted_translation_is_abandoned_unheard(self):
        engine = BlockingEngine()
        wait = threading.Event.wait
        presses = [KeyboardInterrupt]

        def interrupted(event, timeout=None):
            is_main = threading.current_thread() is threading.main_thread()
            if is_main and timeout == 0.1 and presses:
                raise presses.pop()
            return wait(event, timeout)

        def ends():
            self.assertTrue(self.session.is_busy())
            engine.is_allowed.set()
            while self.session.is_busy():
                time.sleep(0.01)
            raise EOFError

        with mock.patch.object(threading.Event, "wait", interrupted):
            output, messages = self.talk("cut line", ends, engine=engine)
        self.assertEqual(output, [])
        self.assertEqual(messages, "\nAbandoned.\n\n")


@absltest.skipIf(pty is None, "There are no pseudo-terminals here.")
class TerminalTest(absltest.TestCase):
    """Runs the decoder itself in a terminal of its own."""

    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)
        self.history = self.folder / "state" / "relpos_tf" / "history"
        self.seen = b""

    def start(self, *arguments, stdout=None, **variables):
        """Starts the decoder; what it writes is what a person sees."""
        self.screen, inside = pty.openpty()
        self.addCleanup(os.close, self.screen)
        environment = {
            name: value
            for name, value in os.environ.items()
            if name not in (terminal.HISTORY_VARIABLE, "INPUTRC")
        }
        environment |= {"XDG_STATE_HOME": str(self.folder / "state")}
        environment |= {"TERM": "dumb", "INPUTRC": os.devnull}
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD, "--decode_interactive", *arguments],
            stdin=inside,
            stdout=stdout or inside,
            stderr=inside,
            cwd=ROOT,
            env=environment | variables,
            start_new_session=True,
        )
        self.addCleanup(self.process.wait)
        self.addCleanup(self.process.kill)  # first
        os.close(inside)

    def expect(self, words):
        """Reads on until the words have come; returns what came before."""
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

    def interrupt(self):
        """Presses Ctrl-C when whoever reads is sure to be waiting for it.

        Between the prompt and that moment, readline would notice it only with
        the next key.
        """
        time.sleep(0.5)
        self.type("\x03")

    def end(self):
        """Returns the exit code and what was still written."""
        while self.read():
            pass
        return self.process.wait(SECONDS), self.seen.decode()

    def test_conversation(self):
        self.start(f"--output_dir={tiny_run.path()}")
        self.expect("Warming up")
        self.expect("Ready after ")
        self.expect("> ")
        self.type("twenty-one days\n")
        self.expect("days\r\n")
        shown = self.expect("\r\n[")
        translator = translator_lib.Translator.load(tiny_run.path())
        (first,) = translator.translate(["twenty-one days"])
        # A warning, that there was no end, may stand before it.
        self.assertEqual(shown.split("\r\n")[-1], terminal.printable(first))
        self.expect("> ")
        self.type(":n 2\n")
        self.expect("extra_length=7\r\n")
        shown = self.expect("\r\n[")
        ((texts, scores),) = translator.translate(
            ["twenty-one days"], n_best=2, return_scores=True
        )
        self.assertEqual(
            shown.split("\r\n")[-2:],
            [
                f"{rank:2}  {score:8.4f}  {terminal.printable(line)}"
                for rank, (line, score) in enumerate(
                    zip(texts, scores, strict=True), start=1
                )
            ],
        )
        self.expect("> ")
        self.type("half a li")
        self.expect("half a li")
        self.interrupt()
        self.expect("Ctrl-C again leaves")
        self.expect("> ")
        self.type("\x04")
        code, last = self.end()
        self.assertEqual((code, last), (0, "\r\n"))
        self.assertEqual(self.history.read_text(), "twenty-one days\n:n 2\n")
        self.assertEqual(self.history.stat().st_mode & 0o777, 0o600)

    def test_history_comes_back_and_words_are_completed(self):
        self.history.parent.mkdir(parents=True)
        self.history.write_text("typed before\n")
        self.start("--output_dir=echo")
        self.expect("> ")
        self.type("\x10\n")  # Ctrl-P, as the arrow upwards
        self.expect("TYPED BEFORE\r\n")
        self.expect("> ")
        self.type(":al\t1\n")
        self.expect("alpha=1.0")
        self.expect("> ")
        self.interrupt()
        self.expect("again")
        self.expect("> ")
        self.interrupt()
        self.assertEqual(self.end(), (0, "\r\n"))
        self.assertEqual(self.history.read_text(), "typed before\n:alpha 1\n")

    def test_interrupt_abandons_and_leaving_does_not_wait(self):
        self.start("--output_dir=echo")
        self.expect("> ")
        self.type("sleep\n")
        self.expect("asleep")
        self.interrupt()
        self.expect("Abandoned.\r\n> ")
        self.type("awake\n")
        self.expect("AWAKE")
        self.expect("> ")
        self.type("\x04")
        started = time.monotonic()
        self.assertEqual(self.end(), (0, "\r\n"))
        self.assertLess(time.monotonic() - started, SECONDS / 2)

    def test_output_in_a_file_and_no_history(self):
        path = self.folder / "kept"
        with open(path, "wb") as file:
            self.start(
                "--output_dir=echo",
                stdout=file,
                **{terminal.HISTORY_VARIABLE: ""},
            )
            for typed in ("a", ":n 2", "::b", "caf\u00e9"):
                self.expect("> ")
                self.type(f"{typed}\n")
            self.expect("> ")
            self.type("\x04")
            self.assertEqual(self.end()[0], 0)
        self.assertEqual(
            path.read_text("utf-8").splitlines(),
            ["A", " 1    0.0000  A", " 2   -1.0000  A1"]
            + [" 1    0.0000  :B", " 2   -1.0000  :B1"]
            + [" 1    0.0000  CAF\u00c9", " 2   -1.0000  CAF\u00c91"],
        )
        self.assertFalse((self.folder / "state").exists())


# The decoder, with a terminal that sends it Ctrl-C. "echo" is a run that needs
# no TensorFlow to be quick.
CHILD = f"""
import fcntl, signal, sys, termios, time
# A shell that runs the tests in the background has SIGINT ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from relpos_tf.decoding import translator
from relpos_tf.bin import decoder
from tests.decoding import translator_test

class Echo(translator_test.EchoEngine):
    def translate(self, items, settings, n_best):
        if items[0].content == "sleep":
            print("asleep", file=sys.stderr)
            time.sleep({SECONDS})
        return super().translate(items, settings, n_best)

load = translator.Translator.load_run
translator.Translator.load_run = lambda path, **limits: (
    translator.Translator(engine=Echo(), name="echo", **limits)
    if path == "echo"
    else load(path, **limits)
)
sys.argv[0] = "decoder.py"
decoder.run()
"""


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
