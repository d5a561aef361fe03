"""Tests of token embeddings, the tied softmax, and absolute positions."""

import itertools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.layers import dropout
from relpos_tf.layers import embeddings
from tests import oracles
from tests import testing


class TimingSignalTest(testing.LayerTestCase):
    @parameterized.parameters(2, 3, 6, 7, 12)
    def test_equals_the_formula(self, channels):
        positions = [0, 1, 2, 5, 11, 97]
        self.assertAllClose(
            embeddings.timing_signal(tf.constant(positions), channels),
            oracles.sinusoids(positions, channels),
            atol=1e-5,
        )

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

    def test_shifts_depend_on_the_seed_and_on_the_place_in_the_step(self):
        found = []
        for seed in ([3, 5], [3, 6], [3, 5]):
            with dropout.seed_scope(tf.constant(seed)):
                for _ in range(2):  # source and target
                    found.append(embeddings.shifted_positions(1000, 1, 500))
        self.assertAllEqual(found[0], found[4])
        self.assertAllEqual(found[1], found[5])
        for a, b in itertools.combinations(found[:4], 2):
            # Of independent draws, one in 501 agrees.
            self.assertLess(np.mean(a == b), 0.02)
            self.assertLess(np.abs(np.corrcoef(a[:, 0], b[:, 0])[0, 1]), 0.2)


class TokenEmbeddingTest(testing.LayerTestCase):
    def setUp(self):
        super().setUp()
        self.layer = embeddings.TokenEmbedding(7, 5)
        self.ids = tf.constant([[3, 0, 6], [1, 3, 3]])
        self.layer(self.ids)
        testing.randomize(self.layer)
        self.table = self.layer.embeddings.numpy()

    def test_vectors_are_rows_times_the_root_of_their_size_but_of_id_0(self):
        self.assertNotAllClose(self.table[0], np.zeros(5))
        expected = self.table[self.ids] * 5**0.5
        expected[0, 1] = 0.0
        self.assertAllClose(self.layer(self.ids), expected)

    def test_vectors_begin_with_a_variance_of_1(self):
        layer = embeddings.TokenEmbedding(1009, 101)
        vectors = layer(tf.range(1, 1009)[tf.newaxis])
        self.assertAllClose(np.std(vectors), 1.0, rtol=0.02)

    def test_logits_are_products_with_the_unscaled_rows(self):
        features = testing.normal(5, 2, 3, 5).astype(np.float32)
        expected = np.einsum("btf,vf->btv", features, self.table)
        for transposed in (None, self.table.T):
            found = self.layer.logits(tf.constant(features), transposed)
            self.assertAllClose(found, expected, atol=1e-6)

    def test_table_learns_from_vectors_and_logits_alike(self):
        features = testing.normal(5, 2, 3, 5).astype(np.float32)
        table = self.layer.embeddings.value
        with tf.GradientTape(persistent=True) as tape:
            vectors = tf.reduce_sum(self.layer(self.ids) * features)
            logits = tf.reduce_sum(self.layer.logits(features))
            both = vectors + logits
        parts = [
            tf.convert_to_tensor(tape.gradient(total, table))
            for total in (vectors, logits, both)
        ]
        self.assertAllClose(parts[0] + parts[1], parts[2], atol=1e-5)
        # The id 3 stands at three places, and their gradients add up.
        sum_of_3 = features[0, 0] + features[1, 1] + features[1, 2]
        self.assertAllClose(parts[0][3], sum_of_3 * 5**0.5, atol=1e-5)
        self.assertAllEqual(parts[0][0], np.zeros(5))


class TargetSpaceEmbeddingTest(testing.LayerTestCase):
    def test_adds_its_row_at_every_position_and_trains_no_other(self):
        layer = embeddings.TargetSpaceEmbedding(3, 7, 5)
        x = tf.constant(testing.normal(1, 2, 3, 5), tf.float32)
        with tf.GradientTape() as tape:
            y = layer(x)
        table = layer.embeddings.numpy()
        self.assertAllClose(y, x.numpy() + table[3])
        gradient = tape.gradient(y, layer.embeddings.value)
        self.assertAllEqual(
            tf.convert_to_tensor(gradient)[:, 0], [0, 0, 0, 6, 0, 0, 0]
        )


class LearnedPositionsTest(testing.LayerTestCase):
    def test_positions_beyond_the_last_share_its_vector(self):
        layer = embeddings.LearnedPositions(3, 5)
        vectors = layer(tf.constant([2, 0, 1, 3, 11]))
        table = layer.embeddings.numpy()
        self.assertAllClose(vectors, table[[2, 0, 1, 2, 2]])

    def test_gradient_is_dense_and_sums_positions_of_one_vector(self):
        layer = embeddings.LearnedPositions(3, 5)
        upstream = tf.constant(testing.normal(2, 4, 5), tf.float32)
        layer.build(None)
        with tf.GradientTape() as tape:
            vectors = layer(tf.constant([0, 2, 3, 7]))
        gradient = tape.gradient(vectors, layer.embeddings.value, upstream)
        self.assertIsInstance(gradient, tf.Tensor)
        expected = [upstream[0], tf.zeros(5), sum(upstream[1:])]
        self.assertAllClose(gradient, expected)
