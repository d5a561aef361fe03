"""Tests that train tiny runs on a problem of their own."""

import pathlib
import types
from unittest import mock

import tensorflow as tf

from relpos_tf import hparam
from relpos_tf import registry
from relpos_tf.models import checkpoints
from relpos_tf.models import run_dir
from relpos_tf.training import hosts
from relpos_tf.training import run_config
from relpos_tf.training import run_setup
from relpos_tf.training import train_step
from relpos_tf.training import trainer

EVALUATES = {"schedule": "continuous_train_and_eval"}
HPARAMS = hparam.HParams(
    hidden_size=8,
    filter_size=12,
    num_heads=2,
    num_hidden_layers=1,
    batch_size=128,
    max_length=32,
)


def moved(model, batch):
    """Adds to all weights a number that depends on the batch."""
    mean = tf.reduce_mean(tf.cast(batch["inputs"], tf.float32))
    for variable in model.trainable_variables:
        variable.assign_add(tf.fill(variable.shape, 0.01 * mean))


def untraced(update=moved):
    """Has a function of model and batch stand in for updates.

    The graph of an update takes seconds to trace.
    """

    def compile_step(strategy, model, optimizer, *args, **options):
        def step(*batches):
            for batch in batches:
                update(model, batch)
            optimizer.step.assign_add(1)
            sums = "loss", "target_tokens", "source_tokens"
            return dict.fromkeys(sums, 1.0) | {"is_made": True}

        return step

    return mock.patch.object(train_step, "compile_step", compile_step)


class TestCase(tf.test.TestCase):
    """Prepares a problem once for all tests of a class.

    Attributes:
        hparams: `hparam.HParams` of the runs; the subclass may set it.
        config: dict of fields of `RunConfig`; the subclass may set it.
        folder: The folder of the runs.
        data_dir: str. The folder of the prepared data.
        problem: The problem.
    """

    hparams = HPARAMS
    config = types.MappingProxyType({})

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folder = pathlib.Path(cls.create_tempdir(cls()).full_path)
        cls.data_dir = str(cls.folder / "data")
        cls.problem = registry.problem("algorithmic_reverse")
        cls.problem.prepare(cls.data_dir, str(cls.folder))

    @classmethod
    def trainer(cls, name, steps, hparams="", **config):
        """Returns the `Trainer` of a run, which it may begin or go on with."""
        run = run_dir.RunDir(cls.folder / name)
        hparams = cls.hparams.override(hparams).replace(
            vocab_size=cls.problem.manifest(cls.data_dir)["vocab_size"]
        )
        run_setup.write_run(run, hparams, cls.problem, cls.data_dir, "")
        return cls.trainer_of(run, hparams, train_steps=steps, **config)

    @classmethod
    def trainer_of(cls, run, hparams, **config):
        """Returns the `Trainer` of a run whose directory is there."""
        config = {"schedule": "train", **cls.config, **config}
        return trainer.Trainer(
            hparams,
            cls.problem,
            cls.data_dir,
            run,
            hosts.Hosts(tf.distribute.get_strategy()),
            run_config.RunConfig(**config),
        )

    def values_in(self, prefix):
        """Returns the variables of a checkpoint as arrays, by name."""
        return checkpoints.read(self.folder / prefix)

    def assert_same_values(self, first, second):
        """Checks that two checkpoints are equal, bit for bit."""
        self.assert_equal_values(self.values_in(first), self.values_in(second))

    def assert_equal_values(self, first, second):
        """Checks that two dicts of arrays are equal, bit for bit."""
        self.assertEqual(first.keys(), second.keys())
        for key, value in first.items():
            self.assertAllEqual(value, second[key], key)
