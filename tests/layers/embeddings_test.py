"""Tests of token embeddings, the tied softmax, and absolute positions."""

import numpy as np
import tensorflow as tf

from relpos_tf.layers import dropout
from relpos_tf.layers import embeddings
from tests import testing


class TimingSignalTest(testing.LayerTestCase):
    def test_equals_tensor2tensor(self):
        for case, sizes, arrays in testing.t2t_cases("timing_1d"):
            positions = sizes["start_index"] + tf.range(sizes["length"])
            signal = embeddings.timing_signal(positions, sizes["channels"])
            self.assertAllClose(
                signal[tf.newaxis], arrays["out/signal"], atol=3e-5, msg=case
            )

    def test_sum_with_the_signal_equals_tensor2tensor(self):
        ((_, _, arrays),) = testing.t2t_cases("timing_1d_add")
        x = arrays["in/x"]  # [B, L, F]
        signal = embeddings.timing_signal(tf.range(x.shape[1]), x.shape[2])
        self.assertAllClose(x + signal, arrays["out/result"], 1e-6, 1e-6)


class ShiftedPositionsTest(tf.test.TestCase):
    def test_every_shift_of_a_sequence_is_equally_likely(self):
        with dropout.seed_scope(tf.constant([3, 5])):
            found = embeddings.shifted_positions(70_001, 3, max_shift=6)
        first = found[:, :1]
        self.assertAllEqual(found - first, np.tile([0, 1, 2], [70_001, 1]))
        counts = np.bincount(first.numpy().ravel())
        # Five standard deviations of about 100 draws.
        self.assertAllClose(counts, [10_000] * 7, rtol=0.0, atol=500)


class TokenEmbeddingTest(testing.LayerTestCase):
    def test_vectors_begin_with_a_variance_of_1(self):
        layer = embeddings.TokenEmbedding(1009, 101)
        vectors = layer(tf.range(1, 1009)[tf.newaxis])
        self.assertAllClose(np.std(vectors), 1.0, rtol=0.02, atol=1e-6)


class LearnedPositionsTest(testing.LayerTestCase):
    def test_gradient_is_dense_and_sums_positions_of_one_vector(self):
        layer = embeddings.LearnedPositions(3, 5)
        upstream = tf.constant(testing.normal(2, 4, 5), tf.float32)
        layer.build(None)
        with tf.GradientTape() as tape:
            vectors = layer(tf.constant([0, 2, 3, 7]))
        gradient = tape.gradient(vectors, layer.embeddings.value, upstream)
        self.assertIsInstance(gradient, tf.Tensor)
        expected = [upstream[0], tf.zeros(5), sum(upstream[1:])]
        self.assertAllClose(gradient, expected, atol=1e-6)
