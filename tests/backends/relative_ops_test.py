"""Tests of relative attention in `keras.ops`, against loops.

They need no TensorFlow where Keras runs on another backend.

Shapes: B batch, H heads, Q queries, K keys, D depth per head, k clipping.
"""

import itertools

import keras
import numpy as np
from absl.testing import parameterized
from keras import ops

from relpos_tf.layers.positions import relative_ops
from tests import oracles
from tests.backends import gradients

# Q, K, k.
LENGTHS = {
    "one_pair": (1, 1, 1),
    "square_k0": (5, 5, 0),
    "square_k1": (5, 5, 1),
    "square_k2": (5, 5, 2),
    "square_k_beyond_the_length": (3, 3, 7),
    "fewer_queries": (3, 7, 2),
    "one_query": (1, 7, 2),
    "more_queries": (7, 3, 2),
    "many_queries_of_one_key": (11, 1, 2),
}
# The tables of keys and of values take part apart from each other: a kind of
# both meets all lengths, a mixture a few.
TABLES, WHOLE = oracles.TABLES, ("shared", "per_head")
FEW_LENGTHS = ("square_k2", "fewer_queries", "more_queries")
B, H, D = 2, 3, 5


def example(lengths, tables):
    """Returns q, k, v and both tables, float64."""
    queries, keys, k = lengths
    random = np.random.default_rng(7)
    shapes = [(B, H, n, D) for n in (queries, keys, keys)]
    rows = {"shared": (2 * k + 1, D), "per_head": (H, 2 * k + 1, D)}
    shapes += [rows.get(kind) for kind in tables]
    return [shape and random.normal(size=shape) for shape in shapes]


def example_mask(kind, queries, keys):
    """Returns a bool mask, or None; each query may attend to some key."""
    if kind == "none":
        return None
    if kind == "padding":
        ends = [[keys], [max(keys - 1, 1)]]
        return (np.arange(keys) < ends)[:, None, None]
    return np.tri(queries, keys, dtype=bool)


def tensors(arrays):
    return [None if a is None else ops.convert_to_tensor(a) for a in arrays]


class RelativeOpsTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        # In float64 Keras computes on PyTorch only if it is the default.
        self.addCleanup(keras.config.set_floatx, keras.config.floatx())
        keras.config.set_floatx("float64")

    @parameterized.parameters(
        *itertools.product(LENGTHS, WHOLE),
        *itertools.product(
            FEW_LENGTHS, [name for name in TABLES if name not in WHOLE]
        ),
    )
    def test_output_and_weights_are_those_of_loops(self, lengths, tables):
        queries, keys, _ = LENGTHS[lengths]
        arrays = example(LENGTHS[lengths], TABLES[tables])
        for mask in ("none", "padding", "causal"):
            allowed = example_mask(mask, queries, keys)
            results = relative_ops.relative_attention(
                *tensors(arrays), may_attend=allowed
            )
            bias = 0.0 if allowed is None else np.where(allowed, 0.0, -1e9)
            expected = oracles.shaw_attention(*arrays, bias=bias, query_start=0)
            for result, right in zip(results, expected, strict=True):
                np.testing.assert_allclose(
                    ops.convert_to_numpy(result),
                    right,
                    1e-12,
                    1e-12,
                    err_msg=mask,
                )

    @parameterized.parameters(*LENGTHS)
    def test_gradients_are_slopes(self, lengths):
        queries, keys, _ = LENGTHS[lengths]
        arrays = example(LENGTHS[lengths], TABLES["mixed"])
        allowed = example_mask("causal", queries, keys)
        factor = np.random.default_rng(3).normal(size=(B, H, queries, D))

        def function(*arrays):
            output, _ = relative_ops.relative_attention(
                *arrays, may_attend=allowed
            )
            return ops.sum(output * ops.convert_to_tensor(factor))

        def loops(*arrays):
            bias = np.where(allowed, 0.0, -1e9)
            output, _ = oracles.shaw_attention(
                *arrays, bias=bias, query_start=0
            )
            return np.sum(output * factor)

        found = gradients.gradients(function, arrays)
        slopes = gradients.slopes(loops, arrays)
        for gradient, (direction, slope) in zip(found, slopes, strict=True):
            product = np.sum(gradient * direction)
            np.testing.assert_allclose(product, slope, rtol=1e-6, atol=1e-7)

    def test_dropout_applies_to_the_weights_of_the_values(self):
        arrays = example((3, 5, 2), TABLES["per_head"])
        kept = np.random.default_rng(5).integers(0, 2, (B, H, 3, 5)) * 2.0
        output, weights = relative_ops.relative_attention(
            *tensors(arrays), dropout=lambda w: w * ops.convert_to_tensor(kept)
        )
        _, right = oracles.shaw_attention(*arrays, query_start=0)
        np.testing.assert_allclose(
            ops.convert_to_numpy(weights), right, 1e-12, 1e-12
        )
        expected = np.zeros([B, H, 3, D])
        for b, h, i, j in np.ndindex(B, H, 3, 5):
            vector = oracles.distance_vector(arrays[4], h, j - i)
            weight = right[b, h, i, j] * kept[b, h, i, j]
            expected[b, h, i] += weight * (arrays[2][b, h, j] + vector)
        np.testing.assert_allclose(
            ops.convert_to_numpy(output), expected, 1e-12, 1e-12
        )
