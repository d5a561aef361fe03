"""Attention with every scheme of positions, against the loops.

Shapes: B batch, H heads, Q queries, K keys, D depth per head, F features.
"""

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.layers import attention
from relpos_tf.layers import dropout
from relpos_tf.layers import pairs
from relpos_tf.layers import relations
from relpos_tf.layers.positions import shaw
from relpos_tf.utils import graphs
from tests import oracles
from tests import testing
from tests.layers import schemes
from tests.layers.schemes import CAUSAL
from tests.layers.schemes import KINDS
from tests.layers.schemes import floats

B, H, Q, K, F = 2, 3, 5, 7, 12


def made(kind, size=F, heads=H, more=None, **arguments):
    positions = schemes.schemes(**KINDS[kind], **(more or {}))
    return schemes.made(size, heads, *positions, **arguments)


def loops(kind, layer, x, memory, allowed, weights=None, **changes):
    """Calls the oracle with the arguments that it does not see in weights."""
    case = KINDS[kind]
    names = "window", "heads_window", "direction", "localness"
    changes |= {name: case[name] for name in names if name in case}
    if kind == "fixed":
        changes |= {"localness": kind, "localness_window": case["localness"]}
    if case.get("score") == "feature_wise":
        changes["score"] = "feature_wise"
    if kind in ("alibi", "rotary", "kerple", "fire", "transformer_xl"):
        changes["scheme"] = kind
    if kind == "t5":
        changes["t5"] = 5, True
    if "max_relative_position_right" in case:
        changes["left"] = case["max_relative_position"]
    weights = testing.named_weights(layer) if weights is None else weights
    return oracles.multihead(
        weights, layer.num_heads, x, memory, allowed, **changes
    )


def padded(lengths, length):
    """Returns where tokens are: bool `[B, 1, 1, K]`."""
    return (np.arange(length) < np.array(lengths)[:, None])[:, None, None]


class AttentionTest(testing.LayerTestCase):
    @parameterized.parameters(
        (KINDS["additive_shared"] | KINDS["t5"], 4 + 7),
        (KINDS["per_head"], 4 + 2),
    )
    def test_contract(self, case, number):
        self.assert_layer_contract(
            attention.TransformerAttention(
                F, H, positions=schemes.schemes(**case), dropout=0.3, name="a"
            ),
            floats(1, B, Q, F),
            number=number,
        )

    @parameterized.parameters(*KINDS)
    def test_equals_the_loops_with_padding(self, kind):
        layer = made(kind)
        x = testing.normal(2, B, K, F)
        allowed = padded([4, 7], K)
        expected = loops(kind, layer, x, x, allowed)
        inputs = tf.constant(x, tf.float32)
        found = layer(inputs, may_attend=allowed)
        # The result of a padded query without a key is not used.
        self.assertAllClose(found[0, :4], expected[0, :4], 1e-4, 1e-4)
        self.assertAllClose(found[1], expected[1], 1e-4, 1e-4)
        self.assertTrue(np.all(np.isfinite(found)))
        # Neither neighbours nor padding change anything.
        self.assertAllClose(layer(inputs[:1, :4])[0], found[0, :4], 1e-5, 1e-5)

    @parameterized.parameters(*CAUSAL)
    def test_equals_the_loops_with_a_causal_mask(self, kind):
        layer = made(kind)
        x = testing.normal(2, B, K, F)
        causal = np.tri(K, dtype=bool)
        # Each example, and each query, is allowed other keys.
        mask = (np.arange(K) != [[1], [3]])[:, None] | np.eye(K, dtype=bool)
        expected = loops(kind, layer, x, x, mask[:, None] & causal)
        inputs = tf.constant(x, tf.float32)
        found = layer(inputs, may_attend=mask[:, None], use_causal_mask=True)
        self.assertAllClose(found, expected, 1e-4, 1e-4)
        # The same from keys and values that are projected already.
        again, _ = layer.attend(
            inputs,
            layer.project(inputs),
            may_attend=mask[:, None] & pairs.Pairs(K, K, causal=True).mask(),
        )
        self.assertAllClose(again, expected, 1e-4, 1e-4)

    @parameterized.parameters(
        *("fixed", "layer", "query", "additive", "window", "heads"),
        *("feature_wise", "t5", "absolute", "per_head", "kerple", "fire"),
        "transformer_xl",
    )
    def test_a_memory_equals_the_loops(self, kind):
        # The queries are at the end of the memory.
        layer = made(kind)
        x, memory = testing.normal(2, B, Q, F), testing.normal(3, B, K, F)
        allowed = padded([5, 7], K)
        if kind == "window":  # counted from the end of the memory
            allowed[:] = True
        expected = loops(kind, layer, x, memory, allowed)
        inputs = [tf.constant(array, tf.float32) for array in (x, memory)]
        spec = [tf.TensorSpec([None, None, F])] * 2
        call = graphs.function(
            lambda x, memory: layer(x, memory, may_attend=allowed), spec
        )
        for found in (layer(*inputs, may_attend=allowed), call(*inputs)):
            self.assertAllClose(found, expected, 1e-4, 1e-4)
        causal = np.tri(Q, K, K - Q, dtype=bool)
        self.assertAllClose(
            layer(*inputs, use_causal_mask=True),
            loops(kind, layer, x, memory, causal),
            1e-4,
            1e-4,
        )

    @parameterized.product(
        kind=["shared", "per_head", "reshape"], direction=["both", "forward"]
    )
    def test_more_queries_than_keys_equal_the_loops(self, kind, direction):
        # In float64, where a masked logit keeps its digits: the first two
        # queries look forward and see no key.
        more = {"direction": direction} if direction == "forward" else {}
        layer = made(kind, more=more, dtype="float64")
        x, memory = testing.normal(2, B, Q, F), testing.normal(3, B, 3, F)
        expected = loops(kind, layer, x, memory, True, **more)
        spec = [tf.TensorSpec([None, None, F], tf.float64)] * 2
        for call in (layer, tf.function(layer, input_signature=spec)):
            found = call(tf.constant(x), tf.constant(memory))
            self.assertAllClose(found, expected, 1e-6, 1e-6)

    @parameterized.parameters("shared", "per_head", "reshape", "heads")
    def test_a_query_without_a_key_attends_to_all_keys_equally(self, kind):
        layer = made(kind)
        x = testing.normal(2, B, Q, F)
        # The first example has no token; the second begins with padding.
        allowed = (np.arange(Q) >= [[Q], [2]])[:, None, None]  # [B, 1, 1, Q]
        expected = loops(kind, layer, x, x, allowed & np.tri(Q, dtype=bool))
        # Without content and vectors of keys, weights are even.
        weights = testing.named_weights(layer)
        weights["q/kernel"] *= 0.0
        even = loops(kind, layer, x, x, True, weights)
        expected[0], expected[1, :2] = even[0], even[1, :2]
        found = layer(
            tf.constant(x, tf.float32), may_attend=allowed, use_causal_mask=True
        )
        self.assertAllClose(found, expected, 1e-4, 1e-4)

    @parameterized.parameters(
        *("fixed", "layer_relative", "query", "split_relative"),
        *("heads_relative", "additive_shared", "feature_wise_relative", "t5"),
        *("kerple", "fire", "transformer_xl"),
    )
    def test_gradients_equal_differences_of_the_loops(self, kind):
        layer = made(kind, size=4, heads=2, dtype="float64")
        x, upstream = testing.normal(4, 1, 3, 4), testing.normal(5, 1, 3, 4)
        names = list(testing.named_weights(layer))

        def total(x, *arrays):
            weights = dict(zip(names, arrays, strict=True))
            allowed = np.ones([3, 3], bool)
            return np.sum(loops(kind, layer, x, x, allowed, weights) * upstream)

        arrays = [x, *testing.named_weights(layer).values()]
        inputs = tf.constant(x)
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            output = layer(inputs)
        gradients = tape.gradient(
            output, [inputs, *(w.value for w in layer.weights)], upstream
        )
        testing.assert_gradients(self, gradients, total, arrays, rtol=1e-5)

    @parameterized.parameters(
        *("per_head", "reshape", "fixed", "layer", "query", "layer_relative"),
        *("layer_window_split", "heads_relative", "feature_wise"),
    )
    def test_sentences_without_a_token_stay_finite(self, kind):
        layer = made(kind)
        x = floats(2, B, K, F)
        with tf.GradientTape() as tape:
            tape.watch(x)
            output = layer(x, may_attend=padded([0, 3], K))
        for tensor in (output, tape.gradient(output, x)):
            self.assertTrue(np.all(np.isfinite(tensor)))

    @parameterized.parameters(
        "fixed", "layer_window_split", "query", "heads", "feature_wise"
    )
    def test_a_mask_that_broadcasts_equals_the_full_one(self, kind):
        layer, x = made(kind), floats(2, B, K, F)
        for shape in (), (1,), (1, 1), (K, 1), (B, 1, K, 1), (B, H, 1, 1):
            mask = testing.normal(9, *shape) > -1.0
            full = np.broadcast_to(mask, (B, H, K, K))
            found = layer(x, may_attend=mask)
            expected = layer(x, may_attend=full)
            self.assertAllClose(found, expected, 1e-5, 1e-5, msg=str(shape))

    @parameterized.product(
        kind=["layer_relative", "query", "heads_relative", "alibi", "rotary"]
        + ["feature_wise_relative", "additive_shared", "t5", "kerple"]
        + ["fire", "transformer_xl"],
        dtype=["bfloat16", "mixed_float16", "float64"],
    )
    def test_every_dtype_equals_the_loops(self, kind, dtype):
        layer = made(kind, dtype=dtype)
        x = testing.normal(2, B, K, F)
        expected = loops(kind, layer, x, x, np.tri(K, dtype=bool))
        inputs = tf.constant(x, layer.compute_dtype)
        digits = {"float16": 1e-2, "bfloat16": 1e-1, "float64": 1e-6}
        digits = digits[layer.compute_dtype]
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            found = layer(inputs, use_causal_mask=True)
        self.assertEqual(found.dtype, layer.compute_dtype)
        self.assertAllClose(
            tf.cast(found, tf.float64), expected, digits, digits
        )
        gradient = tape.gradient(found, inputs)
        self.assertTrue(np.all(np.isfinite(gradient)))

    def test_weights_of_features_are_shown_by_their_mean(self):
        layer = made("feature_wise", size=4, heads=2)
        x = testing.normal(2, 1, 3, 4)
        _, found = layer(tf.constant(x, tf.float32), return_weights=True)
        weights = testing.named_weights(layer)
        q, k = (x[0] @ weights[f"{name}/kernel"] for name in ("q", "k"))
        for h, i in np.ndindex(2, 3):
            of_features = [
                oracles.softmax(5 * np.tanh((q[i, f] + k[:, f]) / 5))
                for f in (2 * h, 2 * h + 1)
            ]
            self.assertAllClose(
                found[0, h, i], np.mean(of_features, 0), atol=1e-6
            )

    @parameterized.parameters(
        attention.TransformerAttention(22, 2, positions=[shaw.Shaw(8)]),
        relations.RelationAttention(22, 2, 17),
    )
    def test_tables_begin_apart_as_glorots_for_each_head(self, layer):
        layer.build((None, None, 22))
        limit = (6 / (17 + 11)) ** 0.5
        first, second = [w.numpy() for w in layer.weights if w.ndim == 3]
        self.assertNotAllClose(first, second, atol=0.1)
        for table in first, second:
            largest = np.max(np.abs(table), axis=(1, 2))
            self.assertAllInRange(largest, 0.9 * limit, limit)

    def test_a_functional_model_has_its_output_and_weights(self):
        x = keras.Input([Q, F])
        layer = attention.TransformerAttention(F, H)
        outputs = layer(x, return_weights=True)
        self.assertIs(layer.output[1], outputs[1])
        model, x = keras.Model(x, outputs), schemes.floats(1, B, Q, F)
        for one, expected in zip(
            model(x), layer(x, return_weights=True), strict=True
        ):
            self.assertAllEqual(one, expected)

    def test_pairs_take_the_place_of_the_mask_of_an_embedding(self):
        layer = attention.TransformerAttention(F, H)
        x = keras.layers.Embedding(3, F, mask_zero=True)(np.array([[1, 2, 0]]))
        output = layer(x, pairs=pairs.Pairs(3, 3))
        self.assertAllClose(output, layer(tf.identity(x)), 1e-6, 1e-6)
        self.assertNotAllClose(output, layer(x), 1e-6, 1e-6)

    def test_dropout_zeroes_weights_while_training_only(self):
        layer = attention.TransformerAttention(F, H, dropout=0.5)
        layer.build((None, None, F))
        # Values and output are the identity, so that weights are visible.
        for kernel in (layer.v.kernel, layer.output_transform.kernel):
            kernel.assign(tf.eye(F))
        x = tf.ones([3, 101, F])  # weights of 1/101 each
        self.assertAllClose(layer(x), x, rtol=1e-4, atol=1e-6)
        with dropout.seed_scope(tf.constant([3, 5])):
            dropped = layer(x, training=True)
        by_head = tf.reshape(dropped, [3, 101, H, F // H])
        number_kept = by_head * 101 / 2
        self.assertAllClose(number_kept, np.round(number_kept), atol=1e-3)
        self.assertGreater(np.std(number_kept), 3.0)
        self.assertAllClose(np.mean(dropped), 1.0, atol=0.05)

    @parameterized.product(
        kind=CAUSAL,
        places=[None, K + 4],  # of a fixed cache, four stay free
    )
    def test_cached_steps_equal_rows_of_the_full_pass(self, kind, places):
        layer = made(kind, dtype="float64")
        x = tf.constant(testing.normal(5, B, K, F))
        expected = layer(x, use_causal_mask=True)
        cache, rows, start = layer.init_cache(B, places), [], 0
        for end in range(3, K + 1):
            row, cache = layer.step(x[:, start:end], cache, start=start)
            rows.append(row)
            start = end
        # Rounding only: the outputs are up to 2.
        self.assertAllClose(tf.concat(rows, 1), expected, rtol=0, atol=1e-14)
