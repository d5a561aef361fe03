"""Attention and losses of long lines, a block of rows at a time."""

from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.layers import attention
from relpos_tf.layers import losses
from relpos_tf.layers import pairs
from relpos_tf.layers import row_blocks
from relpos_tf.utils import graphs
from tests import testing
from tests.layers import schemes
from tests.layers.schemes import floats

B, H, Q, K, F = 2, 3, 7, 9, 12
# A scheme of each kind that computes in another way.
KINDS = (
    *("absolute", "per_head", "reshape", "shared", "keys_only", "k_apart"),
    *("k0", "additive_relative", "window_relative", "split_relative"),
    *("backward", "fixed", "heads_relative", "layer_relative", "query"),
    *("t5", "kerple", "fire", "transformer_xl"),
)


def made(kind):
    return schemes.made(F, H, *schemes.schemes(**schemes.KINDS[kind]))


IDS = tf.TensorSpec([None, None, F])
MASK = tf.TensorSpec([None, 1, None, None], tf.bool)


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
            layer(floats(1, 1, 4507, 2))
        self.assertLessEqual(max(sizes), 2**24)
        self.assertEqual(sum(sizes), 4507**2)

    @parameterized.parameters(*KINDS)
    def test_blocks_of_queries_equal_all_queries_at_once(self, kind):
        layer, x = made(kind), floats(1, B, K, F)
        pairs = tf.constant(testing.normal(3, B, 1, K, K) > -1)
        for mask, causal in (
            (None, True),
            (padding(K, 7), False),
            (pairs, True),
        ):
            arguments = {"may_attend": mask, "use_causal_mask": causal}
            expected = layer(x, **arguments, training=True)
            # 4 queries of a plain attention, and the last block has one of 9;
            # of an attention with vectors for each pair, one query.
            with limit(4 * B * H * K):
                self.assertAllClose(layer(x, **arguments), expected, 1e-5, 1e-5)

    @parameterized.product(
        kind=("absolute", "additive_relative"), lengths=((Q, K), (K, Q))
    )
    def test_a_memory_has_another_length(self, kind, lengths):
        layer = made(kind)
        x, memory = (floats(1, B, length, F) for length in lengths)
        arguments = {"may_attend": padding(lengths[1], 6)}
        expected = layer(x, memory, **arguments, training=True)
        with limit(3 * B * H * K):
            found = layer(x, memory, **arguments)
            graph = graphs.function(
                lambda *inputs: layer(*inputs, **arguments), [IDS, IDS]
            )
            from_graph = graph(x, memory)
        self.assertAllClose(found, expected, 1e-5, 1e-5)
        self.assertAllClose(from_graph, expected, 1e-5, 1e-5)

    @parameterized.parameters(False, True)
    def test_one_graph_serves_short_and_long(self, jit_compile):
        layer = made("per_head")

        def forward(x, mask):
            return layer(x, may_attend=mask, use_causal_mask=True)

        with limit(5 * B * H * K):
            function = graphs.function(
                forward, input_signature=[IDS, MASK], jit_compile=jit_compile
            )
            for length in (K, 5):
                x = floats(1, B, length, F)
                mask = padding(length, 3)
                expected = layer(
                    x, may_attend=mask, use_causal_mask=True, training=True
                )
                self.assertAllClose(function(x, mask), expected, 1e-5, 1e-5)
        self.assertEqual(function.experimental_get_tracing_count(), 1)

    def test_gradients_go_through_blocks(self):
        layer, x = made("per_head"), floats(1, B, K, F)

        def gradients(x, training):
            loss = tf.reduce_sum(tf.square(layer(x, training=training)))
            return tf.gradients(loss, [x, *(w.value for w in layer.weights)])

        with limit(4 * B * H * K):
            found, expected = (
                graphs.function(
                    lambda x, training=training: gradients(x, training),
                    input_signature=[IDS],
                )(x)
                for training in (False, True)
            )
        for one, other in zip(found, expected, strict=True):
            self.assertAllClose(one, other, 1e-4, 1e-4)


class LossTest(tf.test.TestCase):
    def test_blocks_of_tokens_score_as_each_token_does(self):
        features, table = floats(1, 2, 7, 3), floats(2, 5, 3)
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
                    loss[place], -expected[place][labels[place]], atol=1e-6
                )
