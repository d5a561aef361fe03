"""Training of several runs at once, by the trainer of train_runs_test."""

import fcntl
import json
import os
import signal
import threading
import time
from unittest import mock

from absl.testing import absltest

from relpos_tf import errors
from relpos_tf.comparison import child_process
from relpos_tf.comparison import jobs
from relpos_tf.comparison import side_by_side
from relpos_tf.models import run_dir
from relpos_tf.utils import locks
from relpos_tf.utils import signals
from tests.comparison import train_runs_test

SLOTS = jobs.Slots((jobs.Slot(), jobs.Slot()), 4, 0)
SHARING = {"jobs": 2, "cores": 4, "gpus": 0}


class TrainTest(train_runs_test.TrainTestCase):
    def train(self, *wanted):
        """Trains; returns the lines that were written."""
        with self.assertLogs("relpos_tf", "INFO") as logs:
            try:
                side_by_side.train(
                    wanted, {"problem": "p"}, 10, self.folder / "logs", SLOTS
                )
            finally:
                self.lines = [r.getMessage() for r in logs.records]
        return self.lines

    def test_every_run_is_trained_once_with_lines_of_its_own(self):
        wanted = [self.run_of(x, "alpha=1", n) for n, x in enumerate("abc", 1)]
        lines = self.train(*wanted)
        self.assertCountEqual(
            [
                (call["output_dir"], call["random_seed"])
                for call in self.calls()
            ],
            [(str(run.path), str(run.seed)) for run in wanted],
        )
        for number, run in enumerate(wanted, start=1):
            start = f"[{number}/3] {run.title}"
            own = [line for line in lines if line.startswith(start)]
            self.assertEqual(own[0], f"{start} begins.")
            self.assertRegex(own[1], r"step 5/10  loss .* left, all \d:\d\d")
            self.assertEqual(
                own[3], f"{start}  step 10  dev loss 2.50  BLEU 33.30"
            )
            self.assertEqual(run.files.read_sharing(), SHARING)
        self.assertLen(lines, 12)
        self.assertEqual(
            self.train(*wanted),
            [
                f"[{n}/3] {run.title} is trained."
                for n, run in enumerate(wanted, 1)
            ],
        )

    def test_others_wait_until_the_first_run_has_prepared_the_data(self):
        seen, start = [], child_process.Child

        def watched_start(*args, **kwargs):
            paths = [self.folder / name / "hparams.json" for name in "abc"]
            seen.append(sum(path.exists() for path in paths))
            return start(*args, **kwargs)

        with mock.patch.object(child_process, "Child", watched_start):
            self.train(*(self.run_of(name) for name in "abc"))
        self.assertEqual(seen[0], 0)
        self.assertGreaterEqual(min(seen[1:]), 1)

    def test_failed_runs_are_named_and_tried_again(self):
        logs = self.folder / "logs"
        wanted = [self.run_of(*x) for x in (("a", "fails"), ("b", "nothing"))]
        good = self.run_of("c")
        with self.assertRaises(errors.UserError) as caught:
            self.train(*wanted, good)
        self.assertEqual(
            str(caught.exception),
            f"Training failed for 2 of 3: a seed 1 (see {logs}/a-seed1.log), b "
            f"seed 1 (see {logs}/b-seed1.log). Run the command again to try "
            "these again.",
        )
        self.assertEqual(run_dir.all_steps(good.path), [10])
        self.assertLen(self.calls(), 3)
        self.train(self.run_of("a"), self.run_of("b"), good)
        paths = [call["output_dir"] for call in self.calls()[3:]]
        self.assertCountEqual(paths, [str(run.path) for run in wanted])

    def test_run_that_another_process_trains_is_waited_for(self):
        run = self.run_of("a")
        run.path.mkdir()
        descriptor = os.open(run.path, os.O_RDONLY)
        fcntl.flock(descriptor, fcntl.LOCK_EX)

        def release():
            while not (self.folder / "b" / "ckpt-10.index").exists():
                time.sleep(0.01)
            os.close(descriptor)

        thread = threading.Thread(target=release)
        thread.start()
        lines = self.train(run, self.run_of("b"))
        thread.join()
        self.assertEqual(
            lines[0], f"Another process is training {run.path}: waiting for it."
        )
        self.assertEqual(lines.count(lines[0]), 1)
        paths = [call["output_dir"] for call in self.calls()]
        self.assertEqual(paths, [str(self.folder / x) for x in "ba"])

    def test_trainer_that_has_not_locked_its_run_is_waited_for(self):
        # As after SIGKILL, when a trainer still imports TensorFlow.
        log = self.folder / "logs" / "a-seed1.log"
        child_process.Child(["-S", "-c", ""], log, "Older").wait()
        self.assertFalse(locks.is_open(log))
        child = child_process.Child(
            ["-S", "-c", "import time; time.sleep(0.5)"], log, "Old"
        )
        self.assertTrue(locks.is_open(log))
        lines = self.train(self.run_of("a"))
        self.assertFalse(child.is_running)
        self.assertIn("waiting for it", lines[0])
        self.assertEqual(lines[1], "[1/1] a seed 1 begins.")

    def test_interrupted_runs_go_on_from_the_states_that_they_saved(self):
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, before)
        waiting = [self.run_of(name, "waits") for name in "ab"]

        def send():
            while not all((run.path / "waits").exists() for run in waiting):
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGINT)

        sender = threading.Thread(target=send)
        sender.start()
        with signals.caught(), self.assertRaises(KeyboardInterrupt):
            self.train(*waiting, self.run_of("c"))
        sender.join()
        for run in waiting:
            self.assertEqual(run_dir.all_steps(run.path), [5])
        self.assertLen(self.calls(), 2)
        lines = self.train(*map(self.run_of, "abc"))
        self.assertEqual(lines[0], "[1/3] a seed 1 goes on from step 5.")
        for name in "abc":
            self.assertIn(10, run_dir.all_steps(self.folder / name))

    def test_record_keeps_the_larger_number_of_jobs(self):
        files = self.run_of("a").files
        self.assertIsNone(files.read_sharing())
        for number in (3, 2):
            files.write_sharing(SHARING | {"jobs": number})
        self.assertEqual(files.read_sharing(), SHARING | {"jobs": 3})
        path = files.path / "sharing.json"
        path.write_text(json.dumps({"jobs": 2}))
        self.assertIsNone(files.read_sharing())


class ProgressTest(train_runs_test.TrainTestCase):
    def test_time_left_is_of_all_runs_together(self):
        runs = [self.run_of(name) for name in "abc"]
        (self.folder / "c").mkdir()
        (self.folder / "c" / "ckpt-40.index").touch()
        now = [1000.0]
        progress = side_by_side.Progress(runs, 100, lambda: now[0])

        def line(number, step):
            event = {"step": step, "split": "train", "loss": 1}
            text = progress.line(number, event | {"steps_per_second": 4})
            return text.partition("steps/s  ")[2]

        progress.begin(1)
        now[0] += 10
        progress.begin(3)
        now[0] += 40
        # a: 2 s a step. All: 25 of 260 steps in 50 s.
        self.assertEqual(line(1, 25), "0:02:30 left, all 0:07:50")
        # c: 20 steps in 40 s, 40 left. All: 45 steps in 50 s, 215 left.
        self.assertEqual(line(3, 60), "0:01:20 left, all 0:03:59")
        self.assertEqual(
            progress.summary(),
            "of 100: a seed 1 25, c seed 1 60  all 0:03:59 left",
        )
        progress.end(1)
        self.assertEqual(
            progress.summary(), "of 100: c seed 1 60  all 0:03:59 left"
        )


if __name__ == "__main__":
    absltest.main()
