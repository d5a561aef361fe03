"""The pairs that a run reads if it stops within an epoch and goes on."""

import collections
import shutil

import numpy as np
from absl.testing import parameterized

from tests.training import tiny_runs

STOP = 5  # the step, within epoch 0


def rows_of(batch):
    """Returns the texts of a batch, padded to 32 ids a side."""
    return [
        tuple(np.pad(row, (0, 32 - len(row))).tolist())
        for ids in (batch["inputs"].numpy(), batch["targets"].numpy())
        for row in ids
    ]


class OrderTest(tiny_runs.TestCase, parameterized.TestCase):
    hparams = tiny_runs.HPARAMS.replace(batch_size=512)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.begun = cls.read("begun", STOP)

    @classmethod
    def read(cls, name, steps, hparams="", **config):
        """Trains without real updates; returns the batches by their places."""
        read = {}

        def update(model, batch):
            read[int(batch["epoch"]), int(batch["position"])] = rows_of(batch)

        with tiny_runs.untraced(update):
            cls.trainer(name, steps, hparams, **config).train()
        return read

    def go_on(self, steps, hparams="", **config):
        """Goes on with a copy of the run that has begun."""
        folder = self.folder / "resumed"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.folder / "begun", folder)
        return self.read("resumed", STOP + steps, hparams, **config)

    def assert_each_once(self, batches):
        """Checks that batches have every pair of the data once."""
        tokens = self.problem.tokens(self.data_dir, "train")
        total = np.array([int(tokens.lengths.sum())])
        ids = tokens.rows(np.array([0]), total).ids
        texts = np.split(ids, np.cumsum(tokens.lengths)[:-1])
        rows = [tuple(np.pad(ids, (0, 32 - len(ids)))) for ids in texts]
        found = collections.Counter(row for rows in batches for row in rows)
        self.assertEqual(found, collections.Counter(rows))

    @parameterized.parameters(
        ("", 1), ("optimizer_multistep_accumulate_steps=3", 3)
    )
    def test_with_the_same_order_each_pair_comes_once(self, hparams, number):
        with self.assertNoLogs("relpos_tf", "ERROR"):
            found = self.go_on(60 // number, hparams)
        self.assertEqual(min(found), (0, STOP + 1))
        ends = {p: b for p, b in (self.begun | found).items() if p[0] == 0}
        self.assertGreater(max(found), (1, 1))
        self.assert_each_once(ends.values())

    @parameterized.parameters(
        ("batch_size=480", 1),
        ("min_length_bucket=5", 1),
        ("max_length=31", 1),
        ("pair_concatenation=0.5", 1),
        ("", 2),
    )
    def test_with_another_order_the_next_epoch_begins(self, hparams, seed):
        with self.assertLogs("relpos_tf", "WARNING") as logs:
            found = self.go_on(80, hparams, random_seed=seed)
        self.assertIn("of epoch 1 is left out, and the next", logs.output[-1])
        self.assertEqual(min(found), (1, 1))
        if "pair" not in hparams:
            ends = [batch for place, batch in found.items() if place[0] == 1]
            self.assertGreater(max(found), (2, 1))
            self.assert_each_once(ends)
        # It is said once: the next checkpoint is of the new order.
        with self.assertNoLogs("relpos_tf", "WARNING"):
            again = self.read("resumed", STOP + 81, hparams, random_seed=seed)
        epoch, position = max(found)
        self.assertEqual([*again], [(epoch, position + 1)])
