"""Tests of FIRE beyond the length L; `attention_test` has the others.

Shapes: B batch, H heads, L length, F features.
"""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.layers.positions import fire
from tests import oracles
from tests import testing
from tests.layers import schemes

B, H, L, F = 2, 3, 11, 12


class FireTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.product(bidirectional=[True, False], causal=[True, False])
    def test_positions_beyond_the_length_equal_the_loops(
        self, bidirectional, causal
    ):
        one = fire.Fire(bidirectional=bidirectional)
        layer = schemes.made(F, H, one, dtype="float64")
        layer.fire_length.assign(-4.5 / 512)
        x = testing.normal(1, B, L, F)
        allowed = np.tri(L, dtype=bool) if causal else True
        weights = testing.named_weights(layer)
        expected = oracles.multihead(weights, H, x, x, allowed, scheme="fire")
        inputs = tf.constant(x)
        found = layer(inputs, use_causal_mask=causal)
        self.assertAllClose(found, expected, 1e-9, 1e-9)
        if causal:
            _, cache = layer.step(inputs[:, :3], layer.init_cache(B), start=0)
            rows, _ = layer.step(inputs[:, 3:], cache, start=3)
            self.assertAllClose(rows, expected[:, 3:], 1e-9, 1e-9)

    def test_a_share_of_nothing_is_0(self):
        layer = schemes.made(F, H, fire.Fire())
        x = schemes.floats(1, B, L, F)
        layer.fire_c.assign(0.0)
        with tf.GradientTape() as tape:
            output = layer(x)
        gradients = tape.gradient(output, [w.value for w in layer.weights])
        for tensor in (output, *gradients):
            self.assertTrue(np.all(np.isfinite(tensor)))
