"""Tests of rotary positions, against products of complex numbers."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf.layers import attention
from relpos_tf.layers import pairs
from relpos_tf.layers.positions import rotary
from tests import oracles
from tests import testing

B, H, L, F = 2, 3, 7, 12
D = F // H


def made(**kwargs):
    layer = attention.TransformerAttention(
        F, H, positions=[rotary.Rotary()], **kwargs
    )
    layer.build((None, None, F))
    return testing.randomize(layer)


def loops(layer, x, allowed):
    weights = testing.named_weights(layer)
    q, k, v = (
        np.stack(np.split(x @ weights[f"{name}/kernel"], H, -1), 1)
        for name in ("q", "k", "v")
    )
    bias = np.broadcast_to(np.where(allowed, 0.0, -1e9), (B, H, L, L))
    output, _ = oracles.shaw_attention(
        oracles.turned(q) / np.sqrt(D), oracles.turned(k), v, bias=bias
    )
    output = np.concatenate(list(np.moveaxis(output, 1, 0)), -1)
    return output @ weights["output_transform/kernel"]


class RotateTest(tf.test.TestCase):
    def test_equals_products_of_complex_numbers(self):
        x = testing.normal(1, B, H, L, 10)
        found = rotary.rotate(tf.constant(x), tf.range(L))
        self.assertAllClose(found, oracles.turned(x), 1e-12, 1e-12)

    def test_a_quarter_turn(self):
        # Channel 0 of a position of pi / 2 would be turned onto channel 1.
        x = tf.constant([[[[1.0, 0.0]]]], tf.float64)
        found = rotary.rotate(x, tf.constant([11]))
        self.assertAllClose(found[0, 0, 0], [np.cos(11), np.sin(11)], 1e-12)

    def test_products_depend_on_the_difference_of_positions_alone(self):
        q, k = testing.normal(1, 1, 1, 1, 6), testing.normal(2, 1, 1, 1, 6)
        products = [
            np.sum(
                rotary.rotate(tf.constant(q), tf.constant([i]))
                * rotary.rotate(tf.constant(k), tf.constant([j]))
            )
            for i, j in ((0, 3), (5, 8), (997, 1000))
        ]
        self.assertAllClose(products, [products[0]] * 3, 1e-9)
        other = rotary.rotate(tf.constant(q), tf.constant([3]))
        self.assertNotAllClose(np.sum(other * k), products[0], atol=1e-3)


class RotaryTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters("none", "padding", "causal")
    def test_equals_the_loops(self, mask):
        layer, x = made(dtype="float64"), testing.normal(1, B, L, F)
        allowed = np.ones([1, 1, L, L], bool)
        if mask == "padding":
            allowed = (np.arange(L) < [[4], [7]])[:, None, None]
        found = layer(
            tf.constant(x),
            may_attend=None if mask == "causal" else allowed,
            use_causal_mask=mask == "causal",
        )
        if mask == "causal":
            allowed = np.tri(L, dtype=bool)
        self.assertAllClose(found, loops(layer, x, allowed), 1e-8, 1e-8)

    @parameterized.product(cache=["growing", "fixed"], prefix=[1, 3])
    def test_steps_equal_rows_of_the_full_pass(self, cache, prefix):
        layer = made()
        x = tf.constant(testing.normal(1, B, L, F), tf.float32)
        expected = layer(x, use_causal_mask=True)
        places, kind = 0, pairs.KeysValues
        if cache == "fixed":  # four places stay free
            places, kind = L + 4, pairs.FixedCache
        past = kind(*[tf.zeros([B, H, places, D])] * 2)
        start = 0
        for end in (prefix, *range(prefix + 1, L + 1)):
            rows, past = layer.step(x[:, start:end], past, start=start)
            self.assertAllClose(rows, expected[:, start:end], 1e-5, 1e-5)
            start = end

    def test_queries_of_a_memory_have_its_last_positions(self):
        layer = made()
        x = tf.constant(testing.normal(1, B, L, F), tf.float32)
        expected = layer(x)[:, 3:]
        self.assertAllClose(layer(x[:, 3:], x), expected, 1e-5, 1e-5)
        rows, _ = layer.attend(x[:, 3:], layer.project(x))
        self.assertAllClose(rows, expected, 1e-5, 1e-5)

    def test_bfloat16_is_near_float32(self):
        layer, x = made(), testing.normal(1, B, L, F).astype(np.float32)
        half = made(dtype="mixed_bfloat16")
        half.set_weights(layer.get_weights())
        found = tf.cast(half(x), tf.float32)
        self.assertAllClose(found, layer(x), 0.1, 0.1)

    def test_heads_of_odd_depth_are_refused(self):
        layer = attention.TransformerAttention(
            15, 3, positions=[rotary.Rotary()]
        )
        with self.assertRaisesRegex(errors.UserError, "even.*Received: .* 5"):
            layer.build((None, None, 15))


if __name__ == "__main__":
    tf.test.main()
