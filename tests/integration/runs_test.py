"""Runs as a user starts them: trained, stopped, resumed, used.

The long form of the interruptions is tests/campaigns/kill.py.
"""

import json
import pathlib
import re
import shlex
import shutil
import signal
import time

from absl.testing import absltest

from relpos_tf.bin import trainer
from relpos_tf.models import run_dir
from tests import documents
from tests.bin import calls
from tests.campaigns import kill

STEPS, FREQUENCY = 40, 30
HPARAMS = (
    "hidden_size=16,filter_size=24,num_heads=2,num_hidden_layers=1,"
    "self_attention_type=dot_product,pos=timing,"  # quick to trace
    "batch_size=128,beam_size=1,extra_length=2,"
    "symbol_dropout=0.1,weight_decay=0.3,"
    "moving_average_decay=0.9,bpe_dropout=0.2,pair_concatenation=0.4"
)
OPTIONS = (
    "--problem=algorithmic_reverse",
    f"--hparams={HPARAMS}",
    f"--local_eval_frequency={FREQUENCY}",
    "--bleu_tokenize=char",
    "--log_step_count_steps=7",  # not a divisor of FREQUENCY
)


def start(folder, line=None):
    """Starts a trainer in a process; `line` replaces its command line."""
    options = (
        *OPTIONS,
        f"--train_steps={STEPS}",
        "--deterministic",
        "--profile",
    )
    return kill.Run(folder, options, line)


class RunsTest(absltest.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.root = pathlib.Path(cls.create_tempdir(cls()).full_path)
        # One run without interruptions serves all tests.
        cls.whole = start(cls.root / "whole")
        if cls.whole.finish() != 0:
            raise RuntimeError(cls.whole.text())

    def start(self, name, line=None):
        run = start(self.root / name, line)
        self.addCleanup(run.process.stderr.close)
        self.addCleanup(run.process.kill)
        return run

    def test_the_page_names_every_file_of_a_run_and_every_field(self):
        page = (documents.ROOT / "docs" / "run_folder.md").read_text("utf-8")
        rows = re.findall(r"^\| (`.*?) \|", page, re.M)
        named = {name for row in rows for name in re.findall("`(.+?)`", row)}
        names = (
            path.name + "/" * path.is_dir()
            for path in self.whole.directory.iterdir()
        )
        files = {
            re.sub(r"(tfevents\.).*", r"\1*", re.sub("-\\d+", "-STEP", name))
            for name in names
        }
        events = run_dir.RunDir(self.whole.directory).read_metrics()
        given = files.union(*events) - {"step", "split", "loss"}
        # This run makes no average, has no such stop, and uses no XLA.
        others = "average/ckpt-STEP.npz ckpt-STEP.epoch ckpt-STEP.stop xla/"
        self.assertEqual(given | {*others.split(), "averaged"}, named)

    def test_events_and_messages_of_a_run(self):
        with open(self.whole.directory / "metrics.jsonl") as file:
            events = [json.loads(line) for line in file]
        self.assertEqual(
            [(e["step"], e["split"]) for e in events if e["step"] >= 28],
            [(28, "train"), (30, "dev"), (35, "train")]
            + [(STEPS, "train"), (STEPS, "dev")],
        )
        self.assertIn("tok:char", events[-1]["bleu_signature"])
        self.assertIn(f"step {STEPS}/{STEPS}", self.whole.text())
        self.assertIn("BLEU", self.whole.text())
        self.assertNotIn("Traceback", self.whole.text())
        log = (self.whole.directory / "train.log").read_text()
        said = re.sub(r"(?m)^[-\d]{10} [:\d]{8}  ", "", log)
        self.assertEndsWith(self.whole.text().rstrip(), said.rstrip())
        self.assertStartsWith(said, "Preparing ")

    def test_two_replicas_resume_a_run_of_one(self):
        copy = self.root / "copy"
        shutil.copytree(self.whole.directory, copy)
        # This process has two CPUs.
        code, _, error = calls.execute(
            trainer.main,
            *OPTIONS,
            f"--data_dir={self.whole.folder / 'data'}",
            f"--output_dir={copy}",
            f"--train_steps={STEPS + 2}",
            "--schedule=train",
        )
        self.assertEqual(code, 0, error)
        self.assertIn(f"steps {STEPS} to {STEPS + 2}, 2 x 128 tok", error)
        self.assertEqual(run_dir.all_steps(copy)[-1], STEPS + 2)

    def assert_kept(self, run, saved):
        """Checks that all `saved` files are there; returns today's files."""
        self.assertNotIn("Traceback", run.text())
        now = kill.checkpoints_in(run.directory)
        self.assertEqual({name: now.get(name) for name in saved}, saved)
        return now

    def test_run_stopped_and_killed_equals_one_without_interruptions(self):
        folder = self.root / "it's stopped"
        folder.mkdir()
        shutil.copytree(self.whole.folder / "data", folder / "data")

        line, saved = self.interrupt_and_terminate(folder.name)

        run = self.start(folder.name, line)
        run.wait_for_half(0)
        self.assertEqual(run.stop(signal.SIGKILL), -signal.SIGKILL)
        self.assertNotEmpty(kill.halves(folder))
        saved = self.assert_kept(run, saved)

        run = self.start(folder.name)
        self.assertEqual(run.finish(), 0, run.text())
        self.assert_kept(run, saved)
        self.assertEmpty(kill.differences(run, self.whole, saved, STEPS))

    def interrupt_and_terminate(self, name):
        """Sends both signals; returns the printed command and the files."""
        # A shell that runs the tests in the background ignores SIGINT for
        # them; a process inherits that, but not a handler.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, before)
        run = self.start(name)
        self.assertTrue(run.wait_for(r"^step 7/"), run.text())
        run.process.send_signal(signal.SIGINT)
        time.sleep(0.01)
        self.assertEqual(run.stop(signal.SIGTERM), -signal.SIGINT, run.text())
        self.assertEmpty(kill.halves(run.folder))
        [step] = run_dir.all_steps(run.directory)
        self.assertBetween(step, 7, FREQUENCY - 1)
        self.assertIn(f"saved up to step {step}. Run again with:", run.text())
        log = (run.directory / "train.log").read_text()
        self.assertRegex(log, r"\d  relpos-trainer: stopped by SIGINT\.\n\Z")
        line = run.lines[-2][1].strip()
        self.assertEqual(shlex.split(line), run.process.args)
        return line, self.assert_kept(run, {})
