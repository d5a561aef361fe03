"""Tests of random numbers in NumPy, against TensorFlow's operations."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.data import draws

_SEEDS = [(0, 0), (11, 3), (-5, 2**62 + 7), (2**31 - 1, -(2**40))]


class DrawsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(*_SEEDS)
    def test_numbers_are_those_of_tensorflow(self, *seeds):
        several = np.stack([draws.fold_in(seeds, n) for n in (0, 7, 2**33)])
        self.assertAllEqual(
            several, draws.fold_in(seeds, np.array([0, 7, 2**33]))
        )
        for row, number in enumerate((0, 7, 2**33)):
            folded = tf.random.experimental.stateless_fold_in(
                tf.constant(seeds, tf.int64), tf.constant(number, tf.int64)
            )
            self.assertAllEqual(several[row], folded)
            used = tf.random.experimental.stateless_fold_in(
                tf.constant(seeds, tf.int64), 1000 + row
            )
            found = draws.for_use(seeds, 1000 + row)
            self.assertAllEqual(found, used)
            self.assertAllEqual(
                draws.integers(found, 3, 99),
                tf.random.stateless_uniform(
                    [3], used, minval=0, maxval=99, dtype=tf.int64
                ),
            )
            for limit in (1, 13, 2**31 - 1):
                expected = tf.random.stateless_uniform(
                    [7], folded, minval=0, maxval=limit, dtype=tf.int64
                )
                found = draws.integers(several, 7, limit)
                self.assertAllEqual(found[row], expected)
                self.assertAllEqual(
                    draws.integers(several[row], 7, limit), expected
                )
            for function, dtype in (
                (draws.floats, tf.float32),
                (draws.doubles, tf.float64),
            ):
                expected = tf.random.stateless_uniform([9], folded, dtype=dtype)
                self.assertAllEqual(function(several, 9)[row], expected)

    @parameterized.parameters(0, 1, 2, 3, 100)
    def test_permutations_are_those_of_tensorflow(self, size):
        for seeds in _SEEDS:
            expected = tf.random.experimental.stateless_shuffle(
                tf.range(size), tf.constant(seeds, tf.int64)
            )
            self.assertAllEqual(draws.permutation(seeds, size), expected)

    @parameterized.parameters(
        (1, 5), (7, 7), (7, 1), (1000, 300), (300, 1000), (150_000, 20_000)
    )
    def test_shuffles_are_those_of_tensorflow(self, total, window):
        def expected(number):
            tf.random.set_seed(1)
            return tf.data.Dataset.range(total).shuffle(window, seed=number + 5)

        # As in an epoch: in a function of its own, for each epoch anew.
        found = tf.data.Dataset.range(2).flat_map(expected).batch(total)
        for number, order in enumerate(found):
            chunks = np.array_split(np.arange(total), 3)
            for block in (4096, 1 << 16):
                ours = draws.shuffled(
                    map(np.ndarray.tolist, chunks), window, number + 5, block
                )
                self.assertAllEqual(np.concatenate(list(ours)), order)


if __name__ == "__main__":
    tf.test.main()
