"""Tests of the masks, against pictures."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.layers import masks

CAUSAL = ["100", "110", "111"]


def picture(mask):
    """Returns the rows of a mask `[1, 1, Q, K]` as text."""
    return ["".join(str(int(x)) for x in row) for row in mask.numpy()[0, 0]]


class MasksTest(tf.test.TestCase, parameterized.TestCase):
    def test_causal_queries_see_themselves_and_earlier_keys(self):
        self.assertEqual(picture(masks.causal_mask(3, 3)), CAUSAL)

    def test_queries_are_the_last_keys(self):
        self.assertEqual(picture(masks.causal_mask(2, 4)), ["1110", "1111"])

    def test_the_position_of_the_first_query_may_be_given(self):
        self.assertEqual(
            picture(masks.causal_mask(2, 4, query_start=1)), ["1100", "1110"]
        )

    def test_masks_are_joined_and_none_allows_all(self):
        one = masks.causal_mask(3, 3)
        two = tf.abs(masks.distances(3, 3)) <= 1
        self.assertIsNone(masks.join(None, None))
        self.assertIs(masks.join(None, one), one)
        self.assertEqual(picture(masks.join(one, two)), ["100", "110", "011"])

    def test_keys_are_counted_for_each_query(self):
        self.assertEqual(masks.number_of_keys(None, 7), 7)
        tokens = np.array([[1, 1, 0], [1, 0, 0]], bool)[:, None, None]
        counts = masks.number_of_keys(tokens & masks.causal_mask(3, 3), 3)
        self.assertAllEqual(counts[:, 0], [[1, 2, 2], [1, 1, 1]])

    @parameterized.parameters(
        (None, 0),
        (True, 0),
        ([[True], [False]], [0, 0]),
        ([[[0, 0, 1, 0, 1], [1, 1, 0, 0, 0], [0, 0, 0, 0, 0]]], [[2, 0, 0]]),
        (np.ones([2, 0], bool), [0, 0]),
    )
    def test_the_first_key_is_found(self, mask, first):
        if isinstance(mask, list):
            mask = np.array(mask, bool)
        self.assertAllEqual(masks.first_key(mask), first)

    @parameterized.parameters(
        ([[True], [False], [True]], [5, 0, 5]), (True, 5), (False, 0)
    )
    def test_a_mask_for_all_keys_at_once_counts_them_all(self, mask, counts):
        self.assertAllEqual(masks.number_of_keys(mask, 5), counts)
        count = tf.function(
            masks.number_of_keys,
            input_signature=[
                tf.TensorSpec([None] * np.ndim(mask), tf.bool),
                tf.TensorSpec([], tf.int32),
            ],
        )
        self.assertAllEqual(count(np.array(mask), 5), counts)

    @parameterized.parameters(
        (32.0, tf.float32, True),
        (100.0, tf.float32, False),
        (32.0, tf.float64, False),
    )
    def test_logits_up_to_32_are_lost_beside_a_mask(self, size, dtype, lost):
        logits = size * np.array([[[[-1.0, 0.1, 1.0]]]])
        weights = masks.softmax(
            tf.constant(logits, dtype), masks.to_bias(False), dtype
        )
        equal = np.full([1, 1, 1, 3], 1 / 3)
        (self.assertAllClose if lost else self.assertNotAllClose)(
            weights, equal
        )


if __name__ == "__main__":
    tf.test.main()
