"""The loss of tensor2tensor: sums, tokens and gradients.

Its arrays have two more axes, for images: `[B, T, 1, 1, V]`.
"""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.layers import losses
from tests import testing

CASES = testing.t2t_cases("xent", "t2t_training.npz")
WITH_DETAILS = [case for case in CASES if "out/grad" in case[2]]


def flat(arrays):
    """Returns logits `[B, T, V]` and labels `[B, T]`."""
    return arrays["in/logits"][:, :, 0, 0], arrays["in/labels"][:, :, 0, 0]


class PaddedCrossEntropyT2tTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.named_parameters(*CASES)
    def test_sum_and_count_are_equal(self, settings, arrays):
        logits, labels = flat(arrays)
        smoothing = settings["label_smoothing"]
        total, count = losses.padded_cross_entropy(
            tf.constant(logits), tf.constant(labels), smoothing
        )
        self.assertAllClose(total, arrays["out/loss_num"], rtol=1e-5, atol=0)
        self.assertEqual(float(count), float(arrays["out/loss_den"]))

    @parameterized.named_parameters(*WITH_DETAILS)
    def test_each_token_costs_the_same(self, settings, arrays):
        logits, labels = flat(arrays)
        expected = arrays["out/xent"][:, :, 0, 0]
        for b, t in np.ndindex(labels.shape):
            cost, _ = losses.padded_cross_entropy(
                tf.constant(logits[b : b + 1, t : t + 1]),
                tf.constant(labels[b : b + 1, t : t + 1]),
                settings["label_smoothing"],
            )
            self.assertAllClose(cost, expected[b, t], rtol=1e-5, atol=1e-5)

    @parameterized.named_parameters(*WITH_DETAILS)
    def test_gradients_of_the_mean_are_equal(self, settings, arrays):
        logits, labels = flat(arrays)
        logits = tf.constant(logits)
        with tf.GradientTape() as tape:
            tape.watch(logits)
            total, count = losses.padded_cross_entropy(
                logits, tf.constant(labels), settings["label_smoothing"]
            )
            mean = total / count
        self.assertAllClose(
            tape.gradient(mean, logits),
            arrays["out/grad"][:, :, 0, 0],
            rtol=1e-5,
            atol=1e-7,
        )
