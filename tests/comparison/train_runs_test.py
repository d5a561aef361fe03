"""Training of all runs, by a trainer that only writes its files."""

import json
import os
import pathlib
import signal
import textwrap
import threading
import time
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf import hparam
from relpos_tf.comparison import child_process
from relpos_tf.comparison import runs
from relpos_tf.comparison import train_runs
from relpos_tf.models import run_dir
from relpos_tf.utils import signals

# Trains to step 10, evaluates there; saves when it is told to stop.
FAKE = """
import json, pathlib, signal, sys, time
flags = dict(a.removeprefix("--").split("=", 1) for a in sys.argv[1:])
folder = pathlib.Path(flags["output_dir"])
with open(folder.parent / "calls.jsonl", "a") as file:
    file.write(json.dumps(flags) + "\\n")
folder.mkdir(exist_ok=True)

def save(step):
    (folder / f"ckpt-{step}.index").touch()

def stop(number, frame):
    with open(folder / "signals", "a") as file:
        file.write(f"{number}\\n")
    time.sleep(0.5)  # Saving takes time, in which others may come.
    save(5)
    print("saved")
    sys.exit(0)

signal.signal(signal.SIGTERM, stop)
signal.signal(signal.SIGINT, stop)
mode = flags["hparams"]
if mode == "fails":
    print("one", "two", "", "three", "four", "trainer: it is bad.", sep="\\n")
    sys.exit(7)
if mode == "killed":
    signal.raise_signal(signal.SIGKILL)
if mode != "nothing":
    (folder / "hparams.json").write_text(json.dumps({"train_steps": 10}))
    with open(folder / "metrics.jsonl", "a") as file:
        for step in (5, 10):
            speed = {"steps_per_second": 2.0}
            event = {"step": step, "split": "train", "loss": 1.5} | speed
            file.write(json.dumps(event) + "\\n")
            file.flush()
            if mode == "waits" and step == 5:
                (folder / "waits").touch()
                time.sleep(60)
        event = {"step": 10, "split": "dev", "loss": 2.5, "bleu": 33.3}
        file.write(json.dumps(event) + "\\n")
    save(10)
"""


class TrainTestCase(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)
        script = self.folder / "fake.py"
        script.write_text(textwrap.dedent(FAKE))
        for module, name, value in (
            (train_runs, "TRAINER", [str(script)]),
            (child_process, "POLL_SECONDS", 0.05),
        ):
            patch = mock.patch.object(module, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def run_of(self, label, mode="", seed=1):
        return runs.Run(label, seed, self.folder / label, "the_set", mode)

    def train(self, *wanted):
        """Trains; returns the lines that were written."""
        with self.assertLogs("relpos_tf", "INFO") as logs:
            train_runs.train(wanted, {"problem": "p"}, 10, self.folder / "logs")
        return [record.getMessage() for record in logs.records]

    def calls(self):
        text = (self.folder / "calls.jsonl").read_text()
        return [json.loads(line) for line in text.split("\n")[:-1]]


class TrainTest(TrainTestCase):
    def test_runs_are_trained_in_order_and_once(self):
        wanted = self.run_of("a"), self.run_of("b", "alpha=1", 2)
        lines = self.train(*wanted)
        self.assertEqual(
            self.calls()[1],
            {
                "problem": "p",
                "hparams_set": "the_set",
                "hparams": "alpha=1",
                "random_seed": "2",
                "output_dir": str(self.folder / "b"),
                "train_steps": "10",
                "log_step_count_steps": "1",
            },
        )
        times = r"\d:\d\d:\d\d left, all \d:\d\d:\d\d"
        for line, expected in zip(
            lines,
            (
                r"\[1/2\] a seed 1 begins\.",
                rf"\[1/2\] a seed 1  step 5/10  loss 1.50  2.0 .* {times}",
                rf"\[1/2\] a seed 1  step 10/10  loss 1.50  2.0 .* {times}",
                r"\[1/2\] a seed 1  step 10  dev loss 2.50  BLEU 33.30",
                r"\[2/2\] b seed 2 begins\.",
            ),
            strict=False,
        ):
            self.assertRegex(line, f"^{expected}$")
        self.assertLen(lines, 8)
        self.assertEqual(
            self.train(*wanted, self.run_of("c"))[:2],
            ["[1/3] a seed 1 is trained.", "[2/3] b seed 2 is trained."],
        )
        self.assertLen(self.calls(), 3)

    def test_run_is_resumed_and_only_new_events_are_reported(self):
        run = self.run_of("a")
        run.files.write_hparams(hparam.HParams())
        run.files.append_metrics({"step": 4, "split": "train", "loss": 9.0})
        (run.path / "ckpt-4.index").touch()
        lines = self.train(run)
        self.assertEqual(lines[0], "[1/1] a seed 1 goes on from step 4.")
        self.assertStartsWith(lines[1], "[1/1] a seed 1  step 5/10")

    def test_failure_is_reported_with_the_end_of_the_log(self):
        log = self.folder / "logs" / "a-seed1.log"
        log.parent.mkdir()
        log.write_text("of an earlier start\n")
        with self.assertRaises(errors.UserError) as caught:
            self.train(self.run_of("a", "fails"), self.run_of("b"))
        self.assertEqual(
            str(caught.exception),
            f"Training of a seed 1 failed with exit code 7. The end of {log}:"
            "\n  two\n  three\n  four\n  trainer: it is bad.",
        )
        self.assertLen(self.calls(), 1)
        self.assertStartsWith(log.read_text(), "of an earlier start\none\n")

    @parameterized.parameters(
        ("killed", "failed with signal SIGKILL. The end of .*: nothing."),
        ("nothing", "ended before step 10, without an error; see "),
    )
    def test_end_without_a_message_is_reported(self, mode, message):
        log = self.folder / "logs" / "a-seed1.log"
        log.parent.mkdir()
        log.write_text("of an earlier start\n")
        with self.assertRaisesRegex(errors.UserError, message):
            self.train(self.run_of("a", mode))


class SignalTest(TrainTestCase):
    @parameterized.parameters(
        (signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, signals.Terminated)
    )
    def test_signal_reaches_the_run_once_and_it_saves(self, number, error):
        # A shell may have had the tests ignore it.
        before = signal.signal(number, signal.default_int_handler)
        self.addCleanup(signal.signal, number, before)
        run = self.run_of("a", "waits")

        def send():
            while not (run.path / "waits").exists():
                time.sleep(0.01)
            os.kill(os.getpid(), number)
            time.sleep(0.2)
            os.kill(os.getpid(), number)  # in a hurry

        sender = threading.Thread(target=send)
        sender.start()
        with signals.caught(), self.assertRaises(error):
            self.train(run, self.run_of("b"))
        sender.join()
        self.assertEqual(
            (run.path / "signals").read_text().split(), [str(signal.SIGTERM)]
        )
        self.assertEqual(run_dir.all_steps(run.path), [5])
        self.assertLen(self.calls(), 1)

    def test_process_has_a_group_of_its_own(self):
        (self.folder / "group.py").write_text(
            "import os; print(os.getpgid(0) == os.getpid())"
        )
        log = self.folder / "log"
        child_process.run([str(self.folder / "group.py")], log, "Looking")
        self.assertEqual(log.read_text(), "True\n")

    def test_input_of_any_length_reaches_the_process_whole(self):
        script = self.folder / "reads.py"
        script.write_text(
            "import sys; x = sys.stdin.buffer.read(); "
            "print(len(x), x == bytes(range(251)) * (len(x) // 251))"
        )
        log = self.folder / "log"
        for number in (0, 20_011):
            content = bytes(range(251)) * number
            child_process.run([str(script)], log, "Reading", content=content)
        self.assertEqual(log.read_text(), f"0 True\n{251 * 20_011} True\n")


class ProgressTest(absltest.TestCase):
    def test_time_left_follows_from_the_updates_so_far(self):
        folder = pathlib.Path(self.create_tempdir().full_path)
        (folder / "c").mkdir()
        (folder / "c" / "ckpt-40.index").touch()
        all_runs = [runs.Run(n, None, folder / n) for n in "abc"]
        now = [1000.0]
        progress = train_runs.TrainingProgress(all_runs, 100, lambda: now[0])

        def line(step, seconds):
            now[0] += seconds
            event = {"step": step, "split": "train", "loss": 1}
            text = progress.line(event | {"steps_per_second": 4})
            return text.partition("steps/s  ")[2]

        progress.begin(1, 0)
        # 2 s a step; then 75 here, 100 of b and 60 of c.
        self.assertEqual(line(25, 50), "0:02:30 left, all 0:07:50")
        self.assertEqual(line(100, 150), "0:00:00 left, all 0:05:20")
        now[0] += 10  # the last evaluation
        progress.end()
        progress.begin(2, 50)
        # Begun at 50: 10 steps in 5 s. Over all, 215 s for 110 steps.
        self.assertEqual(line(60, 5), "0:00:20 left, all 0:02:17")


if __name__ == "__main__":
    absltest.main()
