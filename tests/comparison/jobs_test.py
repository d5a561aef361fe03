"""Jobs one after another: their environment, failures and signals."""

import os
import signal
import subprocess
import threading
import time
from unittest import mock

from absl.testing import parameterized

from relpos_tf.comparison import jobs
from relpos_tf.utils import signals
from tests import folders

# Marks its start and its end.
WORKS = """
import os, pathlib, sys
folder, name = pathlib.Path(sys.argv[1]), sys.argv[2]
(folder / f"{name}.begun").touch()
print(*map(os.getenv,["TF_CONFIG","KERAS_BACKEND"]), os.getsid(0)==os.getpid())
print("step 9/60  loss 1.5  ")
(folder / f"{name}.ended").touch()
"""
# Counts the signals that it gets, and saves after the first one.
SAVES = """
import pathlib, signal, sys, time
folder, name = pathlib.Path(sys.argv[1]), sys.argv[2]
def stop(number, frame):
    with open(folder / f"{name}.signals", "a") as file:
        file.write(f"{number}\\n")
    time.sleep(0.4)
    (folder / f"{name}.saved").touch()
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
signal.signal(signal.SIGINT, stop)
(folder / f"{name}.begun").touch()
time.sleep(60)
"""
DEAF = SAVES.replace("SIGTERM, stop", "SIGTERM, signal.SIG_IGN")


class JobsTestCase(folders.TestCase):
    def setUp(self):
        super().setUp()
        self.enter_context(mock.patch.object(jobs, "POLL_SECONDS", 0.02))

    def job(self, name, code=WORKS):
        arguments = ["-S", "-c", code, str(self.folder), name]
        return jobs.Job(name, arguments, self.log(name))

    def log(self, name):
        return self.folder / "logs" / f"{name}.log"

    def there(self, name):
        return (self.folder / name).exists()


class RunTest(JobsTestCase):
    def test_jobs_follow_one_another(self):
        self.log("a").parent.mkdir()
        self.log("a").write_text("of an earlier start\n")
        with (
            mock.patch.dict(os.environ, TF_CONFIG="{}", KERAS_BACKEND="jax"),
            self.assertLogs("relpos_tf", "INFO") as logs,
        ):
            jobs.run([self.job("a"), self.job("b")], "Work")
        self.assertEqual(
            [record.getMessage() for record in logs.records],
            [
                line
                for number, name in enumerate("ab", start=1)
                for line in (
                    f"Work {number} of 2: {name}.",
                    # No hosts, and no signals of the terminal.
                    f"[{number}/2] None tensorflow True",
                    f"[{number}/2] step 9/60  loss 1.5",
                )
            ],
        )

    def test_failures_stop_no_other_and_are_named(self):
        self.log("linked").parent.mkdir()
        self.log("linked").symlink_to(self.folder / "elsewhere")
        queue = [
            self.job("fails", "raise SystemExit(3)"),
            self.job("killed", "import os; os.kill(os.getpid(), 9)"),
            self.job("linked"),
            self.job("b"),
        ]
        with self.assertLogs("relpos_tf", "WARNING") as logs:
            jobs.run(queue, "Work")
        messages = [record.getMessage() for record in logs.records]
        expected = (
            r"code 3\. See .*fails\.log\.\Z",
            "SIGKILL",
            "linked",
            r"3 of 4: fails .see .*fails\.log., killed .*linked",
        )
        for message, words in zip(messages, expected, strict=True):
            self.assertRegex(message, words)
        self.assertTrue(self.there("b.ended"))


class SignalTest(JobsTestCase):
    @parameterized.parameters(
        (signal.SIGINT, SAVES, 2),
        (signal.SIGHUP, SAVES, 1),
        (signal.SIGTERM, DEAF, 3),  # the third does not wait
    )
    def test_signal_reaches_the_child_once_and_it_saves(
        self, number, code, times
    ):
        # A shell may have had the tests ignore it.
        before = signal.signal(number, signal.default_int_handler)
        self.addCleanup(signal.signal, number, before)

        def send():
            while not self.there("a.begun"):
                time.sleep(0.01)
            for _ in range(times):  # in a hurry
                os.kill(os.getpid(), number)
                time.sleep(0.1)

        sender = threading.Thread(target=send)
        sender.start()
        with signals.caught(), self.assertRaises(signals.Stopped) as caught:
            jobs.run([self.job("a", code), self.job("b")], "Work")
        sender.join()
        self.assertEqual(caught.exception.number, number)
        self.assertEqual(self.there("a.saved"), code is SAVES)
        if code is SAVES:
            text = (self.folder / "a.signals").read_text()
            self.assertEqual(text.split(), [str(signal.SIGTERM)])
        self.assertFalse(self.there("b.begun"))

    @parameterized.parameters(
        "sys.exit(143)", "signal.raise_signal(signal.SIGTERM)"
    )
    def test_signal_to_the_child_stops_them_all(self, end):
        stops = f"import signal, sys\n{end}"
        with (
            self.assertLogs("relpos_tf", "WARNING") as logs,
            self.assertRaises(signals.Stopped) as caught,
        ):
            jobs.run([self.job("a", stops), self.job("b")], "Work")
        self.assertEqual(caught.exception.number, signal.SIGTERM)
        self.assertIn("Work of a was stopped by SIGTERM", logs.output[0])
        self.assertFalse(self.there("b.begun"))

    @parameterized.parameters(
        (subprocess, "Popen", lambda process: process.returncode is not None),
        (jobs, "open", lambda log: log.closed),
    )
    def test_signal_comes_only_where_it_waits(self, module, name, is_over):
        made, make = [], getattr(module, name, open)

        def stopped(*args, **kwargs):
            made.append(make(*args, **kwargs))
            signal.raise_signal(signal.SIGTERM)
            return made[-1]

        with (
            mock.patch.object(module, name, stopped, create=True),
            signals.caught(),
            self.assertRaises(signals.Stopped),
        ):
            jobs.run([self.job("a", SAVES)], "Work")
        self.assertTrue(is_over(made[0]))
