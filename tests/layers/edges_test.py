"""Tests of labels and vectors of edges."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf.layers import edges
from relpos_tf.layers import relations
from tests import testing

B, H, Q, K, R = 2, 3, 5, 7, 4


def labels_of(seed, *shape):
    """Returns ids, one in R + 1 of them R: no label."""
    return np.random.default_rng(seed).integers(0, R + 1, shape)


class GatherAndSumTest(tf.test.TestCase, parameterized.TestCase):
    def test_numbers_are_gathered_and_weights_summed(self):
        labels = edges.Labels(tf.constant([[2, 0, 2], [1, 3, 0]]), 3)
        numbers = tf.constant([[[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]]])
        self.assertAllEqual(
            labels.gather(numbers), [[[[3.0, 1.0, 3.0], [5.0, 0.0, 4.0]]]]
        )
        weights = tf.constant([[[[1.0, 2.0, 4.0], [8.0, 16.0, 32.0]]]])
        self.assertAllEqual(
            labels.sum(weights), [[[[2.0, 0.0, 5.0], [32.0, 8.0, 0.0]]]]
        )

    @parameterized.product(batched=[False, True], jit_compile=[False, True])
    def test_both_equal_products_with_one_hot_rows(self, batched, jit_compile):
        ids = labels_of(1, *([B] if batched else []), Q, K)
        labels = edges.Labels(tf.constant(ids, tf.int32), R)
        one_hot = np.eye(R + 1)[np.broadcast_to(ids, [B, Q, K])][..., :R]
        numbers = testing.normal(2, B, H, Q, R)
        weights = testing.normal(3, B, H, Q, K)

        @tf.function(jit_compile=jit_compile)
        def call(numbers, weights):
            with tf.GradientTape(persistent=True) as tape:
                tape.watch([numbers, weights])
                gathered, sums = labels.gather(numbers), labels.sum(weights)
            return (
                gathered,
                sums,
                tape.gradient(gathered, numbers, output_gradients=weights),
                tape.gradient(sums, weights, output_gradients=numbers),
            )

        gathered = np.einsum("bqkr,bhqr->bhqk", one_hot, numbers)
        sums = np.einsum("bqkr,bhqk->bhqr", one_hot, weights)
        results = call(tf.constant(numbers), tf.constant(weights))
        for result, expected in zip(
            results, (gathered, sums, sums, gathered), strict=True
        ):
            self.assertAllClose(result, expected, rtol=1e-12, atol=1e-12)

    def test_gradients_have_gradients(self):
        labels = edges.Labels(tf.constant([[0, 1, 0]]), 2)
        numbers = tf.constant([[[[2.0, 3.0]]]])
        with tf.GradientTape() as outer:
            outer.watch(numbers)
            with tf.GradientTape() as inner:
                inner.watch(numbers)
                cubes = tf.reduce_sum(labels.gather(numbers) ** 3)
            first = inner.gradient(cubes, numbers)
        self.assertAllClose(first, [[[[24.0, 27.0]]]])
        second = outer.gradient(first, numbers)
        self.assertAllClose(second, [[[[24.0, 18.0]]]])

    def test_long_sums_of_bfloat16_do_not_stop_growing(self):
        labels = edges.Labels(tf.zeros([1, 4096], tf.int32), 1)
        weights = tf.fill([1, 1, 1, 4096], tf.constant(1 / 4096, tf.bfloat16))
        self.assertAllEqual(labels.sum(weights), [[[[1.0]]]])


class LabelsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.product(
        missing=[-1, 0, 3, 7, None], dtype=[tf.int32, tf.int64]
    )
    def test_only_the_missing_label_counts_as_none(self, missing, dtype):
        given = [0, 1, 2] if missing is None else [0, 1, 2, missing]
        labels = edges.labels_of(tf.constant([given], dtype), 3, missing)
        expected = [3 if label == missing else label for label in given]
        self.assertAllEqual(labels.ids, [expected])
        self.assertEqual(labels.ids.dtype, tf.int32)

    @parameterized.parameters(
        ([[0, 3]], -1, "Expected labels from 0 to 2 or -1. Received: 3."),
        ([[-2, 0]], -1, "Expected labels from 0 to 2 or -1. Received: -2."),
        ([[-1, 0]], None, "Expected labels from 0 to 2. Received: -1."),
        ([[-1, 0]], 1, "Expected labels from 0 to 2. Received: -1."),
        ([[1 << 32, 0]], -1, "Received: 4294967296."),
    )
    def test_unknown_labels_are_refused(self, labels, missing, message):
        labels = tf.constant(labels, tf.int64)
        with self.assertRaisesRegex(errors.UserError, message):
            edges.labels_of(labels, 3, missing)
        in_graph = tf.function(lambda x: edges.labels_of(x, 3, missing).ids)
        with self.assertRaisesRegex(
            tf.errors.InvalidArgumentError, "Expected labels from 0 to 2"
        ):
            in_graph(labels)

    def test_xla_takes_unknown_labels_for_none(self):
        call = tf.function(
            lambda x: edges.labels_of(x, 3, -1).ids, jit_compile=True
        )
        labels = tf.constant([[0, 3, -1, 9, -7, 1 << 32]], tf.int64)
        self.assertAllEqual(call(labels), [[0, 3, 3, 3, 3, 3]])

    def test_other_types_are_refused(self):
        for dtype in (tf.float32, tf.bool, tf.uint8):
            with self.assertRaisesRegex(
                errors.UserError, f"int32 or int64. Received: {dtype.name}"
            ):
                edges.labels_of(tf.zeros([2, 2], dtype), 3, -1)


class MemoryTest(tf.test.TestCase, parameterized.TestCase):
    """Labels never have a vector, nor a one-hot row, for each pair."""

    LENGTH, HEADS, DEPTH, NUMBER = 13, 2, 17, 19

    @parameterized.parameters(False, True)
    def test_no_tensor_has_a_row_for_each_pair(self, batched):
        shape = [2] * batched + [self.LENGTH] * 2
        layer = relations.RelationAttention(
            self.HEADS * self.DEPTH, self.HEADS, self.NUMBER
        )
        layer.build((None, None, self.HEADS * self.DEPTH))
        x = testing.normal(1, 2, self.LENGTH, layer.hidden_size)

        def loss(x):
            return layer(x, relations=tf.ones(shape, tf.int32))

        pairs = 2 * self.LENGTH**2  # of both examples
        self.assertLess(testing.largest_tensor(loss, x), pairs * self.DEPTH)
        vectors = tf.ones([2, self.LENGTH, self.LENGTH, self.DEPTH])
        plain = relations.RelationAttention(layer.hidden_size, self.HEADS)
        plain.build((None, None, layer.hidden_size))
        self.assertGreaterEqual(  # the probe sees them
            testing.largest_tensor(lambda x: plain(x, key_vectors=vectors), x),
            pairs * self.DEPTH,
        )


if __name__ == "__main__":
    tf.test.main()
