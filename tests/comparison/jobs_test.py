"""Jobs side by side: their order, failures, signals, and parts of a machine."""

import contextlib
import os
import signal
import subprocess
import threading
import time
from concurrent import futures
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf.comparison import jobs
from relpos_tf.comparison import slots as slots_lib
from relpos_tf.utils import signals
from tests import folders

# Marks its start and its end; waits until a file is there.
WAITS = """
import os, pathlib, sys, time
folder, name, needed = pathlib.Path(sys.argv[1]), *sys.argv[2:]
(folder / f"{name}.begun").touch()
deadline = time.monotonic() + 30
while needed and not (folder / needed).exists():
    if time.monotonic() > deadline:
        sys.exit("nobody came")
    time.sleep(0.01)
print(os.environ.get("SLOT"), os.environ.get("TF_CONFIG"))
print(os.getpgid(0) == os.getpid(), sorted(os.sched_getaffinity(0)))
(folder / f"{name}.ended").touch()
"""
# Counts the signals that it gets, and saves after the first one.
SAVES = """
import pathlib, signal, sys, time
folder, name, _ = pathlib.Path(sys.argv[1]), *sys.argv[2:]
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
# A signal while the processes are waited for.
THIRD = mock.patch.object(
    futures.ThreadPoolExecutor, "shutdown", side_effect=KeyboardInterrupt
)
FAILS = "print('one', '', 'It is bad.', sep='\\n'); raise SystemExit(3)"


def slots(number):
    return slots_lib.Slots(
        tuple(slots_lib.Slot({"SLOT": str(n)}) for n in range(number)), 2, 0
    )


class JobsTestCase(folders.TestCase):
    def setUp(self):
        super().setUp()
        self.enter_context(mock.patch.object(jobs, "POLL_SECONDS", 0.02))

    def job(self, name, code=WAITS, word="", **functions):
        arguments = ["-S", "-c", code, str(self.folder), name, word]
        return jobs.Job(name, arguments, self.log(name), **functions)

    def log(self, name):
        return self.folder / "logs" / f"{name}.log"

    def there(self, name):
        return (self.folder / name).exists()


class RunTest(JobsTestCase):
    def test_as_many_run_at_once_as_there_are_slots(self):
        seen = []

        def noted(name):
            return lambda: seen.append((name, self.there("a.ended")))

        # "a" ends only once "b" runs, and "b" once "c" has followed "a".
        queue = [
            self.job("a", word="b.begun", begin=noted("a")),
            self.job("b", word="c.begun", begin=noted("b")),
            self.job("c", begin=noted("c")),
        ]
        watch = mock.Mock()
        jobs.run(queue, slots(2), "Work", watch=watch)
        # "c" had no slot before "a" had ended.
        self.assertCountEqual(seen, [("a", False), ("b", False), ("c", True)])
        self.assertEqual(
            *(self.log(name).read_text().split()[0] for name in "ac")
        )
        watch.assert_called()

    def test_the_end_of_a_job_is_watched_before_the_next_begins(self):
        seen = []

        def watch():
            time.sleep(0.05)
            seen.append("end" if self.there("a.ended") else "work")

        queue = [
            self.job("a"),
            self.job("b", begin=lambda: seen.append("b")),
        ]
        jobs.run(queue, slots(1), "Work", watch=watch)
        self.assertIn("end", seen[: seen.index("b")])

    def test_failures_stop_no_other_and_are_named(self):
        self.log("linked").parent.mkdir()
        self.log("linked").symlink_to(self.folder / "elsewhere")
        self.log("fails").write_text("of an earlier start\n")
        queue = [
            self.job("fails", FAILS),
            self.job("killed", "import os; os.kill(os.getpid(), 9)"),
            self.job("linked"),
            self.job("b"),
            self.job("c"),
        ]
        with self.assertLogs("relpos_tf", "WARNING") as logs:
            jobs.run(queue, slots(1), "Work")
        messages = [record.getMessage() for record in logs.records]
        expected = (
            r"  one\n  It is bad\.",
            "SIGKILL",
            "linked",
            r"3 of 5: fails .see .*fails\.log., killed .*linked",
        )
        for message, words in zip(messages, expected, strict=True):
            self.assertRegex(message, words)
        self.assertTrue(self.there("b.ended") and self.there("c.ended"))

    @absltest.skipUnless(hasattr(os, "sched_setaffinity"), "Linux only.")
    def test_process_has_its_slot_and_a_group_and_no_hosts(self):
        core = min(os.sched_getaffinity(0))
        slot = slots_lib.Slot({"SLOT": "y"}, (core,))
        job = self.job("a", word="go")
        # It waits: the cores are set right after the start.
        threading.Timer(0.3, (self.folder / "go").touch).start()
        with mock.patch.dict(os.environ, {"TF_CONFIG": "{}"}):
            jobs.run([job], slots_lib.Slots((slot,), 1, 0), "Work")
        self.assertEqual(self.log("a").read_text(), f"y None\nTrue [{core}]\n")


class SignalTest(JobsTestCase):
    @parameterized.parameters(signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    def test_signal_reaches_every_child_once_and_they_save(self, number):
        # A shell may have had the tests ignore it.
        before = signal.signal(number, signal.default_int_handler)
        self.addCleanup(signal.signal, number, before)
        queue = [self.job(name, SAVES) for name in "abc"]

        def send():
            while not (self.there("a.begun") and self.there("b.begun")):
                time.sleep(0.01)
            os.kill(os.getpid(), number)
            time.sleep(0.1)
            os.kill(os.getpid(), number)  # in a hurry

        sender = threading.Thread(target=send)
        sender.start()
        with signals.caught(), self.assertRaises(signals.Stopped) as caught:
            jobs.run(queue, slots(2), "Work")
        sender.join()
        self.assertEqual(caught.exception.number, number)
        for name in "ab":
            text = (self.folder / f"{name}.signals").read_text()
            self.assertEqual(text.split(), [str(signal.SIGTERM)])
            self.assertTrue(self.there(f"{name}.saved"))
        self.assertFalse(self.there("c.begun"))

    @parameterized.parameters(
        "sys.exit(143)", "signal.raise_signal(signal.SIGTERM)"
    )
    def test_signal_to_one_child_stops_them_all(self, end):
        stops = f"import signal, sys\n{WAITS}\n{end}"
        queue = [
            self.job("a", stops, "b.begun"),
            self.job("b", SAVES),
            self.job("c"),
        ]
        with (
            self.assertLogs("relpos_tf", "WARNING") as logs,
            self.assertRaises(signals.Stopped) as caught,
        ):
            jobs.run(queue, slots(2), "Work")
        self.assertEqual(caught.exception.number, signal.SIGTERM)
        self.assertIn("Work of a was stopped by SIGTERM", logs.output[0])
        self.assertTrue(self.there("b.saved"))
        self.assertFalse(self.there("c.begun"))

    @parameterized.parameters(
        # A third signal does not wait for a process that does not end.
        (SAVES, contextlib.nullcontext(), 0),
        (SAVES.replace("SIGTERM, stop", "SIGTERM, signal.SIG_IGN"), THIRD, -9),
    )
    def test_our_own_end_leaves_no_process(self, code, further, expected):
        started, start = [], subprocess.Popen

        def popen(*args, **kwargs):
            started.append(start(*args, **kwargs))
            return started[-1]

        def watch():
            if self.there("a.begun"):
                raise ValueError("a bug")

        with (
            mock.patch.object(subprocess, "Popen", popen),
            further,
            self.assertRaises((ValueError, KeyboardInterrupt)),
        ):
            jobs.run([self.job("a", code)], slots(1), "Work", watch=watch)
        self.assertEqual(started[0].wait(9), expected)
        self.assertEqual(self.there("a.saved"), not expected)
