"""The example of a text classifier: its data, its masks, what it shows."""

from unittest import mock

import numpy as np
from absl.testing import absltest

from tests import examples

EXAMPLE = examples.load("keras_text_classifier")


class KerasTextClassifierTest(absltest.TestCase):
    def test_the_class_says_whether_a_is_before_b(self):
        ids, classes = EXAMPLE.texts(200, 4, 20, seed=3)
        lengths = set()
        for line, a_first in zip(ids.tolist(), classes, strict=True):
            self.assertEqual((line.count(1), line.count(2)), (1, 1))
            self.assertEqual(line.index(1) < line.index(2), bool(a_first))
            length = line.index(0) if 0 in line else 20
            self.assertEqual(line[length:], [0] * (20 - length))
            self.assertNotIn(0, line[:length])
            lengths.add(length)
        self.assertEqual(lengths, set(range(4, 21)))
        self.assertEqual(set(classes.tolist()), {0, 1})
        again, _ = EXAMPLE.texts(200, 4, 20, seed=3)
        np.testing.assert_array_equal(again, ids)

    def test_padding_changes_no_prediction(self):
        ids, _ = EXAMPLE.texts(5, 4, 20, seed=3)
        padded = np.pad(ids, ((0, 0), (0, 9)))
        for relative in (True, False):
            model = EXAMPLE.build(relative)
            np.testing.assert_allclose(model(padded), model(ids), atol=1e-5)

    def test_relative_positions_hold_for_longer_texts(self):
        with mock.patch.object(EXAMPLE, "BATCH_SIZE", 32):
            short, long = EXAMPLE.accuracies(True, 1000, 4, seed=1)
        self.assertGreater(short, 0.97)
        self.assertGreater(long, 0.85)
