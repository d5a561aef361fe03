"""Tests of rotary positions, against products of complex numbers.

`attention_test` has their attention.
"""

import tensorflow as tf

from relpos_tf.layers.positions import rotary
from tests.layers import schemes

B, H, L, F = 2, 3, 7, 12


class RotaryTest(tf.test.TestCase):
    def test_queries_of_a_memory_have_its_last_positions(self):
        layer = schemes.made(F, H, rotary.Rotary())
        x = schemes.floats(1, B, L, F)
        expected = layer(x)[:, 3:]
        self.assertAllClose(layer(x[:, 3:], x), expected, 1e-5, 1e-5)
        rows, _ = layer.attend(x[:, 3:], layer.project(x))
        self.assertAllClose(rows, expected, 1e-5, 1e-5)
