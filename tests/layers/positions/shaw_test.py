"""Tests of the mathematics, against loops that look like the paper.

Shapes: B batch, H heads, Q queries, K keys, D depth per head, k clipping.
"""

import itertools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf.layers.positions import shaw
from relpos_tf.utils import graphs
from tests import oracles
from tests import testing

FORMS = ("reshape", "compact", "gather")
# Q, K, k, position of the first query (None: the queries are the last keys).
LENGTHS = {
    "one_pair": (1, 1, 1, None),
    "square_k0": (5, 5, 0, None),
    "square_k1": (5, 5, 1, None),
    "square_k2": (5, 5, 2, None),
    "square_k_beyond_the_length": (3, 3, 7, None),
    "fewer_queries": (3, 7, 2, None),
    "one_query": (1, 7, 2, None),
    "one_query_k0": (1, 5, 0, None),
    "in_the_middle": (3, 11, 2, 5),
    "one_query_in_the_middle": (1, 7, 2, 3),
    "at_the_start": (2, 7, 3, 0),
}
# Queries that stand where there is no key: more of them than keys, or given.
OUTSIDE = {
    "more_queries": (7, 3, 2, None),
    "more_queries_k0": (5, 3, 0, None),
    "more_queries_k1": (5, 2, 1, None),
    "more_queries_k_beyond_the_length": (5, 3, 7, None),
    "many_queries_of_one_key": (11, 1, 2, None),
    "before_the_first_key": (3, 5, 2, -7),
    "partly_before": (5, 7, 2, -2),
    "behind_the_last_key": (2, 3, 1, 5),
    "partly_behind": (3, 5, 2, 4),
    "on_both_sides": (7, 3, 2, -1),
}
# The tables of keys and of values take part apart from each other: a kind of
# both meets all lengths, a mixture a few.
TABLES, WHOLE = oracles.TABLES, ("shared", "per_head")
FEW_LENGTHS = ("square_k2", "fewer_queries", "one_query", "more_queries")
# Where keys before and keys after the query are clipped at two distances.
DISTANCES = ((2, 1), (0, 3), (3, 0), (1, 7))


def example(lengths, tables, batch=2, heads=3, depth=5, distances=None):
    """Returns q, k, v and both tables, float64."""
    queries, keys, k, _ = lengths
    left, right = distances or (k, k)
    shapes = {"shared": (left + 1 + right, depth), None: None}
    shapes["per_head"] = (heads, *shapes["shared"])
    arrays = [
        testing.normal([7, i], batch, heads, length, depth)
        for i, length in enumerate((queries, keys, keys))
    ]
    for i, kind in enumerate(TABLES[tables]):
        shape = shapes[kind]
        arrays.append(shape and testing.normal([7, 3 + i], *shape))
    return arrays


def example_bias(kind, lengths, batch=2):
    """Returns a bias of the logits, or None."""
    queries, keys, _, start = lengths
    if kind == "none":
        return None
    if kind == "padding":  # the rows are of unequal length
        ends = [[keys - row] for row in range(batch)]
        allowed = (np.arange(keys) < ends)[:, None, None, :]
    else:
        first = keys - queries if start is None else start
        allowed = np.tri(queries, keys, first, dtype=bool)
    return np.where(allowed, 0.0, -1e9)


def constant(array, dtype=None):
    return None if array is None else tf.constant(array, dtype)


class RelativeAttentionTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        *itertools.product([*LENGTHS, *OUTSIDE], WHOLE, [None]),
        *itertools.product(
            FEW_LENGTHS, [name for name in TABLES if name not in WHOLE], [None]
        ),
        # Two distances take the place of k.
        *itertools.product(
            [
                name
                for name in [*LENGTHS, *OUTSIDE]
                if not name.endswith(("_k0", "_k1"))
            ],
            ["per_head"],
            DISTANCES,
        ),
    )
    def test_equals_equations_3_and_4(self, lengths, tables, distances):
        lengths = (LENGTHS | OUTSIDE)[lengths]
        arrays = example(lengths, tables, distances=distances)
        options = {"query_start": lengths[3]}
        options["left"] = distances[0] if distances else None
        for kind in ("none", "causal", "padding"):
            bias = example_bias(kind, lengths)
            expected = oracles.shaw_attention(
                *arrays, bias=0.0 if bias is None else bias, **options
            )
            for form in FORMS:
                results = shaw.relative_attention(
                    *map(constant, arrays),
                    bias=bias,
                    implementation=form,
                    **options,
                )
                for result, loops in zip(results, expected, strict=True):
                    self.assertAllClose(
                        result, loops, 1e-10, 1e-10, f"{form}, {kind}"
                    )

    @parameterized.parameters(
        *itertools.product(
            [*LENGTHS, "more_queries", "on_both_sides"], WHOLE, [None]
        ),
        *itertools.product(FEW_LENGTHS, ["values_only"], [None]),
        *itertools.product(["square_k2", "in_the_middle"], WHOLE, DISTANCES),
    )
    def test_gradients_equal_finite_differences(
        self, lengths, tables, distances
    ):
        # Logits of -1e9 have too few digits left for differences.
        is_causal = lengths not in OUTSIDE
        lengths = (LENGTHS | OUTSIDE)[lengths]
        arrays = example(
            lengths, tables, batch=1, heads=2, depth=3, distances=distances
        )
        options = {"query_start": lengths[3]}
        options["left"] = distances[0] if distances else None
        bias = example_bias("causal" if is_causal else "none", lengths)
        upstream = testing.normal(13, *arrays[0].shape)
        there = [i for i, array in enumerate(arrays) if array is not None]

        def all_five(given):
            given = dict(zip(there, given, strict=True))
            return [given.get(i) for i in range(5)]

        def total(*moved):
            output, _ = oracles.shaw_attention(
                *all_five(moved), bias=0.0 if bias is None else bias, **options
            )
            return np.sum(output * upstream)

        arrays = [arrays[i] for i in there]
        expected, checked = total(*arrays), None
        for form, causal in itertools.product(FORMS, {False, is_causal}):
            tensors = [tf.constant(array) for array in arrays]
            with tf.GradientTape() as tape:
                tape.watch(tensors)
                output, _ = shaw.relative_attention(
                    *all_five(tensors),
                    bias=bias,
                    implementation=form,
                    causal=causal,
                    **options,
                )
            gradients = tape.gradient(output, tensors, upstream)
            message = f"{form}, causal={causal}"
            self.assertAllClose(
                np.sum(output * upstream), expected, 1e-10, 1e-10, message
            )
            for gradient in gradients:
                # No tf.IndexedSlices: optimizers count its rows apart.
                self.assertIsInstance(gradient, tf.Tensor)
            checked = checked or gradients
            for one, other in zip(gradients, checked, strict=True):
                self.assertAllClose(one, other, 1e-9, 1e-9, message)
        # Differences take long, so they check the gradients of one form.
        testing.assert_gradients(self, checked, total, arrays)

    @parameterized.parameters(
        ("reshape", "shared"),
        ("compact", "shared"),
        ("gather", "shared"),
        ("gather", "per_head", 5, 2, True),
        ("auto", "per_head"),
        ("compact", "per_head", None, 2, False, True),
        # TensorFlow has no shape for the diagonals of a batch of unknown size.
        ("compact", "per_head", 5, 1, False),
        ("compact", "per_head", 5, 1, True),
        ("compact", "per_head", 5, 2, True),
        ("compact", "per_head", 5, 7, False),
    )
    def test_a_graph_of_unknown_batches_and_lengths_equals_the_loops(
        self, form, tables, length=None, k=2, causal=False, xla=False
    ):
        square = example((5, 5, k, None), tables)
        spec = [tf.TensorSpec([None, 3, length, 5], tf.float64)] * 3
        spec += [tf.TensorSpec(table.shape, tf.float64) for table in square[3:]]
        bias = example_bias("causal" if causal else "none", (5, 5, k, None))

        def attend(*tensors, implementation=form):
            with tf.GradientTape() as tape:
                tape.watch(tensors)
                results = shaw.relative_attention(
                    *tensors,
                    bias=bias,
                    implementation=implementation,
                    causal=causal,
                )
            return *results, tape.gradient(results[0], tensors[3:])

        graph = graphs.function(attend, spec, jit_compile=xla)

        others = [] if length else [(7, 3, k, None), (3, 7, k, None)]
        for arrays in (square, *(example(one, tables) for one in others)):
            expected = oracles.shaw_attention(
                *arrays, bias=bias if causal else 0.0
            )
            *results, gradients = graph(*arrays)
            self.assertAllClose(results, expected, 1e-10, 1e-10)
            tensors = [constant(array) for array in arrays]
            *_, expected = attend(*tensors, implementation="reshape")
            self.assertAllClose(gradients, expected, 1e-10, 1e-10)

    @parameterized.product(
        form=FORMS,
        tables=WHOLE,
        causal=[False, True],
        case=[(tf.float32, 0, (5, 5)), (tf.bfloat16, 5, (5, 5))]
        + [(tf.float32, 0, (0, 6)), (tf.float32, 0, (7, 5))]
        + [(tf.float32, 0, (0, 0))],
    )
    def test_rows_that_no_pair_has_get_a_gradient_of_exactly_0(
        self, form, tables, causal, case
    ):
        dtype, padding, distances = case
        # Both kinds of tables meet dropout, and both kinds of masks.
        dropped = (tables == "per_head") != causal
        # Adam would make whole steps of rounding errors. Sentences of 5 tokens
        # have distances from -4 to 4. Behind the sentences there may be
        # padding, which the loss does not count.
        length = 5
        lengths = (length + padding, length + padding, 0, None)
        arrays = example(lengths, tables, batch=7, distances=distances)
        tensors = [tf.cast(array, dtype) for array in arrays]
        bias = np.where(np.arange(length + padding) < length, 0.0, -1e9)
        if causal:
            bias = bias + example_bias("causal", lengths)
        upstream = testing.normal(13, *tensors[0].shape)
        upstream[:, :, length:] = 0.0
        kept = np.arange(length + padding) != 2
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            output, _ = shaw.relative_attention(
                *tensors,
                bias=bias,
                implementation=form,
                causal=causal,
                dropout=(lambda weights: weights * kept) if dropped else None,
                left=distances[0],
            )
        gradients = tape.gradient(output, tensors[3:], tf.cast(upstream, dtype))
        distance = np.arange(-distances[0], distances[1] + 1)
        seen = (distance >= -4) & (distance <= (0 if causal else 4))
        for kind, gradient in zip(("keys", "values"), gradients, strict=True):
            axes = (*range(gradient.ndim - 2), -1)
            size = np.max(np.abs(gradient), axis=axes)
            self.assertAllEqual(size[~seen], np.zeros(np.sum(~seen)))
            is_one_row = distances == (0, 0) or causal and distances[0] == 0
            if kind == "keys" and is_one_row:
                # One vector for all keys of a query changes no weight.
                self.assertEqual(np.max(size), 0.0)
            else:
                self.assertGreater(np.min(size[seen]), 0.0)

    @parameterized.parameters(*FORMS)
    def test_each_table_has_its_own_k(self, form):
        arrays = example((5, 7, 2, None), "shared")
        arrays[4] = testing.normal(5, 3, 7, 5)  # per head, k = 3
        output, _ = shaw.relative_attention(*arrays, implementation=form)
        expected, _ = oracles.shaw_attention(*arrays)
        self.assertAllClose(output, expected, 1e-9, 1e-9)
        for name, table in ("key", [5]), ("key", [3, 4]), ("value", [2, 3, 5]):
            table = {f"{name}_table": np.ones(table)}
            arguments = {"key_table": None, "value_table": None, **table}
            with self.assertRaisesRegex(errors.UserError, f"`{name}_table`"):
                shaw.relative_attention(*arrays[:3], **arguments)

    @parameterized.parameters(*FORMS)
    def test_dropout_acts_on_the_weights_of_both_terms(self, form):
        arrays = example((3, 7, 2, None), "shared", batch=1, heads=2, depth=3)
        kept = np.arange(7) % 3 != 1
        upstream = testing.normal(13, *arrays[0].shape)

        def expected(*arrays):
            _, weights = oracles.shaw_attention(*arrays)
            output = np.zeros_like(arrays[0])
            for b, h, i, j in np.ndindex(weights.shape):
                value = arrays[2][b, h, j] + oracles.distance_vector(
                    arrays[4], h, j - (i + 4)
                )
                output[b, h, i] += kept[j] * weights[b, h, i, j] * value
            return output, weights

        tensors = [tf.constant(array) for array in arrays]
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            output, returned = shaw.relative_attention(
                *tensors,
                implementation=form,
                dropout=lambda weights: weights * kept,
            )
        self.assertAllClose(output, expected(*arrays)[0], atol=1e-6)
        self.assertAllClose(returned, expected(*arrays)[1], atol=1e-6)
        testing.assert_gradients(
            self,
            tape.gradient(output, tensors, upstream),
            lambda *moved: np.sum(expected(*moved)[0] * upstream),
            arrays,
        )

    @parameterized.parameters(*FORMS)
    def test_causal_queries_may_lie_behind_all_keys(self, form):
        arrays = example((5, 3, 2, None), "shared")
        found = shaw.relative_attention(
            *map(constant, arrays),
            implementation=form,
            query_start=7,
            causal=True,
        )
        expected = oracles.shaw_attention(*arrays, query_start=7)
        self.assertAllClose(found, expected, 1e-12, 1e-12)

    @parameterized.product(form=FORMS, tables=("shared", "per_head"))
    def test_a_single_head_has_the_numbers_of_float64(self, form, tables):
        # oneDNN's products of [B, 1, Q, D] with [R, D] and with [1, R, D] are
        # wrong, in float32 and on several threads.
        arrays = example((17, 17, 4, None), tables, batch=3, heads=1, depth=16)
        kept = np.arange(17) % 3 != 1

        def gradients(*tensors):
            with tf.GradientTape() as tape:
                tape.watch(tensors)
                output, _ = shaw.relative_attention(
                    *tensors,
                    implementation=form,
                    dropout=lambda w: w * tf.cast(kept, w.dtype),
                )
            return output, *tape.gradient(output, tensors)

        single, double = (
            gradients(*(tf.constant(array, dtype) for array in arrays))
            for dtype in (tf.float32, tf.float64)
        )
        for one, other in zip(single, double, strict=True):
            self.assertAllClose(one, other, atol=1e-4)

    @parameterized.parameters((-np.inf, "float32"), (-1e9, "float16"))
    def test_infinite_biases_of_all_keys_make_no_nan(self, lowest, dtype):
        x = tf.constant(testing.normal(1, 1, 1, 3, 5), tf.float32)
        bias = tf.fill([3, 3], tf.cast(lowest, dtype))
        _, weights = shaw.relative_attention(x, x, x, None, None, bias=bias)
        self.assertAllClose(weights, np.full([1, 1, 3, 3], 1 / 3), atol=1e-6)

    @parameterized.parameters("compact", "auto", "reshape", "gather")
    def test_the_compact_form_builds_no_vector_for_each_pair(self, form):
        length, depth, rows = 31, 17, 5
        arrays = [testing.normal(i, 1, 1, length, depth) for i in range(3)]
        arrays += [testing.normal(i, rows, depth) for i in (3, 4)]

        def attend(*tensors):
            return shaw.relative_attention(*tensors, implementation=form)[0]

        most = testing.largest_tensor(attend, *arrays)
        # The other form shows that the probe sees them.
        is_large = most >= length * length * depth
        self.assertEqual(is_large, form == "reshape")

    @parameterized.parameters("compact", "auto", "reshape", "gather")
    def test_a_program_of_xla_has_no_diagonals(self, form):
        arrays = [testing.normal(i, 2, 3, 7, 5) for i in range(3)]
        arrays += [testing.normal(i, 5, 5) for i in (3, 4)]

        def attend(*tensors):
            return shaw.relative_attention(*tensors, implementation=form)[0]

        compiled = graphs.function(attend, jit_compile=True)
        expected = oracles.shaw_attention(*arrays)[0]
        self.assertAllClose(compiled(*arrays), expected, 1e-12, 1e-12)

        def kinds(function):
            graph = function.get_concrete_function(*arrays).graph
            return {one.type for one in graph.get_operations()}

        self.assertNotIn("MatrixSetDiagV3", kinds(compiled))
        # The other kind of graph shows that the probe sees them.
        is_compact = "MatrixSetDiagV3" in kinds(graphs.function(attend))
        self.assertEqual(is_compact, form in ("compact", "auto"))
