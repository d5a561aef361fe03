"""Tests of `RelativeMultiHeadAttention` that hold on every backend of Keras.

Shapes: B batch, T queries, S keys, N heads, D depth per head, F features.
"""

import contextlib
import inspect
import os
import tempfile
import warnings

import keras
import numpy as np
from absl.testing import parameterized
from keras import ops
from keras.src import testing as keras_testing

from relpos_tf import errors
from relpos_tf.layers import keras_attention
from tests import oracles

N, D, VALUE_D = 3, 5, 7
LENGTHS = {"square": (5, 5), "fewer": (3, 7), "more": (7, 3), "one": (1, 5)}
FORMS = keras_attention.IMPLEMENTATIONS
RELATIVE = {
    "per_head": {},
    "shared": {"heads_share_relative_embedding": True},
    "keys": {"add_relative_to_values": False},
    "values": {"add_relative_to_keys": False},
    "k0": {"max_relative_position": 0},
}


def normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def example_layer(**arguments):
    defaults = {"value_dim": VALUE_D, "max_relative_position": 2}
    return keras_attention.RelativeMultiHeadAttention(
        N, D, **(defaults | arguments)
    )


def randomize(layer):
    """Gives every weight, also a bias, values of its own."""
    for i, weight in enumerate(layer.weights):
        weight.assign(0.5 * normal([3, i], *weight.shape))
    return layer


def built(*inputs, **arguments):
    """Returns a layer whose weights all differ from 0."""
    layer = example_layer(**arguments)
    layer(*inputs)
    return randomize(layer)


def alike(queries, keys, **arguments):
    """Returns a layer of Keras, ours with its weights, and their inputs."""
    inputs = normal(1, 2, queries, 11), normal(2, 2, keys, 13)
    layer = keras.layers.MultiHeadAttention(N, D, **arguments)
    ours = keras_attention.RelativeMultiHeadAttention(
        N, D, relative_initializer="zeros", **arguments
    )
    layer(*inputs), ours(*inputs)
    randomize(layer)
    ours.set_weights(ours.get_weights()[:2] + layer.get_weights())
    return (layer, ours), inputs


def model_of(layers, length=None):
    """Returns a model of layers on an embedding with a mask."""
    keras.utils.set_random_seed(1)
    ids = keras.Input([length], dtype="int32")
    x = keras.layers.Embedding(13, 8, mask_zero=True)(ids)
    for _ in range(layers):
        layer = keras_attention.RelativeMultiHeadAttention(
            2, 4, max_relative_position=3, dropout=0.1
        )
        # Not x + y, which has no mask.
        x = keras.layers.Add()([x, layer(x, x)])
    return keras.Model(ids, keras.layers.GlobalAveragePooling1D()(x))


def assert_close(found, right, case=""):
    """Compares output and scores."""
    for one, expected, atol in zip(found, right, (1e-4, 1e-5), strict=True):
        np.testing.assert_allclose(
            numpy(one), expected, 1e-4, atol, err_msg=case
        )


def numpy(tensor):
    if hasattr(tensor, "path"):  # a variable
        return tensor.numpy()
    return ops.convert_to_numpy(tensor)


@contextlib.contextmanager
def ignored_warnings():
    """Ignores how Keras turns its variables into arrays of NumPy."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


def by_loops(layer, query, value, key=None, allowed=True):
    """Returns output and scores from the weights of a layer, in float64."""
    key = value if key is None else key
    weights = {
        weight.path.split("/", 1)[1]: numpy(weight).astype(np.float64)
        for weight in layer.weights
    }

    def project(x, name):
        y = np.einsum("btf,fnd->bntd", x, weights[f"{name}/kernel"])
        return y + weights[f"{name}/bias"][:, None]

    q, k, v = map(project, (query, key, value), ("query", "key", "value"))
    tables = [
        weights.get(f"relative_positions_{kind}") for kind in ("keys", "values")
    ]
    shape = (len(q), N, q.shape[2], k.shape[2])
    bias = np.where(np.broadcast_to(allowed, shape), 0.0, -1e9)
    # The oracle's output has the shape of q.
    q = np.pad(q, [(0, 0)] * 3 + [(0, v.shape[-1] - q.shape[-1])])
    k = np.pad(k, [(0, 0)] * 3 + [(0, v.shape[-1] - k.shape[-1])])
    if tables[0] is not None:
        more = v.shape[-1] - tables[0].shape[-1]
        tables[0] = np.pad(
            tables[0], [(0, 0)] * (tables[0].ndim - 1) + [(0, more)]
        )
    heads, scores = oracles.shaw_attention(
        q * D**-0.5, k, v, *tables, bias=bias, query_start=0
    )
    output = np.einsum(
        "bntd,ndf->btf", heads, weights["attention_output/kernel"]
    )
    return output + weights["attention_output/bias"], scores


class KerasAttentionTest(parameterized.TestCase):
    # `relative_ops_test` has the other pairs.
    @parameterized.parameters(
        *((lengths, "per_head") for lengths in LENGTHS),
        *(
            ("fewer", relative)
            for relative in RELATIVE
            if relative != "per_head"
        ),
    )
    def test_output_and_scores_are_those_of_loops(self, lengths, relative):
        queries, keys = LENGTHS[lengths]
        inputs = normal(1, 2, queries, 11), normal(2, 2, keys, 13)
        inputs += (normal(3, 2, keys, 17),)
        layers = [
            example_layer(implementation=form, **RELATIVE[relative])
            for form in FORMS
        ]
        for layer in layers:
            layer(*inputs)
            layer.set_weights(randomize(layers[0]).get_weights())
        lines = np.arange(keys) < [[keys], [keys - 1]]
        causal = np.tri(queries, keys, dtype=bool)
        for arguments, allowed in (
            ({}, True),
            ({"use_causal_mask": True}, causal),
            ({"value_mask": lines}, lines[:, None, None]),
            (
                {"attention_mask": causal, "key_mask": lines},
                causal & lines[:, None, None],
            ),
        ):
            right = by_loops(layers[0], *inputs, allowed)
            for layer in layers:
                found = layer(
                    *inputs, return_attention_scores=True, **arguments
                )
                case = f"{layer.implementation}, {[*arguments]}"
                assert_close(found, right, case)

    @parameterized.product(batch=(N, 2), implementation=FORMS)
    def test_a_mask_of_heads_joins_those_of_padding_and_order(
        self, batch, implementation
    ):
        x, y = normal(1, batch, 5, 11), normal(2, batch, 7, 13)
        layer = built(x, y, implementation=implementation)
        heads = normal(3, batch, N, 5, 7) > 0.5
        heads[..., 0] = True  # every query has a key
        lines = np.arange(7) < (5 - 2 * np.arange(batch))[:, None]
        found = layer(
            x,
            y,
            attention_mask=heads,
            value_mask=lines,
            use_causal_mask=True,
            return_attention_scores=True,
        )
        allowed = heads & lines[:, None, None] & np.tri(5, 7, dtype=bool)
        assert_close(found, by_loops(layer, x, y, allowed=allowed))

    def test_a_query_mask_is_obeyed_by_hand_and_from_an_embedding(self):
        ids = np.array([[3, 5, 0, 0, 0], [2, 4, 6, 1, 5]])
        x = keras.layers.Embedding(7, 11, mask_zero=True)(ids)
        y = normal(2, 2, 7, 13)
        layer = built(x, y)
        attached, _ = layer(x, y, return_attention_scores=True)
        output, scores = layer(
            numpy(x), y, query_mask=ids > 0, return_attention_scores=True
        )
        np.testing.assert_array_equal(numpy(output), numpy(attached))
        right = by_loops(layer, numpy(x), y)
        for b, t in zip(*np.nonzero(ids), strict=True):
            np.testing.assert_allclose(
                numpy(scores)[b, :, t], right[1][b, :, t], 1e-4, 1e-5
            )
        for b, t in zip(*np.nonzero(ids == 0), strict=True):
            np.testing.assert_allclose(
                numpy(scores)[b, :, t], 1 / 7, 1e-5, atol=1e-6
            )

    @parameterized.parameters(*LENGTHS)
    def test_without_positions_the_numbers_are_those_of_keras(self, lengths):
        queries, keys = LENGTHS[lengths]
        # On JAX, Keras refuses another size of the values.
        layers, inputs = alike(queries, keys, output_shape=19)
        random = np.random.default_rng(5)
        mask = random.integers(0, 2, (2, queries, keys)).astype(bool)
        mask[..., 0] = True
        cases = [
            {},
            {"use_causal_mask": True},
            {"attention_mask": mask},
            {"attention_mask": mask.astype(np.int32)},
            {"attention_mask": mask[:, None].repeat(N, 1)},
            {"attention_mask": mask[0]},
            {"value_mask": mask[:, 0], "key_mask": mask[:, -1]},
            {"attention_mask": mask, "use_causal_mask": True},
            {"return_attention_scores": True, "attention_mask": mask},
        ]
        for arguments in cases:
            results = (
                keras.tree.flatten(layer(*inputs, **arguments))
                for layer in layers
            )
            for right, result in zip(*results, strict=True):
                self.assertEqual(right.shape, result.shape)
                np.testing.assert_allclose(
                    numpy(result), numpy(right), 1e-5, 1e-5, str(arguments)
                )

    @parameterized.parameters(("use_gate", True), ("sliding_window", 2))
    def test_later_arguments_of_keras_do_the_same_here(self, name, value):
        kind = keras.layers.MultiHeadAttention
        if name not in inspect.signature(kind).parameters:
            self.skipTest(f"Keras {keras.__version__} has no {name}.")
        layers, inputs = alike(5, 7, **{name: value})
        # With scores: Keras computes them in one way on all backends.
        arguments = {"use_causal_mask": True, "return_attention_scores": True}
        results = (layer(*inputs, **arguments) for layer in layers)
        for right, result in zip(*results, strict=True):
            np.testing.assert_allclose(numpy(result), numpy(right), 1e-5, 1e-5)
        self.assertEqual(layers[1].get_config()[name], value)

    def test_a_model_obeys_masks(self):
        model = model_of(2)
        batch = np.random.default_rng(3).integers(1, 13, (6, 9))
        batch[:, 5:] = 0
        whole = numpy(model(batch))
        np.testing.assert_allclose(
            numpy(model(batch[:, :5])), whole, 1e-5, 1e-6
        )
        batch[0, 4] = 0
        self.assertGreater(abs(numpy(model(batch)) - whole).max(), 0)

    @parameterized.parameters((None, True), (9, False))
    def test_a_model_fits_and_is_saved(self, length, jit_compile):
        if jit_compile and keras.backend.backend() == "torch":
            self.skipTest("torch.compile needs a C++ compiler.")
        model = model_of(1, length)
        batch = np.random.default_rng(3).integers(0, 13, (6, 9))
        model.compile("adam", "mse", jit_compile=jit_compile)
        begin = [numpy(weight) for weight in model.weights]
        model.fit(batch, normal(1, 6, 8), epochs=2, verbose=0)
        for weight, first in zip(model.trainable_weights, begin, strict=False):
            self.assertGreater(abs(numpy(weight) - first).max(), 0, weight.path)
        with tempfile.TemporaryDirectory() as folder, ignored_warnings():
            path = os.path.join(folder, "model.keras")
            model.save(path)
            loaded = keras.saving.load_model(path)
        np.testing.assert_array_equal(numpy(loaded(batch)), numpy(model(batch)))

    @parameterized.parameters(1, 2, -2)
    def test_one_axis_of_several_is_attended_along(self, axis):
        x = normal(1, 2, 3, 5, 11)
        layer = built(x, x, attention_axes=axis)
        mask = np.tri(x.shape[axis], dtype=bool)
        output, scores = layer(
            x, x, use_causal_mask=True, return_attention_scores=True
        )
        moved = np.moveaxis(x, axis, -2)  # [2, other axis, T, F]
        rows = moved.reshape(-1, *moved.shape[-2:])
        right = by_loops(layer, rows, rows, allowed=mask)
        expected = right[0].reshape(*moved.shape[:-1], 11)
        np.testing.assert_allclose(
            numpy(output), np.moveaxis(expected, -2, axis), 1e-4, 1e-5
        )
        expected = right[1].reshape(*moved.shape[:2], *right[1].shape[1:])
        np.testing.assert_allclose(numpy(scores), expected, 1e-4, 1e-5)
        spec = keras.KerasTensor((None, *x.shape[1:]))
        specs = layer.compute_output_spec(
            spec, spec, return_attention_scores=True
        )
        for one, result in zip(specs, (output, scores), strict=True):
            self.assertEqual(one.shape[1:], tuple(result.shape[1:]))
        padding = np.arange(30).reshape(x.shape[:3]) % 7 != 2
        _, scores = layer(
            x, x, value_mask=padding, return_attention_scores=True
        )
        kept = np.moveaxis(padding, axis % 4, -1)[:, :, None, None]
        self.assertEqual(np.max(numpy(scores) * ~kept), 0.0)

    @parameterized.parameters((0, 0), (0, 3), (3, 0))
    def test_length_0_is_taken_as_keras_does(self, queries, keys):
        inputs = normal(1, 2, queries, 11), normal(2, 2, keys, 11)
        expected = keras.layers.MultiHeadAttention(N, D)(*inputs)
        np.testing.assert_array_equal(
            numpy(example_layer(value_dim=D)(*inputs)), numpy(expected)
        )

    @parameterized.parameters("mixed_bfloat16", "bfloat16", "float64")
    def test_dtype_policies(self, dtype):
        x = normal(1, 2, 5, 11)
        layer = example_layer()
        expected = layer(x, x, use_causal_mask=True)
        other = example_layer(dtype=dtype)
        other(x, x)
        other.set_weights(layer.get_weights())
        output, scores = other(
            x, x, use_causal_mask=True, return_attention_scores=True
        )
        for one in (output, scores):
            self.assertEqual(
                keras.backend.standardize_dtype(one.dtype), other.compute_dtype
            )
        one = keras.dtype_policies.DTypePolicyMap()
        one["lone/query"] = keras.DTypePolicy("mixed_bfloat16")
        lone = example_layer(dtype=one, name="lone")(x, x)
        self.assertEqual(keras.backend.standardize_dtype(lone.dtype), "float32")
        tolerance = 1e-5 if dtype == "float64" else 0.1
        np.testing.assert_allclose(
            numpy(ops.cast(output, "float32")), numpy(expected), atol=tolerance
        )

    def test_dropout_takes_weights_in_training_only(self):
        x = normal(1, 1, 5, 11).repeat(4000, 0)
        layer = example_layer(dropout=0.5, seed=3)
        plain = numpy(layer(x, x))
        np.testing.assert_array_equal(numpy(layer(x, x, training=False)), plain)
        outputs, scores = layer(
            x, x, training=True, return_attention_scores=True
        )
        outputs = numpy(outputs)
        self.assertGreater(abs(outputs[0] - plain[0]).max(), 0.01)
        np.testing.assert_allclose(outputs.mean(0), plain[0], atol=0.1)
        np.testing.assert_allclose(numpy(scores).sum(-1), 1.0, 1e-5, atol=1e-6)

    def test_lora_and_int8_apply_to_the_projections(self):
        x = normal(1, 2, 5, 32)
        layer = keras_attention.RelativeMultiHeadAttention(2, 16)
        inputs = keras.Input([None, 32])
        model = keras.Model(inputs, layer(inputs, inputs))
        weights = randomize(layer).get_weights()
        plain = numpy(model(x))
        layer.query_dense.enable_lora(2)
        np.testing.assert_allclose(numpy(model(x)), plain, 1e-5, atol=1e-6)
        self.assertLen(layer.trainable_weights, 11)  # one kernel is now two
        change = layer.query_dense.lora_kernel_b
        change.assign(normal(2, *change.shape))
        self.assertGreater(abs(numpy(model(x)) - plain).max(), 0.01)
        other = keras_attention.RelativeMultiHeadAttention(2, 16)
        model = keras.Model(inputs, other(inputs, inputs))
        other.set_weights(weights)
        with ignored_warnings():
            for part in (other.query_dense, other.value_dense):
                part.quantize("int8")
        error = numpy(model(x)) - plain
        self.assertLess(np.linalg.norm(error), 0.05 * np.linalg.norm(plain))
        self.assertEqual(other.query_dense.kernel.dtype, "int8")

    def test_tables_of_one_initializer_begin_apart(self):
        layer = example_layer(
            value_dim=D, relative_initializer="glorot_uniform"
        )
        x = normal(1, 2, 5, 11)
        layer(x, x)
        tables = numpy(layer.relative_keys), numpy(layer.relative_values)
        self.assertEqual(tables[0].shape, tables[1].shape)
        self.assertGreater(np.abs(tables[0] - tables[1]).min(), 0)

    def test_config_holds_every_argument(self):
        layer = example_layer(
            dropout=0.25,
            use_bias=False,
            output_shape=(3, 4),
            heads_share_relative_embedding=True,
            add_relative_to_keys=False,
            relative_initializer=keras.initializers.Constant(0.5),
            implementation="reshape",
            kernel_regularizer="l2",
            seed=7,
        )
        x = normal(1, 2, 5, 11)
        expected = layer(x, x)
        self.assertEqual(tuple(expected.shape), (2, 5, 3, 4))
        copy = type(layer).from_config(layer.get_config())
        self.assertEqual(copy.get_config(), layer.get_config())
        copy(x, x)
        copy.set_weights(layer.get_weights())
        np.testing.assert_array_equal(numpy(copy(x, x)), numpy(expected))
        np.testing.assert_array_equal(numpy(copy.relative_values), 0.5)
        self.assertIsNone(copy.relative_keys)


def called(*shapes, first=None, axes=None, **arguments):
    """Returns a call with inputs of these shapes, perhaps after a `first`."""

    def call():
        layer = example_layer(attention_axes=axes)
        if first is not None:
            layer(*map(np.ones, first))
        return layer(*map(np.ones, shapes), **arguments)

    return call


def mask(*shape):
    return np.ones(shape, bool)


GOOD = (2, 5, 11), (2, 7, 11)
# A call, and the words that its message must have.
REFUSED = {
    "rank_2": (called((5, 11), (5, 11)), "query", "(5, 11)"),
    "unlike_ranks": (called((2, 5, 11), (7, 11)), "value", "(7, 11)"),
    "another_rank_than_before": (
        called((5, 11), (7, 11), first=GOOD),
        "query",
        "(5, 11)",
    ),
    "axis_of_the_batch": (called(*GOOD, axes=0), "attention_axes"),
    "batches_of_two_sizes": (called((2, 5, 11), (3, 7, 11)), "value", "(3, 7"),
    "queries_of_one": (called((1, 5, 11), (3, 7, 11)), "value", "[1, "),
    "keys_of_another_length": (called(*GOOD, (2, 6, 11)), "key", "(2, 6, 11)"),
    "other_queries_than_before": (
        called((2, 5, 12), (2, 7, 11), first=GOOD),
        "query",
        "11]",
    ),
    "padding_where_batch_equals_queries": (
        called((5, 5, 11), (5, 7, 11), attention_mask=mask(5, 7)),
        "attention_mask",
        "[batch, keys]",
        "(5, 7)",
    ),
    "mask_of_other_heads": (
        called(*GOOD, attention_mask=mask(2, 2, 5, 7)),
        "attention_mask",
    ),
    "value_mask_of_another_length": (
        called(*GOOD, value_mask=mask(2, 5)),
        "value_mask",
        "[2, 7]",
    ),
}


class RefusalsTest(parameterized.TestCase):
    @parameterized.parameters(*REFUSED)
    def test_is_refused_by_name(self, case):
        call, *words = REFUSED[case]
        with self.assertRaises(errors.UserError) as caught:
            call()
        for word in words:
            self.assertIn(word, str(caught.exception))


class LayerOfKerasTest(keras_testing.TestCase):
    """Keras' own check of a layer."""

    def test_layer_passes(self):
        shapes = {
            "query_shape": (2, 5, 7),
            "value_shape": (2, 3, 7),
            "key_shape": (2, 3, 11),
        }
        for arguments in ({}, {"dropout": 0.5}):
            self.run_layer_test(
                keras_attention.RelativeMultiHeadAttention,
                init_kwargs={"num_heads": 2, "key_dim": 3} | arguments,
                input_shape=shapes,
                input_dtype=dict.fromkeys(shapes, "float32"),
                expected_output_shape=(2, 5, 7),
                expected_num_trainable_weights=10,
                expected_num_non_trainable_weights=0,
                expected_num_seed_generators=1 if arguments else 0,
                expected_num_losses=0,
                supports_masking=True,
                run_training_check=False,
            )
