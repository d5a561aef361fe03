"""Tests of the loss, against NumPy and tensor2tensor.

Tensor2tensor's arrays have two more axes, for images: `[B, T, 1, 1, V]`.
"""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.layers import losses
from tests import testing

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


def halves(*arrays):
    return [tf.cast(array, tf.bfloat16) for array in arrays]


class ProjectedCrossEntropyTest(tf.test.TestCase, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        random = np.random.default_rng(5)
        self.features = random.normal(size=(B, T, 7)).astype(np.float32)
        self.table = random.normal(size=(V, 7)).astype(np.float32)
        self.labels = np.array([[4, 1, 0], [2, 0, 4]])

    def first_feature(self):
        return np.eye(1, 7, dtype=np.float32) * np.ones((B, T, 1), np.float32)

    def loss_and_gradients(self, features, table, smoothing, factor=1.0):
        features, table = tf.constant(features), tf.constant(table)
        with tf.GradientTape() as tape:
            tape.watch([features, table])
            total, count = losses.projected_cross_entropy(
                features, table, tf.constant(self.labels), smoothing
            )
            scaled = factor * total
        return total, count, *tape.gradient(scaled, [features, table])

    @parameterized.parameters(0.0, 0.2)
    def test_equals_the_loss_of_the_product(self, smoothing):
        found = self.loss_and_gradients(
            self.features, self.table, smoothing, 3.0
        )

        def total(features, table):
            return smoothed_cross_entropy(
                features @ table.T, self.labels, smoothing
            )[0]

        self.assertEqual(float(found[1]), 4.0)
        self.assertAllClose(
            found[0], total(self.features, self.table), rtol=1e-5, atol=1e-5
        )
        testing.assert_gradients(
            self,
            found[2:],
            lambda *arrays: 3.0 * total(*arrays),
            [a.astype(np.float64) for a in (self.features, self.table)],
            rtol=1e-4,
            atol=1e-4,
        )

    def test_a_label_of_no_probability_has_its_exact_loss(self):
        features, table = self.first_feature(), np.zeros((V, 7), np.float32)
        table[3, 0] = 200.0  # exp(-200) is 0 in float32
        total, count, *gradients = self.loss_and_gradients(features, table, 0.0)
        self.assertAllClose(total / count, 200.0, atol=1e-4)
        for gradient in gradients:
            self.assertTrue(np.all(np.isfinite(gradient)))

    def test_a_feature_that_is_no_number_shows_in_the_loss(self):
        self.features[0, 0, 0] = np.nan
        total, *_ = self.loss_and_gradients(self.features, self.table, 0.1)
        self.assertTrue(np.isnan(total))

    def test_bfloat16_keeps_the_gradient_of_a_sure_prediction(self):
        # p = .995 of the label; bfloat16 has 3 digits, so p times the table
        # less the label's row would be half lost.
        features, table = self.first_feature(), np.zeros((V, 7), np.float32)
        table[4] = [6.75, 1.1, 1.3, -0.7, 0.9, -1.7, 2.3]
        self.labels = np.full((B, T), 4)
        _, _, exact, _ = self.loss_and_gradients(features, table, 0.0)
        _, _, rounded, _ = self.loss_and_gradients(
            *halves(features, table), smoothing=0.0
        )
        self.assertAllClose(
            tf.cast(rounded, tf.float32), exact, rtol=0.02, atol=1e-4
        )

    def test_xla_and_bfloat16_are_close(self):
        plain = self.loss_and_gradients(self.features, self.table, 0.1)
        compiled = tf.function(
            lambda: self.loss_and_gradients(self.features, self.table, 0.1),
            jit_compile=True,
        )()
        for one, other in zip(compiled, plain, strict=True):
            self.assertAllClose(one, other, rtol=1e-5, atol=1e-6)
        rounded = self.loss_and_gradients(
            *halves(self.features, self.table), smoothing=0.1
        )
        self.assertEqual(rounded[0].dtype, tf.float32)
        self.assertEqual([g.dtype for g in rounded[2:]], [tf.bfloat16] * 2)
        for one, other in zip(rounded, plain, strict=True):
            self.assertAllClose(
                tf.cast(one, tf.float32), other, rtol=0.03, atol=0.03
            )


class PaddedDivergenceTest(tf.test.TestCase):
    def test_equals_the_definition_and_its_gradients(self):
        random = np.random.default_rng(7)
        arrays = [random.normal(size=(B, T, V)) * 3 for _ in range(2)]
        labels = np.array([[4, 1, 0], [2, 0, 4]])

        def total(*arrays):
            powers = map(np.exp, arrays)
            p, q = (a / a.sum(-1, keepdims=True) for a in powers)
            return np.sum((p * (np.log(p) - np.log(q)))[labels != 0])

        logits = [tf.constant(a, tf.float32) for a in arrays]
        with tf.GradientTape() as tape:
            tape.watch(logits)
            found = losses.padded_divergence(*logits, tf.constant(labels))
        self.assertAllClose(found, total(*arrays), rtol=1e-5, atol=1e-5)
        testing.assert_gradients(
            self,
            tape.gradient(found, logits),
            total,
            arrays,
            rtol=1e-4,
            atol=1e-4,
        )


class PaddedCrossEntropyT2tTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.named_parameters(
        *testing.t2t_cases("xent", "t2t_training.npz")
    )
    def test_sum_count_and_gradients_are_equal(self, settings, arrays):
        logits = tf.constant(arrays["in/logits"][:, :, 0, 0])  # [B, T, V]
        labels = tf.constant(arrays["in/labels"][:, :, 0, 0])  # [B, T]
        with tf.GradientTape() as tape:
            tape.watch(logits)
            total, count = losses.padded_cross_entropy(
                logits, labels, settings["label_smoothing"]
            )
            mean = total / count
        self.assertAllClose(total, arrays["out/loss_num"], 1e-5, 1e-5)
        self.assertEqual(float(count), float(arrays["out/loss_den"]))
        if "out/grad" in arrays:
            self.assertAllClose(
                tape.gradient(mean, logits),
                arrays["out/grad"][:, :, 0, 0],
                rtol=1e-5,
                atol=1e-7,
            )
