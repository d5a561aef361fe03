"""Tests of rotary positions, against products of complex numbers.

`attention_kinds_test` has their attention.
"""

import numpy as np
import tensorflow as tf

from relpos_tf.layers.positions import rotary
from tests import oracles
from tests import testing
from tests.layers import schemes

B, H, L, F = 2, 3, 7, 12


def rotate(x, positions):
    return rotary.Rotary().rotate(tf.constant(x), tf.constant(positions))


class RotaryTest(tf.test.TestCase):
    def test_equals_products_of_complex_numbers(self):
        x = testing.normal(1, B, H, L, 10)
        found = rotate(x, range(L))
        self.assertAllClose(found, oracles.turned(x), 1e-12, 1e-12)

    def test_products_depend_on_the_difference_of_positions_alone(self):
        q, k = testing.normal(1, 1, 1, 1, 6), testing.normal(2, 1, 1, 1, 6)
        products = [
            np.sum(rotate(q, [i]) * rotate(k, [j]))
            for i, j in ((0, 3), (5, 8), (997, 1000))
        ]
        self.assertAllClose(products, [products[0]] * 3, 1e-9)
        self.assertNotAllClose(
            np.sum(rotate(q, [3]) * k), products[0], atol=1e-3
        )

    def test_queries_of_a_memory_have_its_last_positions(self):
        layer = schemes.made(F, H, rotary.Rotary())
        x = schemes.floats(1, B, L, F)
        expected = layer(x)[:, 3:]
        self.assertAllClose(layer(x[:, 3:], x), expected, 1e-5, 1e-5)
        rows, _ = layer.attend(x[:, 3:], layer.project(x))
        self.assertAllClose(rows, expected, 1e-5, 1e-5)
