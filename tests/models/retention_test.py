"""The checkpoints and events that a resumed run keeps."""

import pathlib
import shutil
import tempfile

import tensorflow as tf
from absl.testing import absltest

from relpos_tf import errors
from relpos_tf import hparam
from relpos_tf import registry
from relpos_tf.models import run_dir as run_dir_lib
from relpos_tf.training import hosts
from relpos_tf.training import run_config
from relpos_tf.training import run_setup
from relpos_tf.training import trainer as trainer_lib

HPARAMS = hparam.HParams(
    hidden_size=8,
    filter_size=12,
    num_heads=2,
    num_hidden_layers=1,
    batch_size=64,
    max_length=32,
    average_checkpoints=2,
)


class RetentionTest(absltest.TestCase):
    @classmethod
    def setUpClass(cls):
        """Trains a run for 7 updates and saves all checkpoints."""
        super().setUpClass()
        cls.shared = pathlib.Path(tempfile.mkdtemp(prefix="retention."))
        cls.addClassCleanup(shutil.rmtree, cls.shared)
        cls.problem = registry.problem("algorithmic_reverse")
        cls.problem.prepare(cls.shared / "data")
        cls.trainer(cls.shared / "run", train_steps=7).train()

    def setUp(self):
        super().setUp()
        self.run_dir = pathlib.Path(self.create_tempdir().full_path, "run")

    @classmethod
    def trainer(cls, run_dir, **options):
        """Begins or resumes a run that saves every step."""
        data_dir = str(cls.shared / "data")
        group = hosts.Hosts(tf.distribute.get_strategy())
        run, hparams = run_setup.open_run(
            group,
            str(run_dir),
            cls.problem,
            data_dir,
            HPARAMS,
            "",
        )
        defaults = {
            "local_eval_frequency": 1,
            "log_step_count_steps": 5,
            "evaluate": False,
        }
        return trainer_lib.Trainer(
            hparams,
            cls.problem,
            data_dir,
            run,
            group,
            run_config.RunConfig(**defaults | options),
        )

    def copy_run(self):
        shutil.copytree(self.shared / "run", self.run_dir)

    def steps(self):
        return run_dir_lib.all_steps(self.run_dir)

    def train_events(self, run_dir):
        """Returns the fields of training events that a resume must repeat."""
        names = "step", "loss", "target_tokens", "skipped_steps"
        events = run_dir_lib.RunDir(run_dir).read_metrics()
        return [
            [event[name] for name in names]
            for event in events
            if event["split"] == "train"
        ]

    def test_resume_keeps_the_best_and_repeats_the_events(self):
        self.copy_run()
        # A kill after the third checkpoint leaves these files.
        for path in self.run_dir.glob("ckpt-[4-7].*"):
            path.unlink()
        run = run_dir_lib.RunDir(self.run_dir)
        for step, bleu in ((1, 5.0), (2, 7.0), (3, 3.0)):
            event = {"step": step, "split": "dev", "loss": 1.0, "bleu": bleu}
            run.append_metrics(event)
        # Events of another split and of an average score no checkpoint.
        for extra in ({"split": "test"}, {"split": "dev", "averaged": 2}):
            run.append_metrics({"step": 3, "loss": 1.0, "bleu": 99.0} | extra)
        self.trainer(self.run_dir, train_steps=7, keep_checkpoint_max=2).train()
        self.assertEqual(self.steps(), [2, 6, 7])
        events = self.train_events(self.run_dir)
        self.assertEqual([event[0] for event in events], [5, 7])
        self.assertEqual(events, self.train_events(self.shared / "run"))

    def test_evaluation_data_are_checked_before_the_first_step(self):
        folder = self.problem.folder(self.shared / "data")
        ids = folder / "dev.ids"
        options = {"evaluate": True, "train_steps": 3}
        for path, content, message in (
            (ids, b"7", "dev.ids is damaged"),
            (folder / "dev.target", b"7\n", "dev.target is damaged"),
        ):
            original = path.read_bytes()
            path.write_bytes(content)
            with self.assertRaisesRegex(errors.UserError, message):
                self.trainer(self.run_dir, **options).train()
            path.write_bytes(original)
        with self.assertRaisesRegex(errors.UserError, "no split 'quiz'"):
            self.trainer(self.run_dir, eval_split="quiz", **options).train()
        self.assertEmpty(self.steps())

    def test_events_before_the_first_checkpoint_are_removed(self):
        trainer = self.trainer(self.run_dir)
        trainer.run.append_metrics(
            {"step": 3, "split": "dev", "loss": 1.0, "bleu": 7.0}
        )
        self.assertEmpty(self.trainer(self.run_dir).run.read_metrics())
