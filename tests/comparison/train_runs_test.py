"""Training of all runs, by a trainer that only writes its files."""

import json
from unittest import mock

from relpos_tf import hparam
from relpos_tf.comparison import jobs
from relpos_tf.comparison import runs
from relpos_tf.comparison import slots as slots_lib
from relpos_tf.comparison import train_runs
from relpos_tf.models import run_dir
from tests import folders

ONE = slots_lib.divide(1)
TWO = slots_lib.Slots((slots_lib.Slot(), slots_lib.Slot()), 4, 0)
SHARING = {"jobs": 2, "cores": 4, "gpus": 0}
# Trains to step 10, and evaluates there.
HPARAMS = json.dumps(hparam.HParams(train_steps=10).to_dict())
FAKE = f"HPARAMS = {HPARAMS!r}"
FAKE += """
import json, pathlib, sys
flags = dict(a.removeprefix("--").split("=", 1) for a in sys.argv[1:])
folder = pathlib.Path(flags["output_dir"])
with open(folder.parent / "calls.jsonl", "a") as file:
    file.write(json.dumps(flags) + "\\n")
folder.mkdir(exist_ok=True)
if flags["hparams"] == "fails":
    sys.exit("trainer: it is bad.")
(folder / "hparams.json").write_text(HPARAMS)
with open(folder / "metrics.jsonl", "a") as file:
    for step in (5, 10):
        event = {"step": step, "split": "train", "loss": 1.5}
        event |= {"steps_per_second": 2.0, "tokens_per_second": 9.0}
        event |= {"target_tokens": 9.0, "peak_memory_mb": 9.0}
        file.write(json.dumps(event) + "\\n")
    event = {"step": 10, "split": "dev", "loss": 2.5, "bleu": 33.3}
    file.write(json.dumps(event) + "\\n")
(folder / "ckpt-10.npz").touch()
"""


class TrainTest(folders.TestCase):
    def setUp(self):
        super().setUp()
        script = str(self.write("fake.py", FAKE))
        for module, name, value in (
            (train_runs, "TRAINER", [script]),
            (jobs, "POLL_SECONDS", 0.05),
        ):
            self.enter_context(mock.patch.object(module, name, value))

    def run_of(self, label, mode="", seed=1):
        return runs.Run(label, seed, self.folder / label, "the_set", mode)

    def train(self, *wanted, slots=ONE):
        """Trains; returns the lines that were written."""
        logs = self.folder / "logs"
        with self.assertLogs("relpos_tf", "INFO") as lines:
            train_runs.train(wanted, {"problem": "p"}, 10, logs, slots)
        return [r.getMessage() for r in lines.records]

    def calls(self):
        text = (self.folder / "calls.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]

    def test_runs_are_trained_in_order_and_once(self):
        wanted = self.run_of("a"), self.run_of("b", "alpha=1", 2)
        lines = self.train(*wanted)
        flags = {"random_seed": "2", "hparams": "alpha=1", "problem": "p"}
        self.assertEqual(self.calls()[1], self.calls()[1] | flags)
        self.assertRegex(
            "\n".join(lines),
            r"(?s)a seed 1 begins.*step 5/10  loss 1.50  2.0 steps/s .*\d left"
            r".*dev loss 2.50  BLEU 33.30.*b seed 2 begins",
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
        wanted = [self.run_of(label, "fails") for label in "ab"]
        said = "\n".join(self.train(*wanted, self.run_of("c"), slots=TWO))
        for words in (
            "2 of 3",
            f"{logs}/a-seed1.log",
            f"{logs}/b-seed1.log",
            "trainer: it is bad.",
        ):
            self.assertIn(words, said)
        self.train(*map(self.run_of, "abc"), slots=TWO)
        paths = [call["output_dir"] for call in self.calls()[3:]]
        self.assertCountEqual(paths, [str(run.path) for run in wanted])
