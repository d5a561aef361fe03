"""Tests of T5's bias, against loops and the formula of its released code.

Shapes: B batch, H heads, L length, F features, R buckets.
"""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf.layers import attention
from relpos_tf.layers import pairs
from relpos_tf.layers.positions import bucketed
from tests import oracles
from tests import testing

B, H, L, F = 2, 3, 11, 21
BUCKETS, MOST = 8, 7


def made(bidirectional=True, **kwargs):
    one = bucketed.Bucketed(BUCKETS, MOST, bidirectional=bidirectional)
    layer = attention.TransformerAttention(F, H, positions=[one], **kwargs)
    layer.build((None, None, F))
    return testing.randomize(layer)


def loops(weights, x, allowed, bidirectional, queries=None):
    queries = x if queries is None else queries
    t5 = MOST, bidirectional
    return oracles.multihead(weights, H, queries, x, allowed, t5=t5)


class BucketsTest(tf.test.TestCase, parameterized.TestCase):
    def test_buckets_of_t5_begin_where_its_code_says(self):
        # Computed by hand from 8 * 16^(m/8) and 16 * 8^(m/16), rounded up.
        self.assertEqual(
            bucketed.bucket_starts(16, 128),
            [*range(8), 8, 12, 16, 23, 32, 46, 64, 91],
        )
        self.assertEqual(
            bucketed.bucket_starts(32, 128)[16:],
            [16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113],
        )

    @parameterized.product(
        # Of 20 buckets up to 160, logarithms round two starts to the bucket
        # before; of 64 up to 34, some hold no distance.
        sizes=[(32, 128), (8, 7), (4, 3), (20, 160), (6, 101), (64, 34)],
        bidirectional=[True, False],
    )
    def test_every_distance_has_the_bucket_of_the_released_code(
        self, sizes, bidirectional
    ):
        number, most = sizes
        distances = np.arange(-3 * most, 3 * most)
        directions = 2 if bidirectional else 1
        found = bucketed.bucket_ids(
            tf.constant(distances, tf.int32),
            bucketed.bucket_starts(number // directions, most),
            bidirectional,
        )
        expected = [
            oracles.t5_bucket(d, number, most, bidirectional) for d in distances
        ]
        self.assertAllEqual(found, expected)

    @parameterized.parameters((33, 128, True), (32, 8, True), (32, 16, False))
    def test_buckets_that_do_not_fit_are_refused(self, number, most, both):
        with self.assertRaisesRegex(
            errors.UserError, f"num_buckets={number}, max_distance={most}"
        ):
            bucketed.Bucketed(number, most, bidirectional=both)


class ByDistanceTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters((1, 1), (1, 7), (7, 1), (3, 5), (5, 3), (5, 5))
    def test_each_pair_has_the_number_of_its_distance(self, queries, keys):
        numbers = testing.normal(1, 2, queries + keys)
        expected = np.zeros([2, queries, keys])
        for h, i, j in np.ndindex(expected.shape):
            expected[h, i, j] = numbers[h, j - i + queries - 1]
        found = bucketed.by_distance(tf.constant(numbers), queries, keys)
        self.assertAllEqual(found, expected)


class BucketedTest(testing.LayerTestCase):
    @parameterized.product(
        mask=["none", "padding", "causal"], bidirectional=[True, False]
    )
    def test_equals_the_loops(self, mask, bidirectional):
        layer = made(bidirectional, dtype="float64")
        x = testing.normal(1, B, L, F)
        allowed = np.ones([1, 1, L, L], bool)
        if mask == "padding":
            allowed = (np.arange(L) < [[4], [11]])[:, None, None]
        found = layer(
            tf.constant(x),
            may_attend=None if mask == "causal" else allowed,
            use_causal_mask=mask == "causal",
        )
        if mask == "causal":
            allowed = np.tri(L, dtype=bool)
        weights = testing.named_weights(layer)
        self.assertAllClose(
            found, loops(weights, x, allowed, bidirectional), 1e-9, 1e-9
        )

    @parameterized.parameters("call", "attend", "function")
    def test_queries_of_a_memory_are_its_last_keys(self, way):
        layer = made(dtype="float64")
        x, queries = testing.normal(1, B, L, F), testing.normal(2, B, 5, F)
        tensors = tf.constant(queries), tf.constant(x)
        if way == "attend":
            found, _ = layer.attend(tensors[0], layer.project(tensors[1]))
        elif way == "call":
            found = layer(*tensors)
        else:  # the lengths are known to the graph alone
            spec = tf.TensorSpec([None, None, F], tf.float64)
            found = tf.function(layer, input_signature=[spec] * 2)(*tensors)
        weights = testing.named_weights(layer)
        self.assertAllClose(
            found, loops(weights, x, True, True, queries), 1e-9, 1e-9
        )

    @parameterized.product(bidirectional=[True, False], xla=[True, False])
    def test_gradients_equal_finite_differences(self, bidirectional, xla):
        layer = made(bidirectional, dtype="float64")
        x = testing.normal(1, B, L, F)
        upstream = testing.normal(2, B, L, F)
        weights = testing.named_weights(layer)
        table = layer.positions[0].table

        @tf.function(jit_compile=xla)
        def gradient(x):
            with tf.GradientTape() as tape:
                total = tf.reduce_sum(layer(x) * upstream)
            return tape.gradient(total, table.value)

        def total(moved):
            moved = weights | {"relative_attention_bias": moved}
            return np.sum(loops(moved, x, True, bidirectional) * upstream)

        found = gradient(tf.constant(x))
        self.assertIsInstance(found, tf.Tensor)
        testing.assert_gradients(
            self, [found], total, [weights["relative_attention_bias"]]
        )

    def test_buckets_that_no_pair_has_get_a_gradient_of_exactly_0(self):
        # Adam would make whole steps of rounding errors. Three tokens have
        # the distances -2 to 2: buckets 0 to 2, and 5 and 6.
        layer = made()
        x = tf.constant(testing.normal(1, B, L, F), tf.float32)
        allowed = np.arange(L) < 3
        with tf.GradientTape() as tape:
            output = layer(x, may_attend=allowed, training=True)[:, :3]
            loss = tf.reduce_sum(tf.square(output))
        gradient = tape.gradient(loss, layer.positions[0].table.value)
        is_zero = np.all(gradient == 0.0, 1)
        self.assertAllEqual(np.flatnonzero(is_zero), [3, 4, 7])

    @parameterized.product(cache=["growing", "fixed"], prefix=[1, 3])
    def test_steps_equal_rows_of_the_full_pass(self, cache, prefix):
        layer = made(bidirectional=False)
        x = tf.constant(testing.normal(1, B, L, F), tf.float32)
        expected = layer(x, use_causal_mask=True)
        places, kind = 0, pairs.KeysValues
        if cache == "fixed":  # four places stay free
            places, kind = L + 4, pairs.FixedCache
        past = kind(*[tf.zeros([B, H, places, F // H])] * 2)
        start = 0
        for end in (prefix, *range(prefix + 1, L + 1)):
            rows, past = layer.step(x[:, start:end], past, start=start)
            self.assertAllClose(rows, expected[:, start:end], 1e-5, 1e-5)
            start = end

    def test_bfloat16_has_its_bias_in_float32(self):
        layer, x = made(), testing.normal(1, B, L, F).astype(np.float32)
        half = made(dtype="mixed_bfloat16")
        half.set_weights(layer.get_weights())
        found = tf.cast(half(x), tf.float32)
        self.assertAllClose(found, layer(x), 0.05, 0.05)
        given = pairs.Pairs(3, 3)
        self.assertAllEqual(
            half.positions[0].bias(None, None, given),
            layer.positions[0].bias(None, None, given),
        )

    def test_contract_of_a_layer(self):
        self.assert_layer_contract(
            attention.TransformerAttention(
                F, H, positions=[bucketed.Bucketed(BUCKETS, MOST)], dropout=0.3
            ),
            tf.constant(testing.normal(1, B, L, F), tf.float32),
            weights={
                f"{name}/kernel": (F, F)
                for name in ("q", "k", "v", "output_transform")
            }
            | {"relative_attention_bias": (BUCKETS, H)},
        )

    def test_layers_of_a_stack_share_the_table_of_the_first(self):
        one = bucketed.Bucketed(BUCKETS, MOST)
        layers = [
            attention.TransformerAttention(F, H, positions=[one])
            for _ in range(3)
        ]
        for layer in layers:
            layer.build((None, None, F))
        self.assertEqual([len(layer.weights) for layer in layers], [5, 4, 4])
        table = layers[0].positions[0].table
        table.assign(testing.normal(1, BUCKETS, H))
        for layer in layers[1:]:
            layer.set_weights(
                [w for w in layers[0].get_weights() if w.shape == (F, F)]
            )
            x = tf.constant(testing.normal(2, B, L, F), tf.float32)
            self.assertAllEqual(layer(x), layers[0](x))


if __name__ == "__main__":
    tf.test.main()
