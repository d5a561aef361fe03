"""Tests of multi-head attention and of its caches.

Shapes: B batch, H heads, Q queries, K keys, D depth per head, F features.
"""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf.layers import attention
from relpos_tf.layers import dropout
from relpos_tf.layers import pairs
from relpos_tf.layers.positions import shaw
from tests import oracles
from tests import testing
from tests.layers import schemes

B, H, Q, K, F = 2, 3, 5, 7, 12
KERNELS = {
    f"{name}/kernel": (F, F) for name in ("q", "k", "v", "output_transform")
}
RELATIVE = {
    "shared": {
        "max_relative_position": 2,
        "heads_share": True,
    },
    "per_head": {"max_relative_position": 2},
    "keys_only": {"max_relative_position": 2, "add_to_values": False},
    "values_only": {"max_relative_position": 2, "add_to_keys": False},
    "k0": {"max_relative_position": 0},
    "k_apart": {"max_relative_position": 3, "max_relative_position_right": 1},
    "k_after": {"max_relative_position": 0, "max_relative_position_right": 2},
    "neither": {
        "max_relative_position": 2,
        "add_to_keys": False,
        "add_to_values": False,
    },
    "absolute": {},
}


def example(seed, *shape):
    return tf.constant(testing.normal(seed, *shape), tf.float32)


def left_of(kind):
    """Returns the row of distance 0 in the tables of a kind, or None."""
    if "max_relative_position_right" in RELATIVE[kind]:
        return RELATIVE[kind]["max_relative_position"]
    return None


def attention_layer(kind, **kwargs):
    """Returns a layer whose weights are all different from 0."""
    dtype = kwargs.pop("dtype", "float32")
    layer = attention.TransformerAttention(
        F, H, positions=schemes.schemes(**RELATIVE[kind], **kwargs), dtype=dtype
    )
    layer.build((None, None, F))
    return testing.randomize(layer)


class MultiHeadAttentionTest(testing.LayerTestCase):
    @parameterized.parameters(
        (
            "per_head",
            {
                "relative_positions_keys": (H, 5, F // H),
                "relative_positions_values": (H, 5, F // H),
            },
        ),
        ("absolute", {}),
    )
    def test_contract(self, kind, tables):
        self.assert_layer_contract(
            attention.TransformerAttention(
                F,
                H,
                positions=schemes.schemes(**RELATIVE[kind]),
                dropout=0.3,
                name="self_attention",
            ),
            example(1, B, Q, F),
            weights=KERNELS | tables,
        )

    @parameterized.product(
        kind=[*RELATIVE], implementation=["reshape", "compact"]
    )
    def test_self_attention_equals_the_loops(self, kind, implementation):
        options = {"implementation": implementation}
        layer = attention_layer(kind, **(options if RELATIVE[kind] else {}))
        weights = testing.named_weights(layer)
        x = testing.normal(2, B, Q, F)
        causal = np.tri(Q, dtype=bool)
        # Each example, and each query, is allowed other keys.
        mask = (np.arange(Q) != [[1], [3]])[:, None]  # [B, 1, Q]
        mask = (mask | np.eye(Q, dtype=bool))[:, None]  # [B, 1, Q, Q]
        for may_attend, use_causal_mask, allowed in (
            (mask & causal, False, mask & causal),
            (None, True, causal),
            (mask, True, mask & causal),
        ):
            self.assertAllClose(
                layer(
                    tf.constant(x, tf.float32),
                    may_attend=may_attend,
                    use_causal_mask=use_causal_mask,
                ),
                oracles.multihead(
                    weights, H, x, x, allowed, left=left_of(kind)
                ),
                rtol=1e-4,
                atol=1e-4,
            )

    @parameterized.product(kind=["absolute", "per_head"], causal=[False, True])
    def test_attention_to_a_memory_equals_the_loops(self, kind, causal):
        # The queries are at the end of the memory.
        layer = attention_layer(kind)
        x, memory = testing.normal(2, B, Q, F), testing.normal(3, B, K, F)
        allowed = (np.arange(K) < [[4], [7]])[:, None, None]  # [B, 1, 1, K]
        if causal:
            allowed = np.tri(Q, K, K - Q, dtype=bool)
        expected = oracles.multihead(
            testing.named_weights(layer), H, x, memory, allowed
        )
        inputs = tf.constant(x, tf.float32), tf.constant(memory, tf.float32)
        found = layer(
            *inputs,
            may_attend=None if causal else allowed,
            use_causal_mask=causal,
        )
        self.assertAllClose(found, expected, rtol=1e-4, atol=1e-4)
        found, _ = layer.attend(
            inputs[0], layer.project(inputs[1]), may_attend=allowed
        )
        self.assertAllClose(found, expected, rtol=1e-4, atol=1e-4)

    @parameterized.parameters(
        ("shared", "auto", {}),
        ("per_head", "reshape", {}),
        ("per_head", "reshape", {"direction": "forward"}),
        ("per_head", "compact", {}),
        ("per_head", "compact", {"direction": "forward"}),
    )
    def test_more_queries_than_keys_equal_the_loops(
        self, kind, implementation, direction
    ):
        # In float64, where a masked logit keeps its digits: the first two
        # queries look forward and see no key.
        layer = attention_layer(
            kind, implementation=implementation, dtype="float64", **direction
        )
        x, memory = testing.normal(2, B, Q, F), testing.normal(3, B, 3, F)
        weights = testing.named_weights(layer)
        expected = oracles.multihead(weights, H, x, memory, True, **direction)
        spec = [tf.TensorSpec([None, None, F], tf.float64)] * 2
        for call in (layer, tf.function(layer, input_signature=spec)):
            found = call(tf.constant(x), tf.constant(memory))
            self.assertAllClose(found, expected, 1e-6, 1e-6)

    @parameterized.product(
        kind=["shared", "per_head"], implementation=["reshape", "compact"]
    )
    def test_a_query_without_a_key_attends_to_all_keys_equally(
        self, kind, implementation
    ):
        layer = attention_layer(kind, implementation=implementation)
        x = testing.normal(2, B, Q, F)
        # The first example has no token; the second begins with padding.
        allowed = (np.arange(Q) >= [[Q], [2]])[:, None, None]  # [B, 1, 1, Q]
        found = layer(
            tf.constant(x, tf.float32),
            may_attend=allowed,
            use_causal_mask=True,
        )
        weights = testing.named_weights(layer)
        expected = oracles.multihead(
            weights, H, x, x, allowed & np.tri(Q, dtype=bool)
        )
        # Without content and vectors of keys, weights are even.
        even = weights | {"q/kernel": 0.0 * weights["q/kernel"]}
        even = oracles.multihead(even, H, x, x, True)
        expected[0], expected[1, :2] = even[0], even[1, :2]
        self.assertAllClose(found, expected, 1e-4, 1e-4)

    @parameterized.parameters("reshape", "compact")
    def test_in_float64_a_query_without_a_key_attends_as_if_to_all(
        self, implementation
    ):
        # -1e9 for all keys is lost in a softmax that has the digits for it.
        layer = attention_layer(
            "per_head", implementation=implementation, dtype="float64"
        )
        x = testing.normal(2, B, Q, F)
        found = layer(
            tf.constant(x),
            may_attend=np.zeros([Q, Q], bool),
            use_causal_mask=True,
        )
        weights = testing.named_weights(layer)
        expected = oracles.multihead(weights, H, x, x, True)
        self.assertAllClose(found, expected, 1e-6, 1e-6)

    def test_tables_begin_as_glorots_for_each_head(self):
        layer = attention.TransformerAttention(22, 2, positions=[shaw.Shaw(8)])
        layer.build((None, None, 22))
        limit = (6 / (17 + 11)) ** 0.5
        self.assertLen(shaw.tables_of(layer), 2)
        for table in shaw.tables_of(layer).values():
            largest = np.max(np.abs(table.numpy()), axis=(1, 2))
            self.assertAllInRange(largest, 0.9 * limit, limit)

    def test_dropout_zeroes_weights_while_training_only(self):
        layer = attention.TransformerAttention(F, H, dropout=0.5)
        layer.build((None, None, F))
        # Values and output are the identity, so that weights are visible.
        for kernel in (layer.v.kernel, layer.output_transform.kernel):
            kernel.assign(tf.eye(F))
        x = tf.ones([3, 101, F])  # weights of 1/101 each
        self.assertAllClose(layer(x), x, rtol=1e-4)
        with dropout.seed_scope(tf.constant([3, 5])):
            dropped = layer(x, training=True)
        by_head = tf.reshape(dropped, [3, 101, H, F // H])
        number_kept = by_head * 101 / 2
        self.assertAllClose(number_kept, np.round(number_kept), atol=1e-3)
        self.assertGreater(np.std(number_kept), 3.0)
        self.assertAllClose(np.mean(dropped), 1.0, atol=0.05)


class CacheTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.product(
        kind=["shared", "per_head", "keys_only", "k_apart", "absolute"],
        places=[None, K + 4],  # of a fixed cache, four stay free
        dtype=["float32", "float64"],
    )
    def test_steps_equal_rows_of_the_full_pass(self, kind, places, dtype):
        layer = attention_layer(kind, dtype=dtype)
        x = tf.constant(testing.normal(5, B, K, F), dtype)
        expected = layer(x, use_causal_mask=True)
        state, rows, start = layer.init_cache(B, places), [], 0
        for end in range(3, K + 1):
            row, state = layer.step(x[:, start:end], state, start=start)
            rows.append(row)
            start = end
        # Rounding only: the outputs are up to 2.
        limit = 1e-5 if dtype == "float32" else 1e-14
        self.assertAllClose(tf.concat(rows, 1), expected, rtol=0, atol=limit)

    def test_a_step_without_room_is_refused(self):
        layer = attention_layer("shared")
        x = example(5, B, 3, F)
        _, fixed = layer.step(x, layer.init_cache(B, 5), start=0)
        with self.assertRaisesRegex(
            errors.UserError,
            "room for 5 positions: .*`max_length`. .*=3, 3 new positions",
        ):
            layer.step(x, fixed, start=3)
        layer.step(x[:, :2], fixed, start=3)

    @parameterized.parameters(None, 7)
    def test_a_cache_holds_written_positions_and_zeros(self, places):
        layer = attention.TransformerAttention(F, H)
        state, start = layer.init_cache(B, places), 0
        parts = [example(7 + n, B, H, n, F // H) for n in (2, 1, 3)]
        for part in parts:
            new = pairs.KeysValues(part, 2.0 * part)
            state = state.extend(new, tf.constant(start))
            start += part.shape[2]
        free = tf.zeros([B, H, places - start if places else 0, F // H])
        expected = tf.concat([*parts, free], 2)
        self.assertAllEqual(state.keys, expected)
        self.assertAllEqual(state.values, 2.0 * expected)

    @parameterized.parameters("growing", "fixed")
    def test_a_loop_in_a_graph_equals_the_full_pass(self, cache):
        layer = attention_layer("per_head")
        x = example(5, B, K, F)
        empty = layer.init_cache(B, K + 2 if cache == "fixed" else None)

        @tf.function
        def decode():
            def body(start, state, rows):
                query = tf.gather(x, start, axis=1)[:, tf.newaxis]
                row, state = layer.step(query, state, start=start)
                return start + 1, state, rows.write(start, row[:, 0])

            shape = tf.TensorShape([B, H, None, F // H])
            rows = tf.TensorArray(tf.float32, K, element_shape=[B, F])
            _, _, rows = tf.while_loop(
                lambda start, *_: start < K,
                body,
                (0, empty, rows),
                shape_invariants=(
                    tf.TensorShape([]),
                    type(empty)(shape, shape),
                    tf.TensorShape(None),
                ),
            )
            return tf.transpose(rows.stack(), [1, 0, 2])

        self.assertAllClose(
            decode(),
            layer(x, may_attend=pairs.Pairs(K, K, causal=True).mask()),
            atol=1e-5,
        )
