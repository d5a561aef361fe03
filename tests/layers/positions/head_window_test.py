"""Tests of windows of heads; `attention_test` has the loops."""

import numpy as np
import tensorflow as tf

from relpos_tf.layers.positions import head_window
from relpos_tf.layers.positions import window
from tests import oracles
from tests import testing
from tests.layers import schemes

B, H, L, D = 2, 5, 7, 3
F = H * D


class HeadWindowTest(tf.test.TestCase):
    def test_weights_are_sums_over_the_heads_of_the_keys(self):
        layer = schemes.made(F, H, head_window.HeadWindow(3), window.Window(2))
        x = schemes.floats(1, B, L, F)
        output, weights = layer(x, return_weights=True)
        self.assertEqual(weights.shape, (B, H, L, L))
        self.assertAllClose(
            tf.reduce_sum(weights, -1), np.ones([B, H, L]), atol=1e-6
        )
        named = testing.named_weights(layer)
        q, k, v = (
            np.stack(np.split(x.numpy() @ named[f"{name}/kernel"], H, -1), 1)
            for name in ("q", "k", "v")
        )
        seen = np.abs(np.subtract.outer(range(L), range(L))) <= 2
        _, expected = oracles.shaw_attention(
            q / np.sqrt(D), k, v, bias=np.where(seen, 0.0, -1e9), heads=3
        )
        self.assertAllClose(weights, expected, 1e-4, 1e-4)
        self.assertAllClose(output, layer(x), 1e-5, 1e-5)

    def test_dropout_has_a_mask_of_its_own_for_each_head(self):
        layer = schemes.made(F, H, head_window.HeadWindow(3), dropout=0.5)
        # Values and output are the identity, and all weights are equal.
        for kernel in (layer.v.kernel, layer.output_transform.kernel):
            kernel.assign(tf.eye(F))
        layer.q.kernel.assign(tf.zeros([F, F]))
        x = np.zeros([1, 1, F], np.float32)
        x[..., D : 2 * D] = 1.0  # the value of head 1, seen by 0, 1 and 2
        x = tf.constant(np.repeat(np.repeat(x, 101, 0), 11, 1))
        heads = tf.reshape(layer(x, training=True), [101, 11, H, D])[..., 0]
        for near in (0, 2):
            same = np.mean(heads[:, :, 1] == heads[:, :, near])
            self.assertLess(same, 0.3)
