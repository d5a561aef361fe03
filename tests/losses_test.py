"""Tests of the loss, against its definition in NumPy."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf import losses

B, T, V = 2, 3, 5


def smoothed_cross_entropy(logits, labels, smoothing):
    """The definition: sum_v p[v] (log p[v] - log q[v]), token by token."""
    total, count = 0.0, 0
    for b, t in np.ndindex(labels.shape):
        if labels[b, t] == 0:
            continue
        q = np.exp(logits[b, t] - logits[b, t].max())
        q /= q.sum()
        p = np.full(len(q), smoothing / (len(q) - 1))
        p[labels[b, t]] = 1 - smoothing
        seen = p > 0
        total += np.sum(p[seen] * (np.log(p[seen]) - np.log(q[seen])))
        count += 1
    return total, count


class PaddedCrossEntropyTest(tf.test.TestCase, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        random = np.random.default_rng(3)
        self.logits = 2 * random.normal(size=(B, T, V)).astype(np.float32)
        self.labels = np.array([[4, 1, 0], [2, 0, 0]])

    @parameterized.parameters(0.0, 0.1, 0.3)
    def test_equals_the_divergence_from_the_smoothed_label(self, smoothing):
        total, count = losses.padded_cross_entropy(
            tf.constant(self.logits), tf.constant(self.labels), smoothing
        )
        expected = smoothed_cross_entropy(self.logits, self.labels, smoothing)
        self.assertAllClose((total, count), expected, rtol=1e-5)

    @parameterized.parameters(0.0, 0.2)
    def test_gradient_equals_finite_differences(self, smoothing):
        logits = tf.constant(self.logits)
        with tf.GradientTape() as tape:
            tape.watch(logits)
            total, _ = losses.padded_cross_entropy(
                logits, tf.constant(self.labels), smoothing
            )
            tripled = 3.0 * total
        gradient = tape.gradient(tripled, logits).numpy()
        numeric = np.zeros_like(gradient)
        for place in np.ndindex(gradient.shape):
            values = []
            for change in (-1e-4, 1e-4):
                moved = self.logits.astype(np.float64)
                moved[place] += change
                values.append(
                    smoothed_cross_entropy(moved, self.labels, smoothing)[0]
                )
            numeric[place] = 3.0 * (values[1] - values[0]) / 2e-4
        self.assertAllClose(gradient, numeric, atol=1e-4)

    def test_padding_alone_costs_nothing_and_counts_nothing(self):
        total, count = losses.padded_cross_entropy(
            tf.constant(self.logits), tf.zeros([B, T], tf.int32), 0.1
        )
        self.assertEqual((float(total), float(count)), (0.0, 0.0))

    def test_no_rows_cost_nothing(self):
        total, count = losses.padded_cross_entropy(
            tf.zeros([0, T, V]), tf.zeros([0, T], tf.int32), 0.1
        )
        self.assertEqual((float(total), float(count)), (0.0, 0.0))

    def test_the_best_prediction_costs_nothing(self):
        best = np.log(np.where(np.arange(V) == 4, 0.9, 0.1 / (V - 1)))
        total, _ = losses.padded_cross_entropy(
            tf.constant(best[None, None].astype(np.float32)),
            tf.constant([[4]]),
            0.1,
        )
        self.assertAllClose(total, 0.0, atol=1e-6)

    def test_xla_gives_the_same_loss_and_gradient(self):
        def both(logits):
            with tf.GradientTape() as tape:
                tape.watch(logits)
                total, _ = losses.padded_cross_entropy(
                    logits, tf.constant(self.labels), 0.1
                )
            return total, tape.gradient(total, logits)

        logits = tf.constant(self.logits)
        compiled = tf.function(both, jit_compile=True)(logits)
        for one, other in zip(compiled, both(logits), strict=True):
            self.assertAllClose(one, other, rtol=1e-5)


if __name__ == "__main__":
    tf.test.main()
