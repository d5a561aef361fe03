"""How far a mask counts beside the logits."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.layers import pairs


class MasksTest(tf.test.TestCase, parameterized.TestCase):
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
