"""Tests of windows of heads, against sums that are written out.

More kinds of layers with such windows: `attention_kinds_test`.
"""

from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf.layers import attention
from relpos_tf.layers import row_blocks
from relpos_tf.layers.positions import additive
from relpos_tf.layers.positions import head_window
from relpos_tf.layers.positions import shaw
from relpos_tf.layers.positions import window
from tests import oracles
from tests import testing

B, H, L, D, K_CLIP = 2, 5, 7, 3, 2
F = H * D
# With 5 heads, a query of each head and the heads that it attends to.
HEADS = {
    3: [(0, 1), (0, 1, 2), (1, 2, 3), (2, 3, 4), (3, 4)],
    7: [(0, 1, 2, 3), (0, 1, 2, 3, 4), (0, 1, 2, 3, 4)]
    + [(0, 1, 2, 3, 4), (1, 2, 3, 4)],
}


def made(*positions, heads=H, **kwargs):
    layer = attention.TransformerAttention(
        F, heads, positions=positions, **kwargs
    )
    layer.build((None, None, F))
    return testing.randomize(layer)


def projected(weights, x):
    """Returns q, k and v, each `[B, H, L, D]`; q is not scaled."""
    return (
        np.stack(np.split(x @ weights[f"{name}/kernel"], H, -1), 1)
        for name in ("q", "k", "v")
    )


def loops(layer, x, sees, size, radius):
    """Yang et al., 2019: every query, with a list of the keys that it has.

    Args:
        layer: A built layer of H heads.
        x: `[B, L, F]`.
        sees: bool `[B, L, L]`: the mask of the caller.
        size: int, N.
        radius: int: positions on each side.
    """
    weights = testing.named_weights(layer)
    q, k, v = projected(weights, x)
    tables = [
        weights.get(f"relative_positions_{kind}") for kind in ("keys", "values")
    ]
    z = np.zeros_like(q)
    for b, h, i in np.ndindex(B, H, L):
        near = [j for j in range(L) if abs(i - j) <= radius and sees[b, i, j]]
        e, values = [], []
        for g in HEADS[size][h]:
            for j in near:
                a = [oracles.distance_vector(t, h, j - i) for t in tables]
                key = k[b, g, j] + a[0]
                e.append(q[b, h, i] @ key / np.sqrt(D))
                values.append(v[b, g, j] + a[1])
        z[b, h, i] = oracles.softmax(e) @ np.array(values)
    output = np.concatenate(list(np.moveaxis(z, 1, 0)), -1)  # [B, L, F]
    return output @ weights["output_transform/kernel"]


class HeadWindowTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.product(
        relative=[
            (),
            (shaw.Shaw(K_CLIP),),
            (shaw.Shaw(K_CLIP, implementation="reshape", heads_share=True),),
        ],
        size=list(HEADS),
        mask=["none", "padding", "causal"],
    )
    def test_equals_the_loops(self, relative, size, mask):
        layer = made(
            *relative,
            head_window.HeadWindow(size),
            window.Window(2),
            dtype="float64",
        )
        x = testing.normal(1, B, L, F)
        sees = np.ones([B, L, L], bool)
        if mask == "padding":  # the window of each query has a token
            sees = np.arange(L) < np.array([[5], [7]])[..., None]
            sees = np.broadcast_to(sees, (B, L, L))
        if mask == "causal":
            sees = np.broadcast_to(np.tri(L, dtype=bool), (B, L, L))
        found = layer(
            tf.constant(x),
            may_attend=sees[:, None] if mask == "padding" else None,
            use_causal_mask=mask == "causal",
        )
        expected = loops(layer, x, sees, size, 2)
        self.assertAllClose(found, expected, 1e-9, 1e-9)

    def test_one_head_changes_nothing(self):
        x = tf.constant(testing.normal(1, B, L, F), tf.float32)
        plain, other = made(), made(head_window.HeadWindow(1))
        other.set_weights(plain.get_weights())
        self.assertAllClose(other(x), plain(x), 1e-6, 1e-6)

    def test_a_head_far_away_has_no_influence(self):
        layer = made(head_window.HeadWindow(3))
        x = tf.constant(testing.normal(1, B, L, F), tf.float32)
        before = layer(x)
        # The output of the heads 0 and 1 alone: they see the heads 0 to 2.
        kernel = layer.output_transform.kernel.numpy()
        kernel[2 * D :] = 0.0
        layer.output_transform.kernel.assign(kernel)
        near = layer(x)
        self.assertNotAllClose(near, before, atol=1e-2)
        for name in ("k", "v"):
            projection = getattr(layer, name).kernel
            changed = projection.numpy()
            changed[:, 3 * D :] *= -7.0  # the heads 3 and 4
            projection.assign(changed)
        self.assertAllEqual(layer(x), near)
        changed[:, 2 * D : 3 * D] *= -7.0
        projection.assign(changed)
        self.assertNotAllClose(layer(x), near, atol=1e-2)

    def test_weights_are_sums_over_the_heads_of_the_keys(self):
        layer = made(head_window.HeadWindow(3), window.Window(2))
        x = tf.constant(testing.normal(1, B, L, F), tf.float32)
        output, weights = layer(x, return_weights=True)
        self.assertEqual(weights.shape, (B, H, L, L))
        self.assertAllClose(tf.reduce_sum(weights, -1), np.ones([B, H, L]))
        q, k, v = projected(testing.named_weights(layer), x.numpy())
        seen = np.abs(np.subtract.outer(range(L), range(L))) <= 2
        _, expected = oracles.shaw_attention(
            q / np.sqrt(D), k, v, bias=np.where(seen, 0.0, -1e9), heads=3
        )
        self.assertAllClose(weights, expected, 1e-4, 1e-4)
        self.assertAllClose(output, layer(x), 1e-5, 1e-5)

    def test_a_query_without_a_key_attends_to_all_its_heads_equally(self):
        layer = made(head_window.HeadWindow(3))
        x = tf.constant(testing.normal(1, B, L, F), tf.float32)
        _, weights = layer(
            x, may_attend=np.zeros([L, L], bool), return_weights=True
        )
        self.assertAllClose(weights, np.full([B, H, L, L], 1 / L))

    def test_dropout_has_a_mask_of_its_own_for_each_head(self):
        layer = made(head_window.HeadWindow(3), dropout=0.5)
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

    def test_bfloat16_is_near_float32(self):
        positions = head_window.HeadWindow(3), shaw.Shaw(2), window.Window(2)
        layer = made(*positions)
        x = tf.constant(testing.normal(1, B, L, F), tf.float32)
        half = made(*positions, dtype="mixed_bfloat16")
        half.set_weights(layer.get_weights())
        self.assertAllClose(tf.cast(half(x), tf.float32), layer(x), 0.1, 0.1)

    def test_long_lines_are_the_same_in_blocks(self):
        layer = made(head_window.HeadWindow(3), shaw.Shaw(2), window.Window(2))
        x = tf.constant(testing.normal(1, B, L, F), tf.float32)
        expected = layer(x)
        # Two queries a block.
        numbers = 2 * 3 * B * H * L
        with mock.patch.object(row_blocks, "MOST_NUMBERS", numbers):
            self.assertAllClose(layer(x), expected, 1e-6, 1e-6)

    def test_config_gives_the_same_layer(self):
        layer = made(head_window.HeadWindow(3), shaw.Shaw(2))
        config = layer.get_config()
        again = attention.TransformerAttention.from_config(config)
        again.build((None, None, F))
        again.set_weights(layer.get_weights())
        x = tf.constant(testing.normal(1, B, L, F), tf.float32)
        self.assertAllEqual(again(x), layer(x))
        self.assertEqual(again.get_config(), config)

    @parameterized.parameters((0, "at least 1"), (4, "must be odd"))
    def test_wrong_numbers_are_refused(self, heads, message):
        with self.assertRaisesRegex(errors.UserError, message):
            head_window.HeadWindow(heads)

    def test_two_schemes_that_replace_attention_are_refused(self):
        with self.assertRaisesRegex(
            errors.UserError, "replace attention.*other heads and score other"
        ):
            made(head_window.HeadWindow(3), additive.Additive())


if __name__ == "__main__":
    tf.test.main()
