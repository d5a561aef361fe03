"""Tests of the masks, against pictures."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.layers import pairs

CAUSAL = ["100", "110", "111"]


def picture(mask):
    """Returns the rows of a mask `[Q, K]` as text."""
    return ["".join(str(int(x)) for x in row) for row in mask.numpy()]


class MasksTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        ((3, 3), CAUSAL),
        ((2, 4), ["1110", "1111"]),  # the last keys
        ((2, 4, 1), ["1100", "1110"]),
    )
    def test_queries_see_themselves_and_earlier_keys(self, lengths, expected):
        mask = pairs.Pairs(*lengths, causal=True).mask()
        self.assertEqual(picture(mask), expected)

    def test_masks_are_joined_and_none_allows_all(self):
        one = pairs.Pairs(3, 3, causal=True).mask()
        two = tf.abs(pairs.Pairs(3, 3).distances()) <= 1
        self.assertIsNone(pairs.join(None, None))
        self.assertIs(pairs.join(None, one), one)
        self.assertEqual(picture(pairs.join(one, two)), ["100", "110", "011"])

    @parameterized.parameters(
        (32.0, tf.float32, True),
        (100.0, tf.float32, False),
        (32.0, tf.float64, False),
    )
    def test_logits_up_to_32_are_lost_beside_a_mask(self, size, dtype, lost):
        logits = size * np.array([[[[-1.0, 0.1, 1.0]]]])
        weights = pairs.softmax(
            tf.constant(logits, dtype), pairs.to_bias(False), dtype
        )
        equal = np.full([1, 1, 1, 3], 1 / 3)
        (self.assertAllClose if lost else self.assertNotAllClose)(
            weights, equal
        )
