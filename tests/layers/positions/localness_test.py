"""Tests of the Gaussian bias.

Shapes: B batch, H heads, Q queries, K keys, D depth per head, F features.
"""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.layers import attention
from relpos_tf.layers import pairs
from relpos_tf.layers.positions import localness
from tests.layers import schemes

B, H, Q, K, F = 2, 3, 5, 7, 12
D = F // H


def silent(window, **kwargs):
    """Returns a layer that predicts the middle, and half of the keys."""
    layer = schemes.made(F, H, localness.Localness(window), **kwargs)
    for weight in layer.weights:
        weight.assign(tf.zeros(weight.shape))
    return layer


def bias_of(layer, x, keys, mask=None, number=K):
    """Returns the Gaussian bias of a layer with one scheme."""
    where = pairs.Pairs(x.shape[1], number, 0, mask)
    return layer.positions[0].bias(x, keys, where)


def zeros(length=K, dtype=tf.float32):
    return tf.zeros([1, 1, F], dtype), tf.zeros([1, H, length, D], dtype)


class LocalnessTest(tf.test.TestCase, parameterized.TestCase):
    def test_a_window_is_never_less_than_one_position(self):
        # I = 1: P = window = 1/2, which counts as 1: sigma = 1/2.
        layer = silent("query")
        seen = np.array([[1, 0]], bool)
        bias = bias_of(layer, *zeros(2), seen, 2)
        self.assertAllClose(bias[0, 0, 0], [-0.5, -0.5], atol=1e-6)
        # However small the prediction, nothing is divided by 0.
        layer.localness_window_vectors.assign(tf.fill([F, H], -1e30))
        layer.localness_position_hidden.assign(tf.ones([F, F]))
        x, keys = zeros()
        with tf.GradientTape() as tape:
            tape.watch(x)
            bias = bias_of(layer, x + 1.0, keys)
        self.assertAllInRange(bias, -2 * 7.0**2, 0.0)
        self.assertTrue(np.all(np.isfinite(tape.gradient(bias, x))))

    @parameterized.parameters(3, *localness.LEARNED)
    def test_features_need_not_be_as_many_as_those_of_the_heads(self, window):
        narrow = schemes.made(F, H, localness.Localness(window))
        wide = attention.TransformerAttention(F, H, positions=narrow.positions)
        wide.build((None, None, F + 4))
        for one, other in zip(wide.weights, narrow.weights, strict=True):
            more = one.shape[0] - other.shape[0]
            one.assign(tf.pad(other.value, [[0, more], [0, 0]]))
        x = schemes.floats(1, B, K, F)
        found = wide(tf.pad(x, [[0, 0], [0, 0], [0, 4]]))
        self.assertAllClose(found, narrow(x), 1e-6, 1e-6)

    @parameterized.product(window=[3, "layer", "query"], causal=[False, True])
    def test_padding_on_the_left_changes_nothing(self, window, causal):
        layer = schemes.made(F, H, localness.Localness(window))
        x = schemes.floats(1, B, K, F)
        expected = layer(x, use_causal_mask=causal)
        # On the right in the first example, on the left in the second.
        padded = np.zeros([B, K + 3, F], np.float32) + 5.0
        mask = np.ones([B, K + 3], bool)
        padded[0, :K], padded[1, 3:] = x
        mask[0, K:] = mask[1, :3] = False
        found = layer(padded, mask=mask, use_causal_mask=causal)
        self.assertAllClose(found[0, :K], expected[0], 1e-5, 1e-5)
        self.assertAllClose(found[1, 3:], expected[1], 1e-5, 1e-5)

    @parameterized.parameters(
        ("mixed_bfloat16", tf.float32, 1e-5), ("float64", tf.float64, 1e-14)
    )
    def test_positions_are_told_apart_in_every_dtype(self, policy, dtype, near):
        # bfloat16 has eight bits: of 1,000 positions it would see 250.
        layer = silent(10, dtype=policy)
        inputs = zeros(1000, tf.as_dtype(layer.compute_dtype))
        bias = bias_of(layer, *inputs, number=1000)
        self.assertEqual(bias.dtype, dtype)
        expected = -((np.arange(1000) - 500.0) ** 2) / 50
        self.assertAllClose(bias[0, 0, 0], expected, rtol=near, atol=1e-6)
