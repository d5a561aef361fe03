"""Tests of R-Drop's loss, against its definition in NumPy."""

from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.layers import consistency
from relpos_tf.layers import losses
from relpos_tf.layers import row_blocks
from tests import testing

B, T, V, F = 2, 3, 5, 7
ALPHA = 3.0
LABELS = np.array([[4, 1, 0], [2, 0, 4]])


def log_softmax(logits):
    shifted = logits - logits.max()
    return shifted - np.log(np.sum(np.exp(shifted)))


def r_drop(first, second, smoothing, alpha=ALPHA, labels=LABELS):
    """Liang et al. (2021), equations 1 to 3, token by token, and halved.

    Returns:
        The loss, and its part without the divergences.
    """
    loss, cross_entropy = 0.0, 0.0
    for b, t in np.ndindex(labels.shape):
        if labels[b, t] == 0:
            continue
        target = np.full(V, smoothing / (V - 1))
        target[labels[b, t]] = 1 - smoothing
        least = -sum(q * np.log(q) for q in target if q > 0)
        log_p1, log_p2 = log_softmax(first[b, t]), log_softmax(second[b, t])
        nll = -np.sum(target * log_p1) - np.sum(target * log_p2) - 2 * least
        kl_12 = np.sum(np.exp(log_p1) * (log_p1 - log_p2))
        kl_21 = np.sum(np.exp(log_p2) * (log_p2 - log_p1))
        loss += 0.5 * (nll + alpha * 0.5 * (kl_12 + kl_21))
        cross_entropy += 0.5 * nll
    return loss, cross_entropy


class ConsistencyTest(tf.test.TestCase, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        random = np.random.default_rng(5)
        self.features = random.normal(size=(2 * B, T, F)).astype(np.float32)
        self.table = random.normal(size=(V, F)).astype(np.float32)
        self.logits = self.features @ self.table.T

    def projected(self, features, table, smoothing, factor=1.0, alpha=ALPHA):
        """Returns both sums and the gradients of `factor` times the first."""
        features, table = tf.constant(features), tf.constant(table)
        with tf.GradientTape() as tape:
            tape.watch([features, table])
            loss, cross_entropy = consistency.projected_loss(
                features, table, tf.constant(LABELS), smoothing, alpha
            )
            scaled = factor * loss
        gradients = tape.gradient(scaled, [features, table])
        return loss, cross_entropy, *gradients

    @parameterized.parameters(0.0, 0.2)
    def test_loss_of_logits_equals_the_definition(self, smoothing):
        logits = tf.constant(self.logits)
        with tf.GradientTape() as tape:
            tape.watch(logits)
            found = consistency.padded_loss(
                logits, tf.constant(LABELS), smoothing, ALPHA
            )
            tripled = 3.0 * found[0]
        expected = r_drop(self.logits[:B], self.logits[B:], smoothing)
        self.assertAllClose(found, expected, rtol=1e-5)
        testing.assert_gradients(
            self,
            [tape.gradient(tripled, logits)],
            lambda x: 3.0 * r_drop(x[:B], x[B:], smoothing)[0],
            [self.logits.astype(np.float64)],
            rtol=1e-4,
            atol=1e-4,
        )

    @parameterized.product(smoothing=(0.0, 0.2), rows=(1, 3, 4))
    def test_loss_of_features_equals_the_definition(self, smoothing, rows):
        # 4 labels: four blocks, or one of 3 and one of 1, or one.
        with mock.patch.object(row_blocks, "MOST_NUMBERS", rows * V):
            found = self.projected(self.features, self.table, smoothing, 3.0)

        def expected(features, table):
            logits = features @ table.T
            return r_drop(logits[:B], logits[B:], smoothing)

        self.assertAllClose(
            found[:2], expected(self.features, self.table), rtol=1e-5
        )
        testing.assert_gradients(
            self,
            found[2:],
            lambda *arrays: 3.0 * expected(*arrays)[0],
            [a.astype(np.float64) for a in (self.features, self.table)],
            rtol=1e-4,
            atol=1e-4,
        )

    def test_equal_passes_have_the_loss_and_gradients_of_one(self):
        one = tf.constant(self.features[:B])
        table = tf.constant(self.table)
        with tf.GradientTape() as tape:
            tape.watch([one, table])
            total, _ = losses.projected_cross_entropy(
                one, table, tf.constant(LABELS), 0.1
            )
        d_one, d_table = tape.gradient(total, [one, table])
        found = self.projected(tf.concat([one, one], 0), table, 0.1)
        self.assertAllClose(found[:2], [total, total], rtol=1e-6)
        halves = tf.concat([d_one, d_one], 0) / 2
        self.assertAllClose(found[2], halves, rtol=1e-5, atol=1e-6)
        self.assertAllClose(found[3], d_table, rtol=1e-5, atol=1e-6)

    def test_padding_costs_nothing(self):
        found = consistency.projected_loss(
            tf.constant(self.features),
            tf.constant(self.table),
            tf.zeros([B, T], tf.int32),
            0.1,
            ALPHA,
        )
        self.assertAllEqual(found, [0.0, 0.0])

    def test_no_rows_cost_nothing(self):
        found = consistency.projected_loss(
            tf.zeros([0, T, F]),
            tf.constant(self.table),
            tf.zeros([0, T], tf.int32),
            0.1,
            ALPHA,
        )
        self.assertAllEqual(found, [0.0, 0.0])

    def test_nan_shows_in_both_sums(self):
        self.features[-1, -1, 0] = np.nan
        found = self.projected(self.features, self.table, 0.1)
        self.assertAllEqual(np.isnan(found[:2]), [True, True])

    def test_a_label_of_no_probability_has_its_exact_loss(self):
        features = np.zeros((2 * B, T, F), np.float32)
        features[..., 0] = 1.0
        features[B:, :, 0] = 2.0
        table = np.zeros((V, F), np.float32)
        table[3, 0] = 150.0  # exp(-150) is 0 in float32
        found = self.projected(features, table, 0.0)
        # 4 labels; d is -150 where p is 1, so both divergences are 0.
        self.assertAllClose(found[:2], [4 * 225.0, 4 * 225.0])
        for gradient in found[2:]:
            self.assertTrue(np.all(np.isfinite(gradient)))

    def test_bfloat16_keeps_the_gradient_of_a_sure_prediction(self):
        # As in losses_test: p = .994 and more of each label. bfloat16 can
        # represent both logits, 6.5 and 7.3125.
        features = np.zeros((2 * B, T, F), np.float32)
        features[..., 0] = 1.0
        features[B:, :, 0] = 1.125
        table = np.zeros((V, F), np.float32)
        table[4] = [6.5, 1.1, 1.3, -0.7, 0.9, -1.7, 2.3]
        labels = np.full((B, T), 4)
        found = []
        for dtype in (tf.float32, tf.bfloat16):
            arrays = [tf.cast(x, dtype) for x in (features, table)]
            with tf.GradientTape() as tape:
                tape.watch(arrays)
                loss, _ = consistency.projected_loss(
                    *arrays, tf.constant(labels), 0.0, ALPHA
                )
            found.append(tape.gradient(loss, arrays)[0])
        self.assertAllClose(
            tf.cast(found[1], tf.float32), found[0], rtol=0.03, atol=0.0
        )

    def test_long_sums_of_bfloat16_are_added_up_in_float32(self):
        # 4,099 equal tokens, in blocks of 29: bfloat16 ends at 256 times one.
        one = np.array([1.0, 0.5, -1.5, 2.0, 0.25, 1.0, -0.5], np.float32)
        features = np.tile(one, (2, 4099, 1))
        features[1] *= 1.25
        table = np.round(8 * self.table) / 8
        found = []
        for dtype in (tf.float32, tf.bfloat16):
            arrays = [tf.cast(x, dtype) for x in (features, table)]
            with (
                mock.patch.object(row_blocks, "MOST_NUMBERS", 29 * V),
                tf.GradientTape() as tape,
            ):
                tape.watch(arrays)
                loss, _ = consistency.projected_loss(
                    *arrays, tf.fill([1, 4099], 4), 0.1, ALPHA
                )
            gradient = tape.gradient(loss, arrays)[1]
            found.append(tf.cast(gradient, tf.float32).numpy())
        error = np.abs(found[1] - found[0]).max() / np.abs(found[0]).max()
        self.assertLess(error, 0.03)

    def test_xla_and_bfloat16_are_close(self):
        plain = self.projected(self.features, self.table, 0.1)
        compiled = tf.function(
            lambda: self.projected(self.features, self.table, 0.1),
            jit_compile=True,
        )()
        for one, other in zip(compiled, plain, strict=True):
            self.assertAllClose(one, other, rtol=1e-5, atol=1e-6)
        rounded = self.projected(
            tf.cast(self.features, tf.bfloat16),
            tf.cast(self.table, tf.bfloat16),
            0.1,
        )
        self.assertEqual([x.dtype for x in rounded[:2]], [tf.float32] * 2)
        self.assertEqual([g.dtype for g in rounded[2:]], [tf.bfloat16] * 2)
        for one, other in zip(rounded, plain, strict=True):
            self.assertAllClose(
                tf.cast(one, tf.float32), other, rtol=0.03, atol=0.08
            )


if __name__ == "__main__":
    tf.test.main()
