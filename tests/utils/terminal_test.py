"""Tests of the line of progress at a terminal."""

import contextlib
import io
import logging
import sys
import time
from unittest import mock

from absl.testing import absltest

from relpos_tf.bin import command
from relpos_tf.utils import terminal
from relpos_tf.utils import text


class Terminal(io.StringIO):
    """A terminal: the output, and the visible lines."""

    def isatty(self):
        return True

    def seen(self):
        """Returns the lines that a person sees."""
        lines = self.getvalue().split("\n")
        return [line.rpartition("\r\x1b[K")[2] for line in lines]


class MovingLineTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.now = time.monotonic()
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        self.screen = Terminal()
        stack.enter_context(mock.patch.object(sys, "stderr", self.screen))
        stack.enter_context(
            mock.patch.object(time, "monotonic", lambda: self.now)
        )
        stack.enter_context(mock.patch.object(terminal._Last, "time", self.now))
        self.log = command.logger()
        self.addCleanup(terminal.clear)

    def show(self, line):
        self.now += 1.0
        terminal.show(lambda: line)

    def test_a_line_is_written_over_by_the_next(self):
        self.show("step 99, loss 3.25")
        self.show("step 100")
        self.assertEqual(self.screen.seen(), ["step 100"])

    def test_a_message_takes_its_place_and_stays(self):
        self.show("a line that is longer than the message")
        self.log.info("kept")
        self.show("moves")
        terminal.clear()
        self.assertEqual(self.screen.seen(), ["kept", ""])

    def test_a_line_that_a_signal_cuts_off_is_removed_as_well(self):
        stop = mock.patch.object(
            self.screen, "flush", side_effect=KeyboardInterrupt
        )
        with stop, self.assertRaises(KeyboardInterrupt):
            self.show("step 1")
        self.log.info("Stopped.")
        self.assertEqual(self.screen.seen(), ["Stopped.", ""])

    def test_it_is_made_ten_times_a_second_at_most(self):
        made = []
        for _ in range(1000):
            self.now += 0.001
            terminal.show(lambda: made.append(0) or "x")
        self.assertBetween(len(made), 9, 11)

    def test_it_is_cut_where_the_terminal_ends(self):
        with mock.patch.dict("os.environ", COLUMNS="20"):
            self.show("x" * 99)
        self.assertEqual(self.screen.seen(), ["x" * 19])

    def test_a_message_is_wrapped_at_blanks_unless_it_may_be_copied(self):
        command = "  relpos-decoder '--output_dir=a run' --b --c"
        with mock.patch.dict("os.environ", COLUMNS="23"):
            self.log.warning(f"Saved runs/a/b/ckpt-1.npz now 2-3:\n{command}")
            self.log.info(f"[1/2] {command}")
        self.assertEqual(
            self.screen.seen(),
            ["warning: Saved", "  runs/a/b/ckpt-1.npz", "  now 2-3:"]
            + [command, f"[1/2] {command}", ""],
        )

    def test_the_import_of_tensorflow_is_announced(self):
        command.import_tensorflow()
        self.assertEqual(self.screen.seen(), ["Loading TensorFlow ..."])

    def test_a_pipe_gets_none_of_it_and_a_log_a_line_after_a_silence(self):
        start = self.now
        with mock.patch.object(self.screen, "isatty", lambda: False):
            for _ in range(90):
                self.now += 1.0
                if self.now == start + 50:
                    self.log.info("of another kind, " * 9)
                terminal.show(lambda: f"at {self.now - start}", is_logged=True)
        self.assertEqual(
            self.screen.seen(),
            ["at 30.0", "of another kind, " * 9, "at 80.0", ""],
        )

    def test_a_host_that_says_little_shows_none(self):
        # As hosts beside the chief do.
        self.addCleanup(self.log.setLevel, self.log.level)
        self.log.setLevel(logging.WARNING)
        self.show("moves")
        self.assertEqual(self.screen.getvalue(), "")

    def test_translations_at_a_terminal_take_its_place_without_controls(self):
        class Output(io.BytesIO):
            isatty = Terminal.isatty

        output = Output()
        with text.writer("", output) as write:
            self.show("moves")
            write("red \x1b[31m")
        self.assertEqual(self.screen.seen(), [""])
        self.assertEqual(output.getvalue(), b"red \\x1b[31m\n")
