"""Tests of the split and the join of heads, and of their projections."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.layers import attention
from relpos_tf.layers import heads
from tests import testing

B, L, P, H, D = 2, 3, 5, 7, 11


class SplitAndJoinTest(tf.test.TestCase):
    def test_split_equals_slices_of_the_features(self):
        rows = testing.normal(1, B * L, P * H * D)
        parts = heads.split_projections(tf.constant(rows), [B, -1, P, H, D])
        self.assertLen(parts, P)
        for b, t, p, h in np.ndindex(B, L, P, H):
            first = (p * H + h) * D
            expected = rows[b * L + t, first : first + D]
            self.assertAllEqual(parts[p][b, h, t], expected)

    def test_join_undoes_split(self):
        rows = tf.constant(testing.normal(1, B * L, H * D))
        part = heads.split_heads(rows, [B, L, H, D])
        self.assertAllEqual(heads.join_heads(part, [-1, H * D]), rows)
        self.assertAllEqual(
            heads.join_heads(part, [B, L, H * D]),
            tf.reshape(rows, [B, L, H * D]),
        )


class ToHeadsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters("q", "k", "kv", "qkv")
    def test_equals_a_product_for_each_projection(self, names):
        layer = attention.TransformerAttention(6, 2)
        layer.build((None, None, 6))
        testing.randomize(layer)
        x = testing.normal(7, 2, 5, 6).astype(np.float32)
        projections = [getattr(layer, name) for name in names]
        parts = layer.to_heads(tf.constant(x), *projections)
        for name, projection, part in zip(
            names, projections, parts, strict=True
        ):
            rows = x @ projection.kernel.numpy()  # [2, 5, 6]
            if name == "q":
                rows = rows * 3**-0.5
            expected = rows.reshape(2, 5, 2, 3).transpose(0, 2, 1, 3)
            self.assertAllClose(part, expected, rtol=1e-5, atol=1e-5)


if __name__ == "__main__":
    tf.test.main()
