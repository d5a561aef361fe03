"""Tests of the line of progress at a terminal."""

import contextlib
import io
import logging
import os
import re
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
        lines = []
        for line in self.getvalue().split("\n"):
            shown = []
            for part in line.split("\r"):
                shown[: len(part)] = part
            lines.append("".join(shown).rstrip())
        return lines


class MovingLineTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.now = 1000.0
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        self.screen = Terminal()
        stack.enter_context(mock.patch.object(sys, "stderr", self.screen))
        stack.enter_context(
            mock.patch.object(time, "monotonic", lambda: self.now)
        )
        self.log = command.logger()
        self.addCleanup(terminal.clear)

    def show(self, line):
        self.now += 1.0
        terminal.show(lambda: line)

    def test_a_line_is_written_over_by_the_next(self):
        self.show("step 99, loss 3.25")
        self.show("step 100")
        self.assertEqual(self.screen.seen(), ["step 100"])
        self.assertNotIn("\n", self.screen.getvalue())

    def test_a_message_takes_its_place_and_stays(self):
        self.show("a line that is longer than the message")
        self.log.info("kept")
        self.show("moves")
        terminal.clear()
        self.assertEqual(self.screen.seen(), ["kept", ""])

    def test_it_is_made_ten_times_a_second_at_most(self):
        made = []
        for _ in range(1000):
            self.now += 0.001
            terminal.show(lambda: made.append(0) or "x")
        self.assertBetween(len(made), 9, 11)

    def test_it_is_cut_where_the_terminal_ends(self):
        size = os.terminal_size((20, 5))
        with (
            mock.patch.object(self.screen, "fileno", lambda: 2),
            mock.patch.object(os, "get_terminal_size", return_value=size),
        ):
            self.show("x" * 99)
        self.assertEqual(self.screen.getvalue().strip("\r"), "x" * 19)

    def test_a_pipe_gets_none_of_it(self):
        with mock.patch.object(self.screen, "isatty", lambda: False):
            self.show("moves")
            for _ in terminal.counted(range(3), "Batch"):
                self.now += 1.0
            self.log.info("kept")
        self.assertEqual(self.screen.getvalue(), "kept\n")

    def test_a_host_that_says_little_shows_none(self):
        # As hosts beside the chief do.
        self.addCleanup(self.log.setLevel, self.log.level)
        self.log.setLevel(logging.WARNING)
        self.show("moves")
        self.assertEqual(self.screen.getvalue(), "")

    def test_items_are_counted_and_all_there(self):
        seen = []
        for item in terminal.counted("abc", "Batch"):
            seen.append((item, *self.screen.seen()))
            self.now += 1.0
        self.assertEqual(
            seen, [("a", "Batch 1"), ("b", "Batch 2"), ("c", "Batch 3")]
        )

    def test_translations_at_a_terminal_take_its_place_without_controls(self):
        class Output(io.BytesIO):
            isatty = Terminal.isatty

        output = Output()
        with text.writer("", output) as write:
            self.show("moves")
            write("red \x1b[31m")
        self.assertEqual(self.screen.seen(), [""])
        self.assertEqual(output.getvalue(), b"red \\x1b[31m\n")
        with text.writer("", io.BytesIO()) as write:
            write("red \x1b[31m")  # a pipe gets it as it is

    def test_rates_tell_the_time_left(self):
        times = iter([100.0, 110.0, 150.0, 150.0])
        progress = terminal.RateProgress(
            "Encoding", "pairs", 7000, clock=lambda: next(times)
        )
        with mock.patch.object(terminal, "show"):
            progress._done = 1000
            self.assertEqual(
                progress.line(),
                "Encoding: 1,000 pairs, 100 a second, 60 s left",
            )
            progress._done = 7000
            self.assertEqual(
                progress.line(), "Encoding: 7,000 pairs, 140 a second"
            )

    def test_rates_are_logged_every_half_minute_without_a_terminal(self):
        now = [0.0]
        progress = terminal.RateProgress(
            "Encoding", "pairs", 0, clock=lambda: now[0]
        )
        with (
            mock.patch.object(terminal, "_shows_progress", return_value=False),
            self.assertLogs("relpos_tf", "INFO") as logs,
        ):
            for seconds in range(0, 100, 10):
                now[0] = float(seconds)
                progress.add(20)
        self.assertLen(logs.output, 3)
        self.assertIn("Encoding: 80 pairs, 3 a second.", logs.output[0])

    def test_lines_so_far_move_at_a_terminal(self):
        progress = terminal.LineProgress()
        for lines in (3, 7):
            self.now += 1.0
            progress(lines)
        self.assertEqual(self.screen.seen(), ["Lines so far: 7"])
        with mock.patch.object(self.screen, "isatty", lambda: False):
            self.now += 40.0
            progress(9)
        self.assertRegex(
            self.screen.getvalue(), re.compile("Lines so far: 9.\n$")
        )


if __name__ == "__main__":
    absltest.main()
