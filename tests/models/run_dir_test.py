"""Tests of a run's files."""

import json
import os
import pathlib
import shutil
import subprocess
import unittest.mock

from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf import hparam
from relpos_tf.models import run_dir
from tests import folders
from tests import tiny_run


def event(step, **more):
    """Returns an event of metrics.jsonl."""
    return {"step": step, "split": "dev", "loss": 0.5, "bleu": 7.0, **more}


class RunDirTest(folders.TestCase):
    def setUp(self):
        super().setUp()
        self.run = run_dir.RunDir(self.folder)

    @unittest.skipUnless(shutil.which("git"), "git is not installed")
    def test_versions_have_the_commit_of_a_checkout(self):
        package = f"{self.folder}/relpos_tf/__init__.py"
        self.enter_context(unittest.mock.patch("relpos_tf.__file__", package))
        self.assertEqual(run_dir.versions()["relpos_tf commit"], "unknown")
        git = f"git -C {self.folder} -c user.name=x -c user.email=x"
        for words in ("init -q", "commit -qm x --allow-empty", "tag -m x 7"):
            subprocess.run([*git.split(), *words.split()], check=True)
        self.assertEqual(run_dir.versions()["relpos_tf commit"], "7")

    def test_hparams_come_back_or_are_refused(self):
        with self.assertRaisesRegex(errors.UserError, "Expected a run's"):
            self.run.read_hparams()
        hparams = hparam.HParams(hidden_size=48, alpha=0.25)
        self.run.write_hparams(hparams)
        self.assertEqual(self.run.read_hparams(), hparams)
        path = self.run.path / "hparams.json"
        text = path.read_text()
        path.write_text(text[:30])
        with self.assertRaisesRegex(errors.UserError, "hparams.json: "):
            self.run.read_hparams()
        # A user may edit it.
        path.write_text(text.replace("48", "64"))
        self.assertEqual(self.run.read_hparams().hidden_size, 64)
        values = hparams.to_dict()
        for more, words in (
            ({"hiden_size": 48}, "n: Unknown h"),
            ({"self_attention_type": "own"}, "`own` is not registered"),
        ):
            path.write_text(json.dumps(values | more))
            with self.assertRaisesRegex(errors.UserError, words):
                self.run.read_hparams()
        del values["alpha"], values["pos"]
        path.write_text(json.dumps(values))
        with self.assertRaisesRegex(errors.UserError, "fields alpha, pos"):
            self.run.read_hparams()

    def test_a_run_keeps_its_tokenizer(self):
        first, second = self.folder / "first", self.folder / "two.subwords"
        first.write_bytes(b"one")
        second.write_bytes(b"two")
        self.run.copy_tokenizer(second)
        self.run.write_hparams(hparam.HParams())
        other = self.run.path / "other"  # a run of its own
        other.mkdir()
        (other / "ckpt-7.npz").touch()
        self.run.copy_tokenizer(first)  # nothing is trained yet
        (self.run.path / "ckpt-7.npz").touch()
        self.run.copy_tokenizer(first)
        with self.assertRaisesRegex(errors.UserError, "is not the one"):
            self.run.copy_tokenizer(second)
        kept = pathlib.Path(self.run.tokenizer_path).read_bytes()
        self.assertEqual(kept, b"one")

    def test_line_torn_by_a_kill_is_dropped(self):
        first = event(1, text="ü\u2028")
        self.run.append_metrics(first)
        with open(self.run.path / "metrics.jsonl", "ab") as file:
            file.write('{"step": 2, "text": "ü'.encode()[:-1])
        self.assertEqual(self.run.read_metrics(), [first])
        self.run.append_metrics(event(3))
        self.assertEqual(self.run.read_metrics(), [first, event(3)])

    def test_events_after_the_checkpoint_are_dropped(self):
        self.run.truncate(5)  # nothing there yet
        for step in (4, 5, 6):
            self.run.append_metrics(event(step))
        for mark in (run_dir.EPOCH, run_dir.STOP, run_dir.BEST):
            self.run.mark(mark, 5)
            self.run.mark(mark, 6)
        (self.run.path / "average").mkdir()
        for step in (5, 6):
            (self.run.path / f"average/ckpt-{step}.npz").touch()
        self.run.truncate(5)
        averages = self.run.path.glob("average/*")
        self.assertEqual([path.name for path in averages], ["ckpt-5.npz"])
        self.assertEqual(self.run.read_metrics(), [event(4), event(5)])
        marks = {path.name for path in self.run.path.glob("ckpt-*")}
        self.assertEqual(marks, {"ckpt-5.epoch", "ckpt-5.stop", "ckpt-5.best"})

    @parameterized.parameters(
        ("\0\0", "expected JSON"),
        ("3", "expected a JSON object"),
        ("[" * 100_000, "expected JSON"),
        ('{"split": "dev"}', "the fields loss, step. Received: split"),
        (
            '{"step": "7", "split": "dev", "loss": 1}',
            "`step` must be of type int.*'7'",
        ),
    )
    def test_line_of_another_kind_is_named(self, line, expected):
        self.run.append_metrics(event(1))
        with open(self.run.path / "metrics.jsonl", "a") as file:
            file.write(f"{line}\n")
        with self.assertRaisesRegex(
            errors.UserError, f"line 2, is damaged: .*{expected}.*Remove the"
        ):
            self.run.read_metrics()

    @parameterized.parameters(
        ({"tokenizer_sha256": 7}, "`tokenizer_sha256` must be of"),
        ({"data": {"train": 7}}, "`data` must be of type dict"),
    )
    def test_damaged_problem_is_refused(self, fields, message):
        self.assertEqual(self.run.read_problem(), {})
        expected = tiny_run.PROBLEM | {"more": 7}
        self.run.write_problem(expected)
        self.assertEqual(self.run.read_problem(), expected)
        self.run.write_problem(expected | fields)
        with self.assertRaisesRegex(
            errors.UserError, f"problem.json is damaged: {message}"
        ):
            self.run.read_problem()
        del expected["data"]
        self.run.write_problem(expected)
        with self.assertRaisesRegex(errors.UserError, "the fields data. Recei"):
            self.run.read_problem()


class LatestRunTest(folders.TestCase):
    def make(self, name, seconds, hparams=True, step=10):
        folder = self.folder / name
        folder.mkdir(parents=True)
        if hparams:
            (folder / "hparams.json").write_text("{}")
        if step:
            checkpoint = folder / f"ckpt-{step}.npz"
            checkpoint.touch()
            os.utime(checkpoint, (seconds, seconds))

    def test_the_run_of_the_newest_checkpoint_or_average_is_the_latest(self):
        self.make("old", 100)
        self.make("group/new", 200)
        self.make("old/average", 300, hparams=False)
        self.make("older", None, step=None)
        self.make("older/average", 250, hparams=False)
        self.make("without_checkpoint", 400, step=None)
        self.make("no_run", 500, hparams=False)
        for name in ("old", "older", "group/new"):
            latest = run_dir.latest_run(str(self.folder))
            self.assertEqual(latest, self.folder / name)
            shutil.rmtree(latest)

    def test_none_is_an_error_that_says_what_to_do(self):
        with self.assertRaisesRegex(errors.UserError, "relpos-trainer"):
            run_dir.latest_run(str(self.folder))
        with self.assertRaisesRegex(errors.UserError, "with --model"):
            run_dir.latest_run(str(self.folder), "--model")


class SameArchitectureTest(parameterized.TestCase):
    @parameterized.parameters(
        ("", "pos=none", "pos=timing .now none"),
        ("pos=emb", "max_length=41", "max_length=256 .now 41"),
        ("", "heads_share_relative_embedding=1", "heads_share_relative"),
        ("", "attention_window=3", "attention_window"),
        ("", "localness=query", "localness"),
    )
    def test_other_weights_or_layers_are_an_error(self, old, change, words):
        old = hparam.HParams().override(old)
        with self.assertRaisesRegex(errors.UserError, words):
            run_dir.check_same_architecture(old, old.override(change))

    @parameterized.parameters(
        *("attention_dropout=0.25", "learning_rate_warmup_steps=7"),
        "max_length=41",  # without learned positions
        "moving_average_decay=0.25",
    )
    def test_another_way_to_train_is_a_warning(self, change):
        old = hparam.HParams()
        lines = run_dir.check_same_architecture(old, old.override(change))
        name, _, value = change.partition("=")
        was = getattr(old, name)
        self.assertEqual(
            lines, [f"{name} was {was} in this run so far and is now {value}."]
        )

    def test_another_end_is_not_told_as_the_flag_may_decide_it(self):
        old = hparam.HParams()
        new = old.replace(train_steps=7)
        self.assertEqual(run_dir.check_same_architecture(old, new), [])
