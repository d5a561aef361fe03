"""Tests of windows and directions, against pictures of their masks."""

import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.layers import attention
from relpos_tf.layers import pairs
from relpos_tf.layers.positions import window

CAUSAL = ["100", "110", "111"]
WINDOW_1 = ["11000", "11100", "01110", "00111", "00011"]
FORWARD, BACKWARD = window.Direction("forward"), window.Direction("backward")


def picture(scheme, *lengths):
    """Returns where the bias `[Q, K]` of a scheme is 0 as text."""
    mask = scheme.bias(None, None, pairs.Pairs(*lengths)).numpy() == 0.0
    return ["".join(str(int(x)) for x in row) for row in mask]


class WindowTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        (window.Window(1), (5, 5), WINDOW_1),
        (window.Window(2), (4, 4), ["1110", "1111", "1111", "0111"]),
        (window.Window(1), (2, 5), WINDOW_1[3:]),  # the last keys
        (window.Window(1), (2, 5, 1), WINDOW_1[1:3]),
        (FORWARD, (3, 3), CAUSAL),
        (BACKWARD, (3, 3), ["111", "011", "001"]),
        (BACKWARD, (2, 4), ["0011", "0001"]),
        (BACKWARD, (2, 4, 1), ["0111", "0011"]),
    )
    def test_keys_are_seen_as_in_the_picture(self, scheme, lengths, expected):
        self.assertEqual(picture(scheme, *lengths), expected)

    @parameterized.parameters((2, 1), (4, 2), (5, 3))
    def test_the_first_half_of_split_heads_looks_forward(self, heads, forward):
        split = window.Direction("split")
        split.build(attention.TransformerAttention(4 * heads, heads))
        where = pairs.Pairs(3, 3)
        mask = split.bias(None, None, where)
        self.assertEqual(tuple(mask.shape), (heads, 3, 3))
        for head in range(heads):
            side = FORWARD if head < forward else BACKWARD
            self.assertAllEqual(mask[head], side.bias(None, None, where))
