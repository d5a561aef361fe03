"""Tests of ALiBi, against loops and the slopes of the paper."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.layers import attention
from relpos_tf.layers import pairs
from relpos_tf.layers.positions import alibi
from tests import oracles
from tests import testing

B, H, L, F = 2, 3, 7, 12
# Press et al., section 3, of 2 heads; the third is the first of 4 heads'.
SLOPES = (2.0**-4, 2.0**-8, 2.0**-2)


def made(**kwargs):
    layer = attention.TransformerAttention(
        F, H, positions=[alibi.Alibi()], **kwargs
    )
    layer.build((None, None, F))
    return testing.randomize(layer)


def loops(layer, x, allowed):
    """Attends with a bias for every pair of positions, one by one."""
    weights = testing.named_weights(layer)
    bias = np.zeros([H, L, L])
    for h, i, j in np.ndindex(bias.shape):
        bias[h, i, j] = -SLOPES[h] * abs(i - j)
    q, k, v = (
        np.stack(np.split(x @ weights[f"{name}/kernel"], H, -1), 1)
        for name in ("q", "k", "v")
    )
    bias = bias + np.where(allowed, 0.0, -1e9)
    output, _ = oracles.shaw_attention(
        q / np.sqrt(F // H), k, v, bias=np.broadcast_to(bias, (B, H, L, L))
    )
    output = np.concatenate(list(np.moveaxis(output, 1, 0)), -1)
    return output @ weights["output_transform/kernel"]


class SlopesTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        (1, [2**-8]),
        (8, [2**-1, 2**-2, 2**-3, 2**-4, 2**-5, 2**-6, 2**-7, 2**-8]),
        # Those of 4 heads, then two of 8: 1/2 and 1/8.
        (6, [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3]),
    )
    def test_slopes_are_those_of_the_paper(self, heads, expected):
        self.assertAllClose(alibi.slopes(heads), expected, 1e-12)


class AlibiTest(tf.test.TestCase, parameterized.TestCase):
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

    def test_far_keys_get_less_on_both_sides(self):
        bias = alibi.Alibi()
        bias.build(made())
        found = bias.bias(None, None, pairs.Pairs(3, 3))
        self.assertAllClose(
            found[0] / SLOPES[0], [[0, -1, -2], [-1, 0, -1], [-2, -1, 0]]
        )

    @parameterized.parameters("growing", "fixed")
    def test_steps_equal_rows_of_the_full_pass(self, cache):
        layer = made()
        x = tf.constant(testing.normal(1, B, L, F), tf.float32)
        expected = layer(x, use_causal_mask=True)
        places, kind = 0, pairs.KeysValues
        if cache == "fixed":  # four places stay free
            places, kind = L + 4, pairs.FixedCache
        past = kind(*[tf.zeros([B, H, places, F // H])] * 2)
        for start in range(L):
            row, past = layer.step(x[:, start : start + 1], past, start=start)
            self.assertAllClose(row, expected[:, start : start + 1], 1e-5, 1e-5)

    def test_bfloat16_is_near_float32(self):
        layer, x = made(), testing.normal(1, B, L, F).astype(np.float32)
        half = made(dtype="mixed_bfloat16")
        half.set_weights(layer.get_weights())
        found = tf.cast(half(x), tf.float32)
        self.assertAllClose(found, layer(x), 0.05, 0.05)

    def test_nothing_is_learned(self):
        plain = attention.TransformerAttention(F, H)
        plain.build((None, None, F))
        self.assertLen(made().weights, len(plain.weights))


if __name__ == "__main__":
    tf.test.main()
