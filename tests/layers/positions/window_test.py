"""Tests of windows and directions, against pictures of their masks."""

import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.layers import pairs
from relpos_tf.layers.positions import window

CAUSAL = ["100", "110", "111"]
WINDOW_1 = ["11000", "11100", "01110", "00111", "00011"]


def picture(scheme, *lengths):
    """Returns where the bias `[Q, K]` of a scheme is 0 as text."""
    mask = scheme.bias(None, None, pairs.Pairs(*lengths)).numpy() == 0.0
    return ["".join(str(int(x)) for x in row) for row in mask]


class WindowTest(tf.test.TestCase):
    def test_a_window_has_two_sides(self):
        self.assertEqual(picture(window.Window(1), 5, 5), WINDOW_1)
        self.assertEqual(
            picture(window.Window(2), 4, 4), ["1110", "1111", "1111", "0111"]
        )

    def test_queries_are_the_last_keys(self):
        self.assertEqual(picture(window.Window(1), 2, 5), WINDOW_1[3:])

    def test_the_position_of_the_first_query_may_be_given(self):
        self.assertEqual(picture(window.Window(1), 2, 5, 1), WINDOW_1[1:3])


class DirectionTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        ("forward", CAUSAL), ("backward", ["111", "011", "001"])
    )
    def test_a_direction_has_one_side_and_the_query(self, side, expected):
        self.assertEqual(picture(window.Direction(side, 2), 3, 3), expected)

    def test_the_position_of_the_first_query_may_be_given(self):
        backward = window.Direction("backward", 1)
        self.assertEqual(picture(backward, 2, 4), ["0011", "0001"])
        self.assertEqual(picture(backward, 2, 4, 1), ["0111", "0011"])

    @parameterized.parameters((2, 1), (4, 2), (5, 3))
    def test_the_first_half_of_split_heads_looks_forward(self, heads, forward):
        where = pairs.Pairs(3, 3)
        mask = window.Direction("split", heads).bias(None, None, where)
        self.assertEqual(tuple(mask.shape), (heads, 3, 3))
        for head in range(heads):
            side = "forward" if head < forward else "backward"
            self.assertAllEqual(
                mask[head],
                window.Direction(side, 1).bias(None, None, where),
            )

    def test_one_head_cannot_be_split(self):
        with self.assertRaisesRegex(ValueError, "Received: .*'split'"):
            window.Direction("split", 1)


if __name__ == "__main__":
    tf.test.main()
