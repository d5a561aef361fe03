"""Tests of signals: interrupted blocks, and signals held back."""

import contextlib
import os
import signal

from absl.testing import parameterized

from relpos_tf.utils import signals

INT, TERM = signal.SIGINT, signal.SIGTERM


class SignalsTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        # A shell that runs the tests in the background has them ignored.
        for number in (INT, TERM):
            before = signal.signal(number, signal.default_int_handler)
            self.addCleanup(signal.signal, number, before)

    @parameterized.parameters((INT, False), (TERM, True))
    def test_exception_says_which(self, number, is_terminated):
        with self.assertRaises(KeyboardInterrupt) as caught, signals.caught():
            signal.raise_signal(number)
        self.assertEqual(
            isinstance(caught.exception, signals.Terminated), is_terminated
        )

    def test_write_is_not_interrupted(self):
        done = []
        with signals.caught():
            with self.assertRaises(signals.Terminated):
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
            with self.assertRaises(signals.Terminated):
                signal.raise_signal(TERM)

    def test_error_of_the_write_goes_first(self):
        with signals.caught(), self.assertRaisesRegex(ValueError, "full"):
            with signals.held():
                signal.raise_signal(TERM)
                raise ValueError("full")

    def test_ignored_signal_stays_ignored(self):
        signal.signal(INT, signal.SIG_IGN)
        with signals.caught():
            signal.raise_signal(INT)
            self.assertIs(signal.getsignal(INT), signal.SIG_IGN)

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
