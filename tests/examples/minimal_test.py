"""The page of the idea: it learns, and translates by what it may see alone.

By hand, all of it: python examples/minimal.py
"""

from unittest import mock

import numpy as np
from absl.testing import absltest

from tests import examples

MINIMAL = examples.load("minimal")


class MinimalTest(absltest.TestCase):
    def test_a_short_run_lowers_the_loss_and_translates(self):
        folder = self.create_tempdir().full_path
        sizes = {"BATCH_SIZE": 32, "LONGEST": 5, "BLOCKS": 1}
        with mock.patch.multiple(MINIMAL, **sizes):
            losses, found = MINIMAL.main(steps=20, lines=7, data_dir=folder)
        self.assertLen(losses, 20)
        self.assertLess(np.mean(losses[-3:]), losses[0] - 1)
        self.assertLen(found, 7)
        for text in found:
            self.assertIsInstance(text, str)

    def test_padding_and_later_targets_change_no_logits(self):
        with mock.patch.object(MINIMAL, "BLOCKS", 1):
            model = MINIMAL.transformer(29)
        source, before = np.array([[5, 23, 1]]), np.array([[0, 11, 7, 3]])
        logits = np.array(model([source, before]))
        other = np.array([[0, 11, 17, 2]])
        again = np.array(model([np.pad(source, [[0, 0], [0, 2]]), other]))
        np.testing.assert_allclose(again[:, :2], logits[:, :2], atol=1e-5)
        self.assertGreater(np.abs(again - logits)[:, 2:].max(), 0.01)
