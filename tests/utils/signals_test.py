"""Tests of signals: interrupted blocks, and signals held back."""

import contextlib
import itertools
import os
import signal

from absl.testing import parameterized

from relpos_tf.utils import signals

INT, TERM, HUP = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
USR1, USR2 = signal.SIGUSR1, signal.SIGUSR2


class SignalsTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        # A shell that runs the tests in the background has them ignored.
        for number in signals.NUMBERS:
            before = signal.signal(number, signal.default_int_handler)
            self.addCleanup(signal.signal, number, before)

    @parameterized.parameters(
        (INT, 130), (TERM, 143), (HUP, 129), (USR1, 138), (USR2, 140)
    )
    def test_exception_says_which(self, number, exit_code):
        with self.assertRaises(KeyboardInterrupt) as caught, signals.caught():
            signal.raise_signal(number)
        self.assertEqual(caught.exception.number, number)
        self.assertEqual(caught.exception.exit_code, exit_code)
        for code in (exit_code, -number):  # it handled the signal, or not
            self.assertEqual(signals.of_exit(code).number, number)

    def test_other_ends_are_of_no_signal(self):
        for code in (0, 1, 2, 120, 128, 137, -signal.SIGKILL):
            self.assertIsNone(signals.of_exit(code))

    def test_first_of_two_waits(self):
        with self.assertRaises(signals.Stopped) as caught, signals.caught():
            with signals.held(), self.silent():
                self.assertFalse(any(signals.pending()))
                signal.raise_signal(USR1)
                signal.raise_signal(TERM)
                waiting = signals.pending()
        self.assertEqual(
            list(itertools.compress(signals.NUMBERS, waiting)), [USR1]
        )
        self.assertEqual(caught.exception.number, USR1)

    def test_write_is_not_interrupted(self):
        done = []
        with signals.caught(), self.assertRaises(signals.Stopped):
            with signals.held():
                with signals.held():
                    signal.raise_signal(TERM)
                    done.append("inner")
                done.append("outer")
            done.append("after")
        self.assertEqual(done, ["inner", "outer"])

    def test_hurried_user_does_not_break_the_save(self):
        """Ctrl-C, then a second one on the way to the save and a third in it"""
        done = []
        with signals.caught(), self.silent() as said:
            try:
                signal.raise_signal(INT)
            except KeyboardInterrupt:
                signal.raise_signal(INT)
                done.append("on the way")
                with contextlib.suppress(KeyboardInterrupt):
                    with signals.held():
                        signal.raise_signal(INT)
                        done.append("saved")
                    done.append("not reached")
            self.assertIn("Stopping", said())
        self.assertEqual(done, ["on the way", "saved"])

    def test_third_one_interrupts_again(self):
        with signals.caught(), self.silent():
            with contextlib.suppress(KeyboardInterrupt):
                signal.raise_signal(INT)
            signal.raise_signal(TERM)
            with self.assertRaises(signals.Stopped):
                signal.raise_signal(TERM)

    def test_error_of_the_write_goes_first(self):
        with signals.caught(), self.assertRaisesRegex(ValueError, "full"):
            with signals.held():
                signal.raise_signal(TERM)
                raise ValueError("full")

    @parameterized.parameters(INT, HUP)  # by a shell's `&`, by nohup
    def test_ignored_signal_stays_ignored(self, number):
        signal.signal(number, signal.SIG_IGN)
        with signals.caught():
            signal.raise_signal(number)
            self.assertIs(signal.getsignal(number), signal.SIG_IGN)

    def test_message_to_nobody_does_not_break_the_save(self):
        with signals.caught(), self.silent(), open("/dev/full", "w") as full:
            os.dup2(full.fileno(), 2)
            with self.assertRaises(signals.Stopped), signals.held():
                signal.raise_signal(HUP)
                signal.raise_signal(HUP)
                saved = True
        self.assertTrue(saved)

    @contextlib.contextmanager
    def silent(self):
        """Yields a function that returns the output on descriptor 2."""
        saved, (end, start) = os.dup(2), os.pipe()
        os.dup2(start, 2)
        os.close(start)
        try:
            yield lambda: os.read(end, 1000).decode()
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            os.close(end)
