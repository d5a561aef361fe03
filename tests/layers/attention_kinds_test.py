"""Attention with every scheme of positions, against the loops.

Shapes: B batch, H heads, Q queries, K keys, D depth per head, F features.
"""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.layers import attention
from relpos_tf.layers import pairs
from tests import oracles
from tests import testing
from tests.layers import schemes

B, H, Q, K, F = 2, 3, 5, 7, 12
RELATIVE = {"max_relative_position": 2}
SHARED = RELATIVE | {"heads_share": True}
LOCAL = {
    "fixed": {"localness": ("fixed", 3)},
    "layer": {"localness": "layer"},
    "query": {"localness": "query"},
    "layer_relative": {"localness": "layer"} | RELATIVE,
    "layer_window_split": {
        "localness": "layer",
        "window": 2,
        "direction": "split",
    },
}
KINDS = LOCAL | {
    "window": {"window": 1},
    "window_relative": {"window": 3} | SHARED,
    "forward": {"direction": "forward"} | RELATIVE,
    "backward": {"direction": "backward"},
    "split_relative": {"direction": "split"} | SHARED,
    "heads": {"heads_window": 5},
    "heads_relative": {"heads_window": 3, "window": 2} | RELATIVE,
    "heads_localness": {"heads_window": 3, "localness": "layer"} | SHARED,
    "additive": {"score": "additive"},
    "feature_wise": {"score": "feature_wise"},
    "feature_wise_relative": {"score": "feature_wise", "window": 2} | RELATIVE,
    "feature_wise_shared": {"score": "feature_wise"} | SHARED,
    "additive_relative": {"score": "additive"} | RELATIVE,
    "additive_shared": {"score": "additive", "localness": "query"} | SHARED,
    "alibi": {"alibi": ()},
    "rotary": {"rotary": ()},
    "t5": {"t5": (8, 5)},
}
# What a decoder may have: it sees no later position anyway.
CAUSAL = [kind for kind in KINDS if "direction" not in KINDS[kind]]


def made(kind, size=F, heads=H, **kwargs):
    """Returns a layer whose weights are all different from 0."""
    positions = schemes.schemes(**KINDS[kind])
    layer = attention.TransformerAttention(
        size, heads, positions=positions, **kwargs
    )
    layer.build((None, None, size))
    return testing.randomize(layer)


def loops(kind, weights, heads, x, memory, allowed):
    """Calls the oracle with the arguments that it does not see in weights."""
    case = KINDS[kind]
    names = "window", "heads_window", "direction", "localness"
    changes = {name: case[name] for name in names if name in case}
    if kind == "fixed":
        changes["localness"], changes["localness_window"] = case["localness"]
    if case.get("score") == "feature_wise":
        changes["score"] = "feature_wise"
    if kind in ("alibi", "rotary"):
        changes["scheme"] = kind
    if kind == "t5":
        changes["t5"] = 5, True
    return oracles.multihead(weights, heads, x, memory, allowed, **changes)


def padded(lengths, length):
    """Returns where tokens are: bool `[B, 1, 1, K]`."""
    return (np.arange(length) < np.array(lengths)[:, None])[:, None, None]


def example(seed, *shape):
    return tf.constant(testing.normal(seed, *shape), tf.float32)


class KindsTest(testing.LayerTestCase):
    def test_contract(self):
        weights = {
            f"{name}/kernel": (F, F)
            for name in ("q", "k", "v", "output_transform")
        }
        weights |= {
            "localness_position_hidden": (F, F),
            "localness_position_vectors": (F, H),
            "localness_window_vectors": (F, H),
            "score_vectors": (H, F // H),
            "relative_positions_keys": (5, F // H),
            "relative_positions_values": (5, F // H),
            "relative_attention_bias": (8, H),
        }
        case = KINDS["additive_shared"] | KINDS["t5"]
        self.assert_layer_contract(
            attention.TransformerAttention(
                F, H, positions=schemes.schemes(**case), name="a"
            ),
            example(1, B, Q, F),
            weights=weights,
        )

    @parameterized.parameters(*KINDS)
    def test_equals_the_loops_with_padding(self, kind):
        layer = made(kind)
        x = testing.normal(2, B, K, F)
        allowed = padded([4, 7], K)
        expected = loops(kind, testing.named_weights(layer), H, x, x, allowed)
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
        weights = testing.named_weights(layer)
        expected = loops(kind, weights, H, x, x, np.tri(K, dtype=bool))
        inputs = tf.constant(x, tf.float32)
        found = layer(inputs, use_causal_mask=True)
        self.assertAllClose(found, expected, 1e-4, 1e-4)
        # The same from keys and values that are projected already.
        again, _ = layer.attend(
            inputs,
            layer.project(inputs),
            may_attend=pairs.Pairs(K, K, causal=True).mask(),
        )
        self.assertAllClose(again, expected, 1e-4, 1e-4)

    @parameterized.parameters(
        *("fixed", "layer", "query", "additive", "window", "heads"),
        *("feature_wise", "t5"),
    )
    def test_a_memory_equals_the_loops(self, kind):
        layer = made(kind)
        x, memory = testing.normal(2, B, Q, F), testing.normal(3, B, K, F)
        allowed = padded([5, 7], K)
        if kind == "window":  # counted from the end of the memory
            allowed[:] = True
        weights = testing.named_weights(layer)
        expected = loops(kind, weights, H, x, memory, allowed)
        inputs = [tf.constant(array, tf.float32) for array in (x, memory)]
        spec = [tf.TensorSpec([None, None, F])] * 2
        call = tf.function(
            lambda x, memory: layer(x, memory, may_attend=allowed), spec
        )
        for found in (layer(*inputs, may_attend=allowed), call(*inputs)):
            self.assertAllClose(found, expected, 1e-4, 1e-4)

    @parameterized.parameters(
        *("fixed", "layer_relative", "query", "split_relative"),
        *("heads_relative", "additive_shared", "feature_wise_relative", "t5"),
    )
    def test_gradients_equal_differences_of_the_loops(self, kind):
        layer = made(kind, size=4, heads=2, dtype="float64")
        x, upstream = testing.normal(4, 1, 3, 4), testing.normal(5, 1, 3, 4)
        names = list(testing.named_weights(layer))

        def total(x, *arrays):
            weights = dict(zip(names, arrays, strict=True))
            output = loops(kind, weights, 2, x, x, np.ones([3, 3], bool))
            return np.sum(output * upstream)

        arrays = [x, *testing.named_weights(layer).values()]
        inputs = tf.constant(x)
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            output = layer(inputs)
        gradients = tape.gradient(
            output, [inputs, *(w.value for w in layer.weights)], upstream
        )
        testing.assert_gradients(self, gradients, total, arrays, rtol=1e-5)

    @parameterized.parameters(*LOCAL, "heads_relative", "feature_wise")
    def test_sentences_without_a_token_stay_finite(self, kind):
        layer = made(kind)
        x = example(2, B, K, F)
        with tf.GradientTape() as tape:
            tape.watch(x)
            output = layer(x, may_attend=padded([0, 3], K))
        gradient = tape.gradient(output, x)
        self.assertTrue(np.all(np.isfinite(output)))
        self.assertTrue(np.all(np.isfinite(gradient)))

    @parameterized.parameters(
        "fixed", "layer_window_split", "query", "heads", "feature_wise"
    )
    def test_a_mask_that_broadcasts_equals_the_full_one(self, kind):
        layer, x = made(kind), example(2, B, K, F)
        shapes = (), (1,), (1, 1), (K, 1), (B, 1, K, 1), (B, H, 1, 1)
        for shape in shapes:
            mask = testing.normal(9, *shape) > -1.0
            full = np.broadcast_to(mask, (B, H, K, K))
            self.assertAllClose(
                layer(x, may_attend=mask),
                layer(x, may_attend=full),
                rtol=1e-5,
                atol=1e-5,
                msg=f"mask of the shape {shape}",
            )

    @parameterized.product(
        kind=["layer_relative", "query", "heads_relative", "alibi", "rotary"]
        + ["feature_wise_relative", "additive_shared", "t5"],
        dtype=["bfloat16", "mixed_float16", "float64"],
    )
    def test_every_dtype_equals_the_loops(self, kind, dtype):
        layer = made(kind, dtype=dtype)
        x = testing.normal(2, B, K, F)
        weights = testing.named_weights(layer)
        expected = loops(kind, weights, H, x, x, np.tri(K, dtype=bool))
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
            self.assertAllClose(found[0, h, i], np.mean(of_features, 0))


class CacheTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.product(kind=CAUSAL, cache=["growing", "fixed"])
    def test_steps_equal_rows_of_the_full_pass(self, kind, cache):
        layer = made(kind)
        x = example(5, B, K, F)
        expected = layer(x, use_causal_mask=True)
        # Of the fixed one, four places stay free.
        past = layer.init_cache(B, K + 4 if cache == "fixed" else None)
        rows, start = [], 0
        for end in range(3, K + 1):
            row, past = layer.step(x[:, start:end], past, start=start)
            rows.append(row)
            start = end
        self.assertAllClose(tf.concat(rows, 1), expected, 1e-5, 1e-5)

    def test_a_compiled_step_equals_the_row_of_the_full_pass(self):
        layer = made("layer")
        x = example(5, B, K, F)
        # The places from the fourth on are not read before they are written.
        past = pairs.FixedCache(*layer.project(x))
        step = tf.function(
            lambda x, past: layer.step(x, past, start=3), jit_compile=True
        )
        row, _ = step(x[:, 3:4], past)
        expected = layer(x, use_causal_mask=True)[:, 3:4]
        self.assertAllClose(row, expected, 1e-5, 1e-5)
