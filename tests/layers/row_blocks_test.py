"""Attention and losses of long lines, a block of rows at a time."""

from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.layers import attention
from relpos_tf.layers import losses
from relpos_tf.layers import pairs
from relpos_tf.layers import row_blocks
from tests import testing
from tests.layers import schemes

B, H, Q, K, F = 2, 3, 11, 13, 12
RELATIVE = {"max_relative_position": 2}
KINDS = {
    "absolute": {},
    "compact": RELATIVE | {"implementation": "compact"},
    "reshape": RELATIVE | {"implementation": "reshape"},
    "shared": RELATIVE | {"heads_share": True},
    "keys_only": RELATIVE | {"add_to_values": False},
    "k_apart": {"max_relative_position": 3, "max_relative_position_right": 1},
    "one_row": {"max_relative_position": 0},
    "additive": RELATIVE | {"score": "additive"},
    "window": RELATIVE | {"window": 3},
    "split": RELATIVE | {"direction": "split"},
    "backward": RELATIVE | {"direction": "backward"},
    "fixed": {"localness": ("fixed", 4)},
    "heads": RELATIVE | {"heads_window": 3, "window": 2},
    "layer": RELATIVE | {"localness": "layer"},
    "query": RELATIVE | {"localness": "query", "window": 4},
}
IDS = tf.TensorSpec([None, None, F])
MASK = tf.TensorSpec([None, 1, None, None], tf.bool)


def made(**kwargs):
    layer = attention.TransformerAttention(
        F, H, positions=schemes.schemes(**kwargs)
    )
    layer.build((None, None, F))
    return testing.randomize(layer)


def example(seed, *shape):
    return tf.constant(testing.normal(seed, *shape), tf.float32)


def limit(numbers):
    """Has a matrix of more numbers computed in blocks."""
    return mock.patch.object(row_blocks, "MOST_NUMBERS", numbers)


def padding(*lengths):
    """Returns where tokens are: bool `[B, 1, 1, K]`."""
    return tf.sequence_mask(lengths)[:, tf.newaxis, tf.newaxis]


class AttentionTest(tf.test.TestCase, parameterized.TestCase):
    def test_no_matrix_of_a_long_line_is_larger_than_the_limit(self):
        layer = attention.TransformerAttention(2, 1)
        sizes = []
        softmax = pairs.softmax

        def spy(*args):
            weights = softmax(*args)
            sizes.append(int(tf.size(weights)))
            return weights

        with mock.patch.object(pairs, "softmax", spy):
            layer(example(1, 1, 4507, 2))
        self.assertLessEqual(max(sizes), 2**24)
        self.assertEqual(sum(sizes), 4507**2)

    @parameterized.parameters(*KINDS)
    def test_blocks_of_queries_equal_all_queries_at_once(self, kind):
        layer, x = made(**KINDS[kind]), example(1, B, K, F)
        pairs = tf.constant(testing.normal(3, B, 1, K, K) > -1)
        for mask, causal in (
            (None, True),
            (padding(K, 7), False),
            (pairs, True),
        ):
            arguments = {"may_attend": mask, "use_causal_mask": causal}
            expected = layer(x, **arguments, training=True)
            # 4 queries of a plain attention, and the last block has one of 13;
            # of an attention with vectors for each pair, one query.
            with limit(4 * B * H * K):
                self.assertAllClose(layer(x, **arguments), expected, 1e-5, 1e-5)

    def test_a_memory_has_another_length(self):
        layer, x, memory = made(), example(1, B, Q, F), example(2, B, K, F)
        expected = layer(x, memory, may_attend=padding(K, 7), training=True)
        with limit(3 * B * H * K):
            found = layer(x, memory, may_attend=padding(K, 7))
        self.assertAllClose(found, expected, 1e-5, 1e-5)

    def test_one_graph_serves_short_and_long(self):
        layer = made(**RELATIVE)

        def forward(x, mask):
            return layer(x, may_attend=mask, use_causal_mask=True)

        with limit(5 * B * H * K):
            function = tf.function(forward, input_signature=[IDS, MASK])
            for length in (K, 5):
                x = example(1, B, length, F)
                mask = padding(length, 3)
                expected = layer(
                    x, may_attend=mask, use_causal_mask=True, training=True
                )
                self.assertAllClose(function(x, mask), expected, 1e-5, 1e-5)
        self.assertEqual(function.experimental_get_tracing_count(), 1)

    def test_gradients_go_through_blocks(self):
        layer, x = made(**RELATIVE), example(1, B, K, F)

        def gradients(x, training):
            loss = tf.reduce_sum(tf.square(layer(x, training=training)))
            return tf.gradients(loss, [x, *(w.value for w in layer.weights)])

        with limit(4 * B * H * K):
            found, expected = (
                tf.function(
                    lambda x, training=training: gradients(x, training),
                    input_signature=[IDS],
                )(x)
                for training in (False, True)
            )
        for one, other in zip(found, expected, strict=True):
            self.assertAllClose(one, other, 1e-4, 1e-4)

    def test_xla_compiles_attention_of_any_length(self):
        layer, x = made(**RELATIVE), example(1, B, K, F)
        with limit(4 * B * H * K):
            function = tf.function(
                layer, input_signature=[IDS], jit_compile=True
            )
            found = function(x)
        self.assertAllClose(found, layer(x, training=True), 1e-5, 1e-5)


class LossTest(tf.test.TestCase):
    def test_blocks_of_tokens_score_as_each_token_does(self):
        features, table = example(1, 2, 7, 3), example(2, 5, 3)
        labels = tf.constant(np.arange(14).reshape(2, 7) % 5, tf.int32)
        expected = tf.nn.log_softmax(
            tf.einsum("btf,vf->btv", features, table)
        ).numpy()
        for numbers in (1, 4 * 5, 2**24):
            with limit(numbers):
                loss, best = losses.token_losses(features, table, labels)
            self.assertAllEqual(best, expected.argmax(-1))
            for place in np.ndindex(2, 7):
                self.assertAllClose(
                    loss[place], -expected[place][labels[place]]
                )


class ByBlocksTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(0, 1, 6, 7)
    def test_each_row_comes_once_and_in_order(self, rows):
        seen = []

        def compute(start, end):
            seen.append(int(end - start))
            numbers = tf.range(start, end)
            return numbers, tf.stack([numbers, -numbers], 1)

        with limit(35):
            numbers, pairs = row_blocks.by_blocks(
                compute, tf.constant(rows), 11, (tf.int32, tf.int32)
            )
        self.assertAllEqual(numbers, range(rows))
        self.assertAllEqual(pairs[:, 1], -np.arange(rows))
        self.assertLessEqual(max(seen), 3)
