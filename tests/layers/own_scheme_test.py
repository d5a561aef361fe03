"""A scheme of a user's own: the layer around it.

The steps of docs/positions.md, from training to translation, are in
`tests/integration/own_scheme_test.py`.

Shapes: B batch, L length, F features.
"""

import copy
import pathlib
import warnings

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf.layers import attention
from relpos_tf.layers import blocks
from relpos_tf.layers import pairs as pairs_lib
from relpos_tf.layers.positions import alibi
from relpos_tf.layers.positions import bucketed
from relpos_tf.layers.positions import localness
from relpos_tf.layers.positions import scheme
from relpos_tf.layers.positions import shaw
from relpos_tf.layers.positions import window
from tests import oracles
from tests import testing
from tests.layers import schemes

B, L, F, H = 2, 5, 12, 2
SIZES = {"hidden_size": F, "num_heads": H}
OTHERS = (
    {"filter_size": 7, "hidden_size": F},
    {"norm_before": True, "norm_after": False},
)


class Unregistered(scheme.Scheme):
    """ALiBi, which Keras does not know by this name."""

    build = alibi.Alibi.build
    bias = alibi.Alibi.bias


class Forbidding(scheme.Scheme):
    """Forbids later keys by its lowest number, in the compute dtype."""

    def __init__(self, lowest):
        self.lowest = lowest

    def build(self, layer):
        self._dtype = layer.compute_dtype

    def bias(self, x, keys, pairs):
        is_later = pairs.distances() > 0
        return tf.cast(tf.where(is_later, self.lowest, 0.0), self._dtype)


class Capped(scheme.Scheme):
    """Soft-capped logits."""

    def logits(self, logits, q, pairs):
        return 2.0 * tf.tanh(logits / 2.0)


class Squared(scheme.Scheme):
    """Weights that do not sum to 1."""

    def output(self, weights, pairs, sums_to_one):
        return weights**2, 0.0


class Sigmoid(scheme.Scheme):
    """Weights of single pairs, without a softmax."""

    def attend(self, layer, q, keys_values, pairs, bias, training):
        logits = tf.matmul(q, keys_values.keys, transpose_b=True)
        logits = layer.logits(logits, q, pairs)
        weights = tf.sigmoid(pairs_lib.add_bias(logits, bias))
        return layer.weighted_values(
            weights, keys_values.values, pairs, training
        ), weights


class CappedShaw(shaw.Shaw):
    """Shaw's vectors, and soft-capped logits, of one scheme."""

    def logits(self, logits, q, pairs):
        return Capped().logits(super().logits(logits, q, pairs), q, pairs)


class SquaredShaw(shaw.Shaw):
    """Shaw's vectors by weights that do not sum to 1."""

    def output(self, weights, pairs, sums_to_one):
        return super().output(weights**2, pairs, sums_to_one)


class Ones(scheme.Scheme):
    """Replaces weights by ones where they are said to sum to 1."""

    def output(self, weights, pairs, sums_to_one):
        return tf.ones_like(weights) if sums_to_one else weights, 0.0


# Schemes beside Shaw's vectors, in the order of the layer.
BESIDE = {
    "capped_before": (Capped(), shaw.Shaw(2)),
    "capped_after": (shaw.Shaw(2), Capped()),
    "squared_before": (Squared(), shaw.Shaw(2)),
    "squared_after": (shaw.Shaw(2), Squared()),
    "sigmoid_before": (Sigmoid(), shaw.Shaw(2)),
    "sigmoid_after": (shaw.Shaw(2), Sigmoid()),
    "capped_twice": (Capped(), shaw.Shaw(2), Capped(), Squared()),
    "sigmoid_of_capped": (shaw.Shaw(2), Capped(), Squared(), Sigmoid()),
    "by_a_subclass": (CappedShaw(2),),
    "squared_by_a_subclass": (SquaredShaw(2),),
    "one_vector": (shaw.Shaw(0), Capped()),
    "one_causal_vector": (
        shaw.Shaw(0, max_relative_position_right=2),
        Sigmoid(),
    ),
    "explicit": (shaw.Shaw(2, implementation="compact"), Capped(), Squared()),
}


def loops(positions, weights, x):
    """Returns the causal output of schemes of this module: `[B, L, F]`."""
    q, k, v = (x @ weights[f"{name}/kernel"] for name in "qkv")
    q = q / (F // H) ** 0.5
    result = np.zeros_like(x)
    for b, h, i in np.ndindex(len(x), H, L):
        own = slice(h * (F // H), (h + 1) * (F // H))
        past = range(i + 1)
        e = q[b, i, own] @ k[b, : i + 1, own].T

        def vectors(kind, left, h=h, i=i, past=past):
            table = weights[f"relative_positions_{kind}"]
            return np.array(
                [oracles.distance_vector(table, h, j - i, left) for j in past]
            )

        for one in positions:
            if isinstance(one, shaw.Shaw):
                e = e + vectors("keys", one.left) @ q[b, i, own]
            if isinstance(one, Capped | CappedShaw):
                e = 2.0 * np.tanh(e / 2.0)
        is_sigmoid = any(isinstance(one, Sigmoid) for one in positions)
        w = (oracles.sigmoid if is_sigmoid else oracles.softmax)(e)
        for one in positions:
            if isinstance(one, Squared | SquaredShaw):
                w = w**2
            if isinstance(one, shaw.Shaw):
                result[b, i, own] += w @ vectors("values", one.left)
        result[b, i, own] += w @ v[b, : i + 1, own]
    return result @ weights["output_transform/kernel"]


def example():
    return tf.constant(testing.normal(1, B, L, F), tf.float32)


class BesideShawTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(*BESIDE)
    def test_calls_steps_and_gradients_equal_the_loops(self, case):
        positions = BESIDE[case]
        layer = schemes.made(F, H, *positions, dtype="float64")
        for weight in layer.weights:
            weight.assign(2.0 * weight)  # far enough to be capped
        x, upstream = testing.normal(1, B, L, F), testing.normal(2, B, L, F)
        weights = testing.named_weights(layer)

        def total(x, *arrays):
            moved = dict(zip(weights, arrays, strict=True))
            return np.sum(loops(positions, moved, x) * upstream)

        expected = loops(positions, weights, x)
        inputs = tf.constant(x)
        cache, rows = layer.init_cache(B), []
        for start, end in (0, 3), (3, 4), (4, 5):
            row, cache = layer.step(inputs[:, start:end], cache, start=start)
            rows.append(row)
        self.assertAllClose(tf.concat(rows, 1), expected, 1e-9, 1e-9)
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            found = layer(inputs, use_causal_mask=True)
        self.assertAllClose(found, expected, 1e-9, 1e-9)
        gradients = tape.gradient(
            found, [inputs, *(w.value for w in layer.weights)], upstream
        )
        arrays = [x, *weights.values()]
        testing.assert_gradients(self, gradients, total, arrays, rtol=1e-5)

    @parameterized.parameters(Squared, Sigmoid)
    def test_no_hook_is_told_that_changed_weights_sum_to_1(self, kind):
        others = [Squared()] if kind is Sigmoid else []
        found, expected = (
            schemes.made(F, H, kind(), *more)(example(), use_causal_mask=True)
            for more in ([*others, Ones()], others)
        )
        self.assertAllEqual(found, expected)

    def test_only_what_sees_the_numbers_keeps_from_the_compact_form(self):
        x = tf.constant(testing.normal(3, 1, 31, F), tf.float32)
        for more, is_compact in (
            ([alibi.Alibi()], True),
            ([shaw.Shaw(3, add_to_keys=False)], True),
            ([Capped()], False),
        ):
            own = shaw.Shaw(2, add_to_values=False)
            layer = schemes.made(F, H, own, *more)
            most = testing.largest_tensor(layer, x)
            self.assertEqual(most < 31 * 31 * F // H, is_compact, more)


class OwnSchemeTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.product(
        dtype=["mixed_float16", "mixed_bfloat16", "float16", "float32"],
        lowest=[-1e9, -np.inf],
        more=[False, True],
    )
    def test_a_bias_in_the_compute_dtype_is_a_mask(self, dtype, lowest, more):
        x = example()
        mask = np.arange(L) < [[0], [3]]  # a line of padding alone
        others = window.Window(1), shaw.Shaw(2), bucketed.Bucketed(8, 7)
        layer, masked = (
            schemes.made(
                F, H, first, *copy.deepcopy(others[: 3 * more]), **kind
            )
            for first, kind in (
                (Forbidding(lowest), {"dtype": dtype}),
                (window.Direction("forward"), {}),
            )
        )
        with tf.GradientTape() as tape:
            tape.watch(x)
            found = layer(x, mask=mask)
        self.assertAllClose(found[1, :3], masked(x, mask=mask)[1, :3], 0.1, 0.1)
        self.assertTrue(np.all(np.isfinite(tf.cast(found, tf.float32))))
        self.assertTrue(np.all(np.isfinite(tape.gradient(found, x))))

    def test_what_keras_does_not_know_cannot_be_loaded(self):
        layer = attention.TransformerAttention(F, H, positions=[Unregistered()])
        config = layer.get_config()["positions"]
        with self.assertRaisesRegex(
            errors.UserError, "register_keras_serializable.*Unregistered"
        ):
            attention.TransformerAttention(F, H, positions=config)

    def test_weights_of_several_schemes_are_saved_and_restored(self):
        own = {"positions": [shaw.Shaw(2), localness.Localness("query")]}
        saved, restored = (
            keras.Sequential([blocks.EncoderBlock(SIZES | own, *OTHERS)])
            for _ in range(2)
        )
        path = pathlib.Path(self.create_tempdir().full_path, "x.weights.h5")
        for model in saved, restored:
            model(example())
        testing.randomize(saved)
        with warnings.catch_warnings():
            # Keras saves by an interface that NumPy 2 wants changed.
            warnings.simplefilter("ignore", DeprecationWarning)
            saved.save_weights(path)
            restored.load_weights(path)
        self.assertGreater(len(saved.weights), 12 + 2)
        for one, other in zip(saved.weights, restored.weights, strict=True):
            self.assertAllEqual(one, other)

    def test_a_block_keeps_a_copy_of_its_schemes(self):
        given = alibi.Alibi()
        config = SIZES | {"positions": [given]}
        block = blocks.DecoderBlock(config, *OTHERS, source_positions=[given])
        self.assertIs(config["positions"][0], given)
        again = blocks.DecoderBlock.from_config(block.get_config())
        self.assertEqual(again.get_config(), block.get_config())
        for layer in (again.self_attention, again.encdec_attention):
            self.assertIsInstance(layer.positions[0], alibi.Alibi)
            self.assertIsNot(layer.positions[0], given)
