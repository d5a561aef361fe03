"""Training of all runs, by a trainer that only writes its files."""

import json
import os
import pathlib
import signal
import threading
import time
from unittest import mock

from absl.testing import absltest

from relpos_tf import errors
from relpos_tf import hparam
from relpos_tf.comparison import jobs
from relpos_tf.comparison import runs
from relpos_tf.comparison import slots as slots_lib
from relpos_tf.comparison import train_runs
from relpos_tf.models import run_dir
from relpos_tf.utils import signals

ONE = slots_lib.divide(1)
TWO = slots_lib.Slots((slots_lib.Slot(), slots_lib.Slot()), 4, 0)
SHARING = {"jobs": 2, "cores": 4, "gpus": 0}
# Trains to step 10, evaluates there; saves when it is told to stop.
FAKE = f"HPARAMS = {hparam.HParams(train_steps=10).to_json()!r}"
FAKE += """
import json, pathlib, signal, sys, time
flags = dict(a.removeprefix("--").split("=", 1) for a in sys.argv[1:])
folder = pathlib.Path(flags["output_dir"])
with open(folder.parent / "calls.jsonl", "a") as file:
    file.write(json.dumps(flags) + "\\n")
folder.mkdir(exist_ok=True)

def stop(number, frame):
    (folder / "ckpt-5.npz").touch()
    sys.exit(0)

signal.signal(signal.SIGTERM, stop)
mode = flags["hparams"]
if mode == "fails":
    sys.exit("trainer: it is bad.")
if mode != "nothing":
    (folder / "hparams.json").write_text(HPARAMS)
    with open(folder / "metrics.jsonl", "a") as file:
        for step in (5, 10):
            event = {"step": step, "split": "train", "loss": 1.5}
            event |= {"steps_per_second": 2.0, "tokens_per_second": 9.0}
            event |= {"target_tokens": 9.0, "peak_memory_mb": 9.0}
            file.write(json.dumps(event) + "\\n")
            file.flush()
            if mode == "waits" and step == 5:
                (folder / "waits").touch()
                time.sleep(60)
        event = {"step": 10, "split": "dev", "loss": 2.5, "bleu": 33.3}
        file.write(json.dumps(event) + "\\n")
    (folder / "ckpt-10.npz").touch()
"""


class TrainTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)
        script = self.folder / "fake.py"
        script.write_text(FAKE)
        for module, name, value in (
            (train_runs, "TRAINER", [str(script)]),
            (jobs, "POLL_SECONDS", 0.05),
        ):
            patch = mock.patch.object(module, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def run_of(self, label, mode="", seed=1):
        return runs.Run(label, seed, self.folder / label, "the_set", mode)

    def train(self, *wanted, slots=ONE):
        """Trains; returns the lines that were written."""
        logs = self.folder / "logs"
        with self.assertLogs("relpos_tf", "INFO") as lines:
            try:
                train_runs.train(wanted, {"problem": "p"}, 10, logs, slots)
            finally:
                self.lines = [r.getMessage() for r in lines.records]
        return self.lines

    def calls(self):
        text = (self.folder / "calls.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]

    def test_runs_are_trained_in_order_and_once(self):
        wanted = self.run_of("a"), self.run_of("b", "alpha=1", 2)
        lines = self.train(*wanted)
        flags = {"random_seed": "2", "hparams": "alpha=1", "problem": "p"}
        self.assertEqual(self.calls()[1], self.calls()[1] | flags)
        self.assertEqual(lines[0], "[1/2] a seed 1 begins.")
        self.assertRegex(
            lines[1],
            r"^\[1/2\] a seed 1  step 5/10  loss 1.50  2.0 steps/s  all runs: "
            r"\d:\d\d:\d\d left$",
        )
        self.assertEqual(
            lines[3:5],
            [
                "[1/2] a seed 1  step 10  dev loss 2.50  BLEU 33.30",
                "[2/2] b seed 2 begins.",
            ],
        )
        self.assertIsNone(wanted[0].read_sharing())
        self.assertEqual(
            self.train(*wanted, self.run_of("c"))[:2],
            ["[1/3] a seed 1 is trained.", "[2/3] b seed 2 is trained."],
        )
        self.assertLen(self.calls(), 3)

    def test_runs_at_once_say_so_and_wait_for_the_data(self):
        seen, start = [], jobs.start

        def watched_start(*args):
            paths = [self.folder / name / "hparams.json" for name in "abc"]
            seen.append(sum(path.exists() for path in paths))
            return start(*args)

        wanted = [self.run_of(name) for name in "abc"]
        with mock.patch.object(jobs, "start", watched_start):
            self.train(*wanted, slots=TWO)
        self.assertEqual(seen[0], 0)
        self.assertGreaterEqual(min(seen[1:]), 1)
        for run in wanted:
            self.assertEqual(run_dir.all_steps(run.path), [10])
            self.assertEqual(run.read_sharing(), SHARING)
        # Of two records, the larger number of jobs stays.
        run.write_sharing(SHARING | {"jobs": 1})
        self.assertEqual(run.read_sharing(), SHARING)

    def test_failed_runs_are_named_and_tried_again(self):
        logs = self.folder / "logs"
        wanted = [self.run_of(*x) for x in (("a", "fails"), ("b", "nothing"))]
        with self.assertRaises(errors.UserError) as caught:
            self.train(*wanted, self.run_of("c"), slots=TWO)
        self.assertEqual(
            str(caught.exception),
            f"Training failed for 2 of 3: a seed 1 (see {logs}/a-seed1.log), b "
            f"seed 1 (see {logs}/b-seed1.log). Run the command again to try "
            "these again.",
        )
        said = "\n".join(self.lines)
        self.assertIn("trainer: it is bad.", said)
        self.assertIn("b seed 1 ended before step 10, without an error", said)
        self.train(*map(self.run_of, "abc"), slots=TWO)
        paths = [call["output_dir"] for call in self.calls()[3:]]
        self.assertCountEqual(paths, [str(run.path) for run in wanted])

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
            self.train(*waiting, self.run_of("c"), slots=TWO)
        sender.join()
        for run in waiting:
            self.assertEqual(run_dir.all_steps(run.path), [5])
        self.assertLen(self.calls(), 2)
        lines = self.train(*map(self.run_of, "abc"), slots=TWO)
        self.assertIn("[1/3] a seed 1 goes on from step 5.", lines)
        for name in "abc":
            self.assertIn(10, run_dir.all_steps(self.folder / name))


if __name__ == "__main__":
    absltest.main()
