"""Tests of the mathematics, against loops that look like the paper.

Shapes: B batch, H heads, Q queries, K keys, D depth per head, k clipping.
"""

import itertools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.layers.positions import shaw
from tests import oracles
from tests import testing

FORMS = ("reshape", "compact")
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
TABLES = {
    "shared": ("shared", "shared"),
    "per_head": ("per_head", "per_head"),
    "mixed": ("shared", "per_head"),
    "keys_only": ("shared", None),
    "values_only": (None, "per_head"),
    "neither": (None, None),
}


def example(lengths, tables, batch=2, heads=3, depth=5, seed=7):
    """Returns q, k, v and both tables, float64."""
    queries, keys, k, _ = lengths
    shapes = {"shared": (2 * k + 1, depth), None: None}
    shapes["per_head"] = (heads, *shapes["shared"])
    arrays = [
        testing.normal([seed, i], batch, heads, length, depth)
        for i, length in enumerate((queries, keys, keys))
    ]
    for i, kind in enumerate(tables):
        shape = shapes[kind]
        arrays.append(shape and testing.normal([seed, 3 + i], *shape))
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


# Where keys before and keys after the query are clipped.
DISTANCES = ((2, 1), (0, 3), (3, 0), (1, 7))


class TwoDistancesTest(tf.test.TestCase, parameterized.TestCase):
    """Keys before and after the query, clipped at two distances."""

    def example(self, lengths, distances, per_head):
        """Returns q, k, v and both tables, float64."""
        arrays = example(lengths, TABLES["neither"])[:3]
        rows = distances[0] + 1 + distances[1]
        shape = (3, rows, 5) if per_head else (rows, 5)
        return [*arrays, *(testing.normal([7, i], *shape) for i in (3, 4))]

    @parameterized.product(lengths=[*LENGTHS, *OUTSIDE], distances=DISTANCES)
    def test_equals_equations_3_and_4(self, lengths, distances):
        lengths = (LENGTHS | OUTSIDE)[lengths]
        arrays = self.example(lengths, distances, per_head=True)
        for kind in ("none", "causal", "padding"):
            bias = example_bias(kind, lengths)
            expected = oracles.shaw_attention(
                *arrays,
                bias=0.0 if bias is None else bias,
                query_start=lengths[3],
                left=distances[0],
            )
            for form in FORMS:
                results = shaw.relative_attention(
                    *map(constant, arrays),
                    bias=bias,
                    implementation=form,
                    query_start=lengths[3],
                    left=distances[0],
                )
                for result, loops in zip(results, expected, strict=True):
                    self.assertAllClose(
                        result, loops, 1e-10, 1e-10, f"{form}, {kind}"
                    )

    @parameterized.product(
        lengths=["square_k2", "in_the_middle"],
        distances=DISTANCES,
        per_head=[True, False],
        causal=[True, False],
    )
    def test_gradients_equal_finite_differences(
        self, lengths, distances, per_head, causal
    ):
        lengths = LENGTHS[lengths]
        arrays = self.example(lengths, distances, per_head)
        bias = example_bias("causal" if causal else "none", lengths)
        options = {"query_start": lengths[3], "left": distances[0]}
        upstream = testing.normal(13, *arrays[0].shape)

        def total(*moved):
            given = 0.0 if bias is None else bias
            output, _ = oracles.shaw_attention(*moved, bias=given, **options)
            return np.sum(output * upstream)

        found = []
        for form in FORMS:
            tensors = [tf.constant(array) for array in arrays]
            with tf.GradientTape() as tape:
                tape.watch(tensors)
                output, _ = shaw.relative_attention(
                    *tensors,
                    bias=bias,
                    implementation=form,
                    causal=causal,
                    **options,
                )
            self.assertAllClose(
                np.sum(output * upstream), total(*arrays), 1e-10, 1e-10
            )
            found.append(tape.gradient(output, tensors, upstream))
        for one, other in zip(*found, strict=True):
            self.assertIsInstance(one, tf.Tensor)
            self.assertAllClose(one, other, 1e-9, 1e-9)
        testing.assert_gradients(self, found[0], total, arrays)

    @parameterized.product(
        form=FORMS, distances=[(5, 7), (7, 5), (0, 6)], causal=[True, False]
    )
    def test_rows_that_no_pair_has_get_a_gradient_of_exactly_0(
        self, form, distances, causal
    ):
        lengths = (5, 5, 0, None)  # distances from -4 to 4
        left, right = distances
        tensors = [
            tf.constant(array, tf.float32)
            for array in self.example(lengths, distances, per_head=True)
        ]
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            output, _ = shaw.relative_attention(
                *tensors,
                bias=example_bias("causal" if causal else "none", lengths),
                implementation=form,
                causal=causal,
                left=left,
            )
        upstream = testing.normal(13, *output.shape).astype(np.float32)
        gradients = tape.gradient(output, tensors[3:], upstream)
        rows = np.arange(left + 1 + right) - left
        seen = (rows >= -4) & (rows <= (0 if causal else 4))
        for kind, gradient in zip(("keys", "values"), gradients, strict=True):
            size = np.max(np.abs(gradient), axis=(0, 2))
            self.assertAllEqual(size[~seen], np.zeros(np.sum(~seen)))
            if kind == "keys" and causal and left == 0:
                # One vector for all keys of a query changes no weight.
                self.assertEqual(np.max(size), 0.0)
            else:
                self.assertAllGreater(size[seen], 1e-4)


class RelativePositionIdsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.named_parameters(
        ("square", (3, 3, 5), [[5, 6, 7], [4, 5, 6], [3, 4, 5]]),
        (
            "clipped",
            (4, 4, 1),
            [[1, 2, 2, 2], [0, 1, 2, 2], [0, 0, 1, 2], [0, 0, 0, 1]],
        ),
        ("k0", (2, 3, 0), [[0, 0, 0], [0, 0, 0]]),
        (
            "last_queries",
            (2, 5, 2),
            [[0, 0, 1, 2, 3], [0, 0, 0, 1, 2]],
        ),
        ("one_query", (1, 4, 2), [[0, 0, 1, 2]]),
        (
            "start_in_the_middle",
            (2, 5, 2, 1),
            [[1, 2, 3, 4, 4], [0, 1, 2, 3, 4]],
        ),
        ("start_at_0", (1, 4, 2, 0), [[2, 3, 4, 4]]),
        ("two_distances", (2, 5, 2, 1, 1), [[1, 2, 3, 3, 3], [0, 1, 2, 3, 3]]),
    )
    def test_ids_are_clipped_distances(self, arguments, expected):
        ids = shaw.relative_position_ids(*arguments)
        self.assertEqual(ids.dtype, tf.int32)
        self.assertAllEqual(ids, expected)

    def test_lengths_may_be_tensors(self):
        function = tf.function(
            lambda q, k, s: shaw.relative_position_ids(q, k, 1, s),
            input_signature=[tf.TensorSpec([], tf.int32)] * 3,
        )
        self.assertAllEqual(function(2, 4, 1), [[0, 1, 2, 2], [0, 0, 1, 2]])

    @parameterized.parameters(-1, 2.5, None, True)
    def test_clipping_that_is_no_distance_is_refused(self, k):
        with self.assertRaisesRegex(
            ValueError, f"at least 0. Received: max_relative_position={k}"
        ):
            shaw.relative_position_ids(2, 2, k)


class RelativeAttentionInnerTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.product(transpose=[True, False], per_head=[True, False])
    def test_equals_the_sum_over_pairs(self, transpose, per_head):
        batch, heads, queries, keys, depth = 2, 3, 5, 7, 11
        x = testing.normal(1, batch, heads, queries, keys)
        if transpose:
            x = testing.normal(1, batch, heads, queries, depth)
        y = testing.normal(2, batch, heads, keys, depth)
        z = testing.normal(3, heads, queries, keys, depth)
        if not per_head:
            z = z[0]
        result = shaw.relative_attention_inner(
            *map(tf.constant, (x, y, z)), transpose
        )
        expected = np.zeros(result.shape)
        for b, h, i, j in np.ndindex(batch, heads, queries, keys):
            pair = y[b, h, j] + (z[h, i, j] if per_head else z[i, j])
            if transpose:
                expected[b, h, i, j] = x[b, h, i] @ pair
            else:
                expected[b, h, i] += x[b, h, i, j] * pair
        self.assertAllClose(result, expected, rtol=1e-12, atol=1e-12)


class RelativeAttentionTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.product(lengths=[*LENGTHS, *OUTSIDE], tables=list(TABLES))
    def test_equals_equations_3_and_4(self, lengths, tables):
        lengths, tables = (LENGTHS | OUTSIDE)[lengths], TABLES[tables]
        arrays = example(lengths, tables)
        for kind in ("none", "causal", "padding"):
            bias = example_bias(kind, lengths)
            expected = oracles.shaw_attention(
                *arrays,
                bias=0.0 if bias is None else bias,
                query_start=lengths[3],
            )
            for form in FORMS:
                results = shaw.relative_attention(
                    *map(constant, arrays),
                    bias=bias,
                    implementation=form,
                    query_start=lengths[3],
                )
                for result, loops in zip(results, expected, strict=True):
                    self.assertAllClose(
                        result, loops, 1e-10, 1e-10, f"{form}, {kind}"
                    )

    @parameterized.product(
        lengths=[*LENGTHS, "more_queries", "on_both_sides"],
        tables=["shared", "per_head", "values_only"],
    )
    def test_gradients_equal_finite_differences(self, lengths, tables):
        # Logits of -1e9 have too few digits left for differences.
        is_causal = lengths not in OUTSIDE
        bias = "causal" if is_causal else "none"
        lengths, tables = (LENGTHS | OUTSIDE)[lengths], TABLES[tables]
        arrays = example(lengths, tables, batch=1, heads=2, depth=3)
        bias = example_bias(bias, lengths)
        upstream = testing.normal(13, *arrays[0].shape)
        there = [i for i, array in enumerate(arrays) if array is not None]

        def all_five(given):
            given = dict(zip(there, given, strict=True))
            return [given.get(i) for i in range(5)]

        def total(*moved):
            output, _ = oracles.shaw_attention(
                *all_five(moved),
                bias=0.0 if bias is None else bias,
                query_start=lengths[3],
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
                    query_start=lengths[3],
                    causal=causal,
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

    @parameterized.product(form=FORMS, per_head=[True, False])
    def test_unknown_lengths_in_a_graph_change_nothing(self, form, per_head):
        tables = ("per_head" if per_head else "shared",) * 2
        spec = [tf.TensorSpec([None, 3, None, 5], tf.float64)] * 3
        rows = [3, 5, 5] if per_head else [5, 5]
        spec += [tf.TensorSpec(rows, tf.float64)] * 2
        function = tf.function(
            lambda *arrays: shaw.relative_attention(
                *arrays[:5], implementation=form, query_start=arrays[5]
            ),
            input_signature=[*spec, tf.TensorSpec([], tf.int32)],
        )
        for queries, keys, start in [
            (1, 1, 0),
            (3, 3, 0),
            (1, 7, 6),
            (3, 9, 4),
        ]:
            lengths = queries, keys, 2, start
            arrays = example(lengths, tables)
            expected = oracles.shaw_attention(*arrays, query_start=start)
            results = function(*arrays, start)
            for result, loops in zip(results, expected, strict=True):
                self.assertAllClose(result, loops, 1e-10, 1e-10)

    @parameterized.parameters(
        ("reshape", "shared", False),
        ("compact", "shared", False),
        ("auto", "per_head", False),
        ("compact", "per_head", True),
    )
    def test_a_graph_of_unknown_lengths_has_more_queries_or_fewer(
        self, form, tables, xla
    ):
        rows = [5, 5] if tables == "shared" else [3, 5, 5]
        spec = [tf.TensorSpec([None, 3, None, 5], tf.float64)] * 3
        spec += [tf.TensorSpec(rows, tf.float64)] * 2

        @tf.function(input_signature=spec, jit_compile=xla)
        def attend(*tensors):
            with tf.GradientTape() as tape:
                tape.watch(tensors)
                results = shaw.relative_attention(*tensors, implementation=form)
            return *results, tape.gradient(results[0], tensors[3:])

        for queries, keys in [(7, 3), (3, 7), (5, 5)]:
            arrays = example((queries, keys, 2, None), (tables, tables))
            expected = oracles.shaw_attention(*arrays)
            *results, gradients = attend(*arrays)
            for result, loops in zip(results, expected, strict=True):
                self.assertAllClose(result, loops, 1e-10, 1e-10)
            tensors = [constant(array) for array in arrays]
            with tf.GradientTape() as tape:
                tape.watch(tensors)
                output, _ = shaw.relative_attention(
                    *tensors, implementation="reshape"
                )
            for found, loops in zip(
                gradients, tape.gradient(output, tensors[3:]), strict=True
            ):
                self.assertAllClose(found, loops, 1e-10, 1e-10)

    @parameterized.parameters(*FORMS)
    def test_the_key_to_the_right_has_row_k_plus_1(self, form):
        # Every query looks at its right neighbour alone, whose value is 0:
        # the output is the vector of the distance j - i = +1.
        length, k = 5, 2
        values = tf.reshape(tf.range(1.0, 16.0), [2 * k + 1, 3])
        neighbour = np.eye(length, k=1, dtype=bool)
        output, _ = shaw.relative_attention(
            *[tf.zeros([1, 1, length, 3])] * 3,
            None,
            values,
            bias=np.where(neighbour, 0.0, -1e9),
            implementation=form,
        )
        self.assertAllClose(output[0, 0, :-1], [values[k + 1]] * (length - 1))

    @parameterized.parameters(*FORMS)
    def test_free_positions_after_the_query_change_nothing(self, form):
        arrays = example((3, 7, 2, None), TABLES["per_head"])
        q, k, v, *tables = map(constant, arrays)
        expected, _ = shaw.relative_attention(
            q, k, v, *tables, implementation=form
        )
        free = tf.constant(testing.normal(17, 2, 3, 4, 5))
        bias = np.where(np.arange(11) < 7, 0.0, -1e9)
        output, weights = shaw.relative_attention(
            q,
            *[tf.concat([x, free], 2) for x in (k, v)],
            *tables,
            bias=bias,
            implementation=form,
            query_start=4,
        )
        self.assertAllClose(output, expected, 1e-10, 1e-10)
        self.assertAllEqual(weights[..., 7:], np.zeros([2, 3, 3, 4]))

    @parameterized.product(
        form=FORMS,
        tables=["shared", "per_head"],
        causal=[False, True],
        dropped=[False, True],
        precision=[(tf.float32, 0), (tf.bfloat16, 5)],
    )
    def test_rows_that_no_pair_has_get_a_gradient_of_exactly_0(
        self, form, tables, causal, dropped, precision
    ):
        dtype, padding = precision
        # Adam would make whole steps of rounding errors. With k = 5, sentences
        # of 5 tokens have distances from -4 to 4: rows 1 to 9 of 11. Behind
        # the sentences there may be padding, which the loss does not count.
        length, k = 5, 5
        lengths = (length + padding, length + padding, k, None)
        tensors = [
            tf.cast(array, dtype)
            for array in example(lengths, TABLES[tables], batch=7)
        ]
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
            )
        gradients = tape.gradient(output, tensors[3:], tf.cast(upstream, dtype))
        seen = np.arange(1, 2 * k)
        if causal:
            seen = np.arange(1, k + 1)
        for gradient in gradients:
            size = np.max(
                np.abs(gradient), axis=(*range(gradient.ndim - 2), -1)
            )
            unseen = np.setdiff1d(np.arange(2 * k + 1), seen)
            self.assertAllEqual(size[unseen], np.zeros(unseen.size))
            self.assertGreater(np.min(size[seen]), 0.0)

    @parameterized.product(form=FORMS, tables=["shared", "per_head"])
    def test_one_key_vector_for_all_pairs_gets_a_gradient_of_exactly_0(
        self, form, tables
    ):
        # It adds the same number to all logits of a query.
        lengths = LENGTHS["square_k0"]
        arrays = example(lengths, TABLES[tables], batch=7)
        tensors = [tf.constant(a.astype(np.float32)) for a in arrays]
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            output, _ = shaw.relative_attention(*tensors, implementation=form)
        upstream = testing.normal(13, *output.shape).astype(np.float32)
        *_, keys, values = tape.gradient(output, tensors, upstream)
        self.assertAllEqual(keys, np.zeros(keys.shape))
        self.assertGreater(np.min(np.abs(values)), 0.0)

    @parameterized.parameters(*FORMS)
    def test_a_row_without_any_key_is_finite_and_even(self, form):
        arrays = example((5, 5, 2, None), TABLES["shared"])
        tensors = [constant(a.astype(np.float32)) for a in arrays]
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            output, weights = shaw.relative_attention(
                *tensors, bias=tf.fill([1, 1, 5, 5], -1e9), implementation=form
            )
        self.assertAllClose(weights, np.full([2, 3, 5, 5], 0.2), atol=1e-5)
        for gradient in tape.gradient(output, tensors):
            self.assertTrue(np.all(np.isfinite(gradient)))

    @parameterized.parameters(*FORMS)
    def test_dropout_acts_on_the_weights_of_both_terms(self, form):
        arrays = example((3, 7, 2, None), TABLES["shared"])
        _, weights = oracles.shaw_attention(*arrays)
        kept = np.arange(7) % 3 != 1
        output, returned = shaw.relative_attention(
            *map(constant, arrays),
            implementation=form,
            dropout=lambda weights: weights * kept,
        )
        self.assertAllClose(returned, weights)
        expected = np.zeros_like(arrays[0])
        for b, h, i, j in np.ndindex(weights.shape):
            value = arrays[2][b, h, j] + oracles.distance_vector(
                arrays[4], h, j - (i + 4)
            )
            expected[b, h, i] += kept[j] * weights[b, h, i, j] * value
        self.assertAllClose(output, expected)

    @parameterized.parameters(*FORMS)
    def test_bfloat16_has_its_softmax_in_float32(self, form):
        arrays = example((5, 5, 2, None), TABLES["shared"])
        # Logits that bfloat16 cannot tell from one another, made by the bias.
        bias = 256.0 + np.arange(5) / 8.0
        _, expected = oracles.shaw_attention(
            *[0.0 * array for array in arrays], bias=bias
        )
        output, weights = shaw.relative_attention(
            *[tf.zeros(array.shape, tf.bfloat16) for array in arrays],
            bias=bias,
            implementation=form,
        )
        self.assertEqual((output.dtype, weights.dtype), (tf.bfloat16,) * 2)
        self.assertAllClose(tf.cast(weights, tf.float64), expected, rtol=0.01)

    @parameterized.parameters("reshape", "compact")
    def test_a_single_head_may_have_tables_of_its_own(self, form):
        # oneDNN's product of [B, 1, Q, D] with [1, R, D] is wrong.
        arrays = example((17, 17, 4, None), TABLES["per_head"], 3, 1, 16)
        single = [tf.constant(array, tf.float32) for array in arrays]
        output, weights = shaw.relative_attention(*single, implementation=form)
        expected = oracles.shaw_attention(*arrays)
        self.assertAllClose(output, expected[0], atol=1e-4)
        self.assertAllClose(weights, expected[1], atol=1e-4)

    @parameterized.parameters(*itertools.product((1, 2, 7), (False, True)))
    def test_the_batch_alone_may_be_unknown(self, k, causal):
        # The diagonals of such a matrix, TensorFlow has no shape for.
        arrays = example((5, 5, k, 0), TABLES["per_head"])
        bias = example_bias("causal", (5, 5, k, 0)) if causal else None

        def call(*arrays):
            return shaw.relative_attention(
                *arrays,
                bias=bias,
                implementation="compact",
                query_start=0,
                causal=causal,
            )

        signature = [
            tf.TensorSpec([None, *array.shape[1:]], tf.float64)
            if array.ndim == 4
            else tf.TensorSpec(array.shape, tf.float64)
            for array in arrays
        ]
        self.assertAllClose(
            tf.function(call, signature)(*arrays),
            oracles.shaw_attention(*arrays, bias=0.0 if bias is None else bias),
        )

    def test_unknown_implementation_lists_the_known_ones(self):
        arrays = example((3, 3, 1, None), TABLES["shared"])
        with self.assertRaisesRegex(
            ValueError, "'auto', 'reshape', 'compact'.*Received: .*'fast'"
        ):
            shaw.relative_attention(*arrays, implementation="fast")

    def test_even_number_of_rows_is_refused(self):
        q, k, v, keys, values = example((3, 3, 1, None), TABLES["shared"])
        with self.assertRaisesRegex(ValueError, r"2k\+1 rows.*\(2, 5\)"):
            shaw.relative_attention(q, k, v, keys, values[:2])


def constant(array):
    return None if array is None else tf.constant(array)


if __name__ == "__main__":
    tf.test.main()
