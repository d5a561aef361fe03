"""Training of all runs, by a trainer that only writes its files."""

import json
from unittest import mock

from relpos_tf import hparam
from relpos_tf.comparison import jobs
from relpos_tf.comparison import runs
from relpos_tf.comparison import train_runs
from tests import folders

# Trains to step 10, and evaluates there.
HPARAMS = json.dumps(hparam.HParams(train_steps=10).to_dict())
FAKE = f"HPARAMS = {HPARAMS!r}"
FAKE += """
import json, pathlib, sys
flags = dict(a.removeprefix("--").split("=", 1) for a in sys.argv[1:])
mode = flags.get("hparams")
folder = pathlib.Path(flags["output_dir"])
with open(folder.parent / "calls.jsonl", "a") as file:
    file.write(json.dumps(flags) + "\\n")
folder.mkdir(exist_ok=True)
if mode == "fails":
    sys.exit("trainer: it is bad.")
(folder / "hparams.json").write_text(HPARAMS)
print("of the trainer")
event = {"step": 10, "split": "dev", "loss": 2.5}
(folder / "metrics.jsonl").write_text(json.dumps(event) + "\\n")
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

    def train(self, *wanted):
        """Trains; returns the lines that were written."""
        flags = {"problem": "p", "tmp_dir": "", "vocab_size": None}
        with self.assertLogs("relpos_tf", "INFO") as lines:
            train_runs.train(wanted, flags, 10, self.folder / "logs")
        return [r.getMessage() for r in lines.records]

    def calls(self):
        text = (self.folder / "calls.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]

    def test_runs_are_trained_in_order_and_once(self):
        wanted = self.run_of("a"), self.run_of("b", "alpha=1", 0)
        lines = self.train(*wanted)
        self.assertEqual(
            self.calls()[1],
            {
                "problem": "p",
                "hparams_set": "the_set",
                "hparams": "alpha=1",
                "random_seed": "0",
                "output_dir": str(self.folder / "b"),
                "train_steps": "10",
                "log_step_count_steps": "1",
            },
        )
        self.assertEqual(
            lines,
            [
                "Training 1 of 2: a seed 1.",
                "[1/2] of the trainer",
                "Training 2 of 2: b seed 0.",
                "[2/2] of the trainer",
            ],
        )
        self.assertEqual(
            self.train(*wanted, self.run_of("c"))[:2],
            ["a seed 1 is trained.", "b seed 0 is trained."],
        )
        self.assertLen(self.calls(), 3)

    def test_failed_runs_are_named_and_tried_again(self):
        logs = self.folder / "logs"
        wanted = [self.run_of(label, "fails") for label in "ab"]
        said = "\n".join(self.train(*wanted, self.run_of("c")))
        for words in (
            "2 of 3",
            f"{logs}/a-seed1.log",
            f"{logs}/b-seed1.log",
            "trainer: it is bad.",
        ):
            self.assertIn(words, said)
        self.train(*map(self.run_of, "abc"))
        paths = [call["output_dir"] for call in self.calls()[3:]]
        self.assertEqual(paths, [str(run.path) for run in wanted])
