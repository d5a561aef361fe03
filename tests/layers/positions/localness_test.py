"""Tests of the Gaussian bias.

Shapes: B batch, H heads, Q queries, K keys, D depth per head, F features.
"""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.layers import attention
from relpos_tf.layers.positions import localness
from tests import oracles
from tests import testing

B, H, Q, K, F = 2, 3, 5, 7, 12
D = F // H


def made(kind, **kwargs):
    """Returns a layer whose weights are all different from 0."""
    layer = localness.Gaussians(F, H, kind=kind, **kwargs)
    layer.build((None, None, F))
    return testing.randomize(layer)


def silent(kind, **kwargs):
    """Returns a layer that predicts the middle, and half of the keys."""
    layer = made(kind, **kwargs)
    for weight in layer.weights:
        weight.assign(tf.zeros(weight.shape))
    return layer


def zeros(length=K):
    return tf.zeros([1, 1, F]), tf.zeros([1, H, length, D])


class LocalnessTest(tf.test.TestCase, parameterized.TestCase):
    def test_a_fixed_window_by_hand(self):
        # I = 4: P = 2. The window is 2: sigma = 1, G = -(j - 2)^2 / 2.
        bias = silent("fixed", window=2)(
            *zeros(5), size=4, positions=tf.range(5)
        )
        self.assertEqual(tuple(bias.shape), (1, H, 1, 5))
        self.assertAllClose(bias[0, 1, 0], [-2.0, -0.5, 0.0, -0.5, -2.0])

    @parameterized.parameters("layer", "query")
    def test_a_predicted_window_by_hand(self, kind):
        # I = 8: P = 4, window 4, sigma = 2, G = -(j - 4)^2 / 8.
        bias = silent(kind)(*zeros(3), size=8, positions=tf.constant([0, 4, 8]))
        self.assertAllClose(bias[0, 2, 0], [-2.0, 0.0, -2.0])

    def test_a_window_is_never_less_than_one_position(self):
        # I = 1: P = window = 1/2, which counts as 1: sigma = 1/2.
        layer = silent("query")
        bias = layer(*zeros(2), size=1, positions=tf.range(2))
        self.assertAllClose(bias[0, 0, 0], [-0.5, -0.5])
        # However small the prediction, nothing is divided by 0.
        layer.window_vectors.assign(tf.fill([F, H], -1e30))
        layer.position_hidden.kernel.assign(tf.ones([F, F]))
        x, keys = zeros()
        with tf.GradientTape() as tape:
            tape.watch(x)
            bias = layer(x + 1.0, keys, size=7, positions=tf.range(K))
        self.assertAllInRange(bias, -2 * 7.0**2, 0.0)
        self.assertTrue(np.all(np.isfinite(tape.gradient(bias, x))))

    @parameterized.product(kind=localness.KINDS, masked=[True, False])
    def test_equals_the_loops(self, kind, masked):
        layer = made(kind, window=3.5)
        x = 2.0 * testing.normal(1, B, Q, F)
        keys = testing.normal(2, B, H, K, D)
        seen = np.ones([B, H, Q, K], bool)
        if masked:  # each head sees something else, the last query nothing
            seen = testing.normal(3, B, H, Q, K) > 0.0
            seen[:, :, -1] = False
        size = seen.sum(-1)
        bias = layer(
            tf.constant(x, tf.float32),
            tf.constant(keys, tf.float32),
            size=size if masked else K,
            positions=tf.range(K),
            may_attend=seen if masked else None,
        )
        weights = testing.named_weights(layer)
        for b, h, i in np.ndindex(B, H, Q):
            means = [
                keys[b, g, seen[b, g, i]].sum(0) / max(1, size[b, g, i])
                for g in range(H)
            ]
            expected = oracles.gaussian(
                weights,
                kind,
                3.5,
                x[b, i],
                np.concatenate(means),
                size[b, h, i],
                h,
            )
            self.assertAllClose(
                bias[b, h, i], [expected(j) for j in range(K)], rtol=1e-4
            )

    @parameterized.product(kind=localness.KINDS, causal=[False, True])
    def test_padding_on_the_left_changes_nothing(self, kind, causal):
        layer = attention.TransformerAttention(
            F, H, positions=[localness.Localness(kind, window=3)]
        )
        x = testing.normal(1, B, K, F).astype(np.float32)
        layer.build((None, None, F))
        testing.randomize(layer)
        expected = layer(x, use_causal_mask=causal)
        # On the right in the first example, on the left in the second.
        padded = np.zeros([B, K + 3, F], np.float32) + 5.0
        mask = np.ones([B, K + 3], bool)
        padded[0, :K], padded[1, 3:] = x
        mask[0, K:] = mask[1, :3] = False
        found = layer(padded, mask=mask, use_causal_mask=causal)
        self.assertAllClose(found[0, :K], expected[0], 1e-5, 1e-5)
        self.assertAllClose(found[1, 3:], expected[1], 1e-5, 1e-5)

    def test_positions_are_told_apart_in_bfloat16(self):
        # bfloat16 has eight bits: of 1,000 positions it would see 250.
        layer = silent("fixed", dtype="mixed_bfloat16")
        bias = layer(*zeros(1000), size=1000, positions=tf.range(1000))
        self.assertEqual(bias.dtype, tf.float32)
        expected = -((np.arange(1000) - 500.0) ** 2) / 50
        self.assertAllClose(bias[0, 0, 0], expected, rtol=1e-5)
        self.assertEqual({w.dtype for w in layer.weights}, {"float32"})

    def test_float64_stays_float64(self):
        layer = silent("query", dtype="float64")
        x, keys = (tf.cast(t, tf.float64) for t in zeros())
        bias = layer(x, keys, size=K, positions=tf.range(K))
        self.assertEqual(bias.dtype, tf.float64)
        expected = [-((j - 3.5) ** 2) / (2 * 1.75**2) for j in range(K)]
        self.assertAllClose(bias[0, 0, 0], expected, 1e-14, 1e-14)

    def test_a_copy_from_its_config_is_equal(self):
        layer = made("layer", window=3)
        copy = localness.Gaussians.from_config(layer.get_config())
        self.assertEqual(copy.get_config(), layer.get_config())

    @parameterized.parameters("float16", "bfloat16")
    def test_half_precision_alone_equals_mixed_precision(self, dtype):
        mixed = made("query", dtype=f"mixed_{dtype}")
        half = localness.Gaussians(F, H, kind="query", dtype=dtype)
        half.build((None, None, F))
        half.set_weights(mixed.get_weights())
        mixed.set_weights([tf.cast(w, dtype) for w in mixed.get_weights()])
        x = tf.constant(testing.normal(1, B, Q, F), dtype)
        keys = tf.constant(testing.normal(2, B, H, K, D), dtype)
        found, expected = (
            layer(x, keys, size=K, positions=tf.range(K))
            for layer in (half, mixed)
        )
        self.assertEqual(found.dtype, tf.float32)
        self.assertAllClose(found, expected, rtol=1e-5)


if __name__ == "__main__":
    tf.test.main()
