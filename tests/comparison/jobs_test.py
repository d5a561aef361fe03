"""Jobs side by side: their order, failures, signals, and parts of a machine."""

import os
import pathlib
import signal
import threading
import time
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf.comparison import child_process
from relpos_tf.comparison import jobs
from relpos_tf.utils import signals
from relpos_tf.utils import slots as slots_lib

# Writes the times of its start and its end; waits until a file is there.
WAITS = """
import os, pathlib, sys, time
folder, name, needed = pathlib.Path(sys.argv[1]), *sys.argv[2:]
(folder / f"{name}.begun").touch()
deadline = time.monotonic() + 30
while needed and not (folder / needed).exists():
    if time.monotonic() > deadline:
        sys.exit("nobody came")
    time.sleep(0.01)
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
FAILS = "print('It is bad.'); raise SystemExit(3)"


class Fake:
    """A job of Python code that gets a folder, a name and a word."""

    def __init__(
        self,
        folder,
        name,
        code=WAITS,
        word="",
        ready=lambda: True,
        elsewhere=lambda: False,
    ):
        self.title = name
        self.is_ready = ready
        self.is_elsewhere = elsewhere
        self._arguments = ["-S", "-c", code, str(folder), name, word]
        self._log = folder / f"{name}.log"
        self.slot = None
        self.watched = 0
        self.child = None

    def start(self, slot):
        self.slot = slot
        self.child = child_process.Child(
            self._arguments,
            self._log,
            f"Work of {self.title}",
            environment=slot.environment,
            cores=slot.cores,
        )
        return self.child

    def watch(self):
        self.watched += 1

    def finish(self, child):
        child.check()
        if self.title == "undone":
            raise errors.UserError("It is not done.")


def slots(number):
    return slots_lib.Slots(
        tuple(slots_lib.Slot({"SLOT": str(n)}) for n in range(number)), 2, 0
    )


class JobsTestCase(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)
        patch = mock.patch.object(child_process, "POLL_SECONDS", 0.02)
        patch.start()
        self.addCleanup(patch.stop)

    def there(self, name):
        return (self.folder / name).exists()


class RunTest(JobsTestCase):
    def test_as_many_run_at_once_as_there_are_slots(self):
        # "a" ends only once "b" runs, and "b" once "c" has followed "a".
        queue = [
            Fake(self.folder, "a", WAITS, "b.begun"),
            Fake(self.folder, "b", WAITS, "c.begun"),
            Fake(self.folder, "c"),
        ]
        seen = []
        start = Fake.start

        def watched_start(job, slot):
            seen.append((job.title, self.there("a.ended")))
            return start(job, slot)

        with mock.patch.object(Fake, "start", watched_start):
            self.assertEqual(jobs.run(queue, slots(2)), [])
        # "c" had no slot before "a" had ended.
        self.assertEqual(seen, [("a", False), ("b", False), ("c", True)])
        a, b, c = (job.slot.environment["SLOT"] for job in queue)
        self.assertEqual((a, b, c), ("0", "1", "0"))
        for job in queue:
            self.assertGreater(job.watched, 0)

    def test_failure_stops_no_other_and_is_named(self):
        queue = [
            Fake(self.folder, "a", FAILS),
            Fake(self.folder, "b"),
            Fake(self.folder, "undone"),
            Fake(self.folder, "c"),
        ]
        with self.assertLogs("relpos_tf", "WARNING") as logs:
            failures = jobs.run(queue, slots(1))
        self.assertEqual([one.job for one in failures], [queue[0], queue[2]])
        self.assertIn(
            "Work of a failed with exit code 3. The end of "
            f"{self.folder}/a.log:\n  It is bad.",
            logs.output[0],
        )
        self.assertTrue(self.there("b.ended") and self.there("c.ended"))
        with self.assertRaisesRegex(
            errors.UserError,
            rf"^Work failed for 2 of 4: a \(see {self.folder}/a.log\), undone "
            r"\(see .*/undone.log\). Run the command again to try these again.",
        ):
            jobs.raise_failures(failures, 4, "Work")
        jobs.raise_failures([], 4, "Work")

    def test_job_that_cannot_start_is_a_failure(self):
        bad = Fake(self.folder, "a")
        (self.folder / "a.log").symlink_to(self.folder / "elsewhere")
        with self.assertLogs("relpos_tf", "WARNING"):
            failures = jobs.run([bad, Fake(self.folder, "b")], slots(1))
        self.assertEqual([one.job for one in failures], [bad])
        self.assertTrue(self.there("b.ended"))

    def test_job_that_is_not_ready_lets_others_pass(self):
        code = (
            "import pathlib, sys; "
            "sys.exit(not pathlib.Path(sys.argv[1], 'b.ended').exists())"
        )
        queue = [
            Fake(self.folder, "a", code, ready=lambda: self.there("b.ended")),
            Fake(self.folder, "b"),
        ]
        self.assertEqual(jobs.run(queue, slots(1)), [])
        self.assertIsNotNone(queue[0].child)

    def test_processes_of_an_earlier_command_take_slots(self):
        # Of two slots one is left, until "a" is done elsewhere.
        queue = [
            Fake(
                self.folder,
                "a",
                elsewhere=lambda: not self.there("c.begun"),
            ),
            Fake(self.folder, "b"),
            Fake(self.folder, "c", WAITS, "a.begun"),
        ]
        seen = []
        start = Fake.start

        def watched_start(job, slot):
            seen.append((job.title, self.there("b.ended")))
            return start(job, slot)

        with mock.patch.object(Fake, "start", watched_start):
            self.assertEqual(jobs.run(queue, slots(2)), [])
        self.assertEqual(seen, [("b", False), ("c", True), ("a", True)])

    @absltest.skipUnless(hasattr(os, "sched_setaffinity"), "Linux only.")
    def test_process_gets_the_cores_and_variables_of_its_slot(self):
        core = min(os.sched_getaffinity(0))
        # It waits: the cores are set right after the start.
        code = (
            "import os, time; time.sleep(0.3); "
            "print(sorted(os.sched_getaffinity(0)), os.environ['X'])"
        )
        queue = [Fake(self.folder, "a", code)]
        slot = slots_lib.Slot({"X": "y"}, (core,))
        self.assertEqual(jobs.run(queue, slots_lib.Slots((slot,), 1, 0)), [])
        text = (self.folder / "a.log").read_text()
        self.assertEqual(text, f"[{core}] y\n")


class SignalTest(JobsTestCase):
    @parameterized.parameters(
        (signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, signals.Terminated)
    )
    def test_signal_reaches_every_child_once_and_they_save(self, number, error):
        # A shell may have had the tests ignore it.
        before = signal.signal(number, signal.default_int_handler)
        self.addCleanup(signal.signal, number, before)
        queue = [Fake(self.folder, name, SAVES) for name in "abc"]

        def send():
            while not (self.there("a.begun") and self.there("b.begun")):
                time.sleep(0.01)
            os.kill(os.getpid(), number)
            time.sleep(0.1)
            os.kill(os.getpid(), number)  # in a hurry

        sender = threading.Thread(target=send)
        sender.start()
        with signals.caught(), self.assertRaises(error):
            jobs.run(queue, slots(2))
        sender.join()
        for name in "ab":
            text = (self.folder / f"{name}.signals").read_text()
            self.assertEqual(text.split(), [str(signal.SIGTERM)])
            self.assertTrue(self.there(f"{name}.saved"))
        self.assertIsNone(queue[2].child)

    def test_error_of_our_own_leaves_no_process(self):
        job = Fake(self.folder, "a", SAVES)

        def watch():
            if self.there("a.begun"):
                raise ValueError("a bug")

        job.watch = watch
        with self.assertRaisesRegex(ValueError, "a bug"):
            jobs.run([job], slots(1))
        self.assertFalse(job.child.is_running)
        self.assertTrue(self.there("a.saved"))


if __name__ == "__main__":
    absltest.main()
