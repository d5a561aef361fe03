"""Tests of attention with labelled relations, against the equations.

Shapes: B batch, H heads, Q queries, K keys, D depth per head, F features,
R relations.
"""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf.layers import attention
from relpos_tf.layers import pairs
from relpos_tf.layers import relations
from relpos_tf.layers.positions import shaw
from tests import oracles
from tests import testing

B, H, Q, K, F, R = 2, 3, 5, 7, 33, 4
D = F // H
NONE = -1
TABLES = {
    "per_head": {"add_relation_bias": True},
    "shared": {"add_relation_bias": True, "heads_share_relations": True},
    "keys": {"add_relations_to_values": False},
    "values": {"add_relations_to_keys": False},
    "bias": {
        "add_relations_to_keys": False,
        "add_relations_to_values": False,
        "add_relation_bias": True,
    },
}


def labels_of(seed, *shape):
    """Returns labels, one in R + 1 of them missing."""
    return np.random.default_rng(seed).integers(NONE, R, shape)


def example(seed, *shape):
    return tf.constant(testing.normal(seed, *shape), tf.float32)


def relation_layer(**kwargs):
    """Returns a layer whose weights are all different from 0."""
    layer = relations.RelationAttention(F, H, **kwargs)
    layer.build((None, None, F))
    return testing.randomize(layer)


def row_of(table, head, label, per_head_rank):
    """Returns a row of a table, or 0 of a pair that has no relation."""
    if table is None or label == NONE:
        return 0.0
    return table[head, label] if table.ndim == per_head_rank else table[label]


def oracle(weights, x, memory, labels, allowed, vectors=(0.0, 0.0)):
    """Equations 2 to 4, for a vector of every pair, one pair at a time."""
    shape = B, H, x.shape[1], memory.shape[1]
    labels = np.broadcast_to(labels, (B, *shape[2:]))
    allowed = np.broadcast_to(allowed, shape)
    extra = [
        np.broadcast_to(v[:, None] if np.ndim(v) == 4 else v, (*shape, D))
        for v in vectors
    ]
    q, k, v = (
        np.stack(np.split(y @ weights[f"{name}/kernel"], H, axis=-1), 1)
        for name, y in (("q", x), ("k", memory), ("v", memory))
    )
    keys, values, bias = (
        weights.get(f"relation_{name}") for name in ("keys", "values", "bias")
    )
    output = np.zeros([B, shape[2], F])
    for b, h, i in np.ndindex(shape[:3]):
        e, z = np.zeros(shape[3]), np.zeros(D)
        for j, label in enumerate(labels[b, i]):
            key = k[b, h, j] + row_of(keys, h, label, 3) + extra[0][b, h, i, j]
            e[j] = q[b, h, i] @ key / np.sqrt(D) + row_of(bias, h, label, 2)
            e[j] += 0.0 if allowed[b, h, i, j] else -1e9
        for j, alpha in enumerate(oracles.softmax(e)):
            value = v[b, h, j] + row_of(values, h, labels[b, i, j], 3)
            z += alpha * (value + extra[1][b, h, i, j])
        output[b, i, h * D : (h + 1) * D] = z
    return output @ weights["output_transform/kernel"]


class EquationsTest(testing.LayerTestCase):
    @parameterized.product(tables=list(TABLES), batched=[False, True])
    def test_self_attention_equals_the_loops(self, tables, batched):
        layer = relation_layer(num_relations=R, **TABLES[tables])
        x = testing.normal(2, B, Q, F)
        labels = labels_of(3, *([B] if batched else []), Q, Q)
        allowed = np.arange(Q) != [[1], [3]]  # [B, Q], other keys for each
        expected = oracle(
            testing.named_weights(layer), x, x, labels, allowed[:, None, None]
        )
        result = layer(
            tf.constant(x, tf.float32),
            relations=tf.constant(labels),
            may_attend=allowed[:, None, None],
        )
        self.assertAllClose(result, expected, rtol=1e-4, atol=1e-4)

    @parameterized.parameters(*TABLES)
    def test_attention_to_a_memory_equals_the_loops(self, tables):
        layer = relation_layer(num_relations=R, **TABLES[tables])
        x, memory = testing.normal(2, B, Q, F), testing.normal(3, B, K, F)
        labels = labels_of(4, B, Q, K)
        expected = oracle(
            testing.named_weights(layer), x, memory, labels, allowed=True
        )
        result = layer(
            tf.constant(x, tf.float32),
            tf.constant(memory, tf.float32),
            relations=tf.constant(labels),
        )
        self.assertAllClose(result, expected, rtol=1e-4, atol=1e-4)

    @parameterized.product(
        shape=[(Q, K, D), (B, Q, K, D), (B, H, Q, K, D)], labelled=[False, True]
    )
    def test_vectors_of_ones_own_are_added(self, shape, labelled):
        layer = relation_layer(num_relations=R if labelled else None)
        x, memory = testing.normal(2, B, Q, F), testing.normal(3, B, K, F)
        vectors = testing.normal(5, *shape), testing.normal(6, *shape)
        labels = labels_of(4, Q, K) if labelled else np.full([Q, K], NONE)
        for given in (vectors, (vectors[0], None), (None, vectors[1])):
            expected = oracle(
                testing.named_weights(layer),
                x,
                memory,
                labels,
                allowed=True,
                vectors=[0.0 if v is None else v for v in given],
            )
            result = layer(
                tf.constant(x, tf.float32),
                tf.constant(memory, tf.float32),
                relations=tf.constant(labels) if labelled else None,
                key_vectors=given[0],
                value_vectors=given[1],
            )
            self.assertAllClose(result, expected, rtol=1e-4, atol=1e-4)

    def test_labels_equal_their_vectors_given_for_every_pair(self):
        # Gradients of the tables, too, against TensorFlow's own of dense ones.
        layer = relation_layer(num_relations=R)
        plain = relation_layer()
        plain.set_weights(layer.get_weights()[2:])
        x, labels = example(2, B, Q, F), tf.constant(labels_of(3, B, Q, Q))
        one_hot = tf.one_hot(labels, R)  # of -1 it is zero
        tables = [layer.key_table.value, layer.value_table.value]
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            vectors = [
                tf.einsum("bqkr,hrd->bhqkd", one_hot, table) for table in tables
            ]
            results = (
                layer(x, relations=labels),
                plain(x, key_vectors=vectors[0], value_vectors=vectors[1]),
            )
            losses = [tf.reduce_sum(tf.sin(result)) for result in results]
        self.assertAllClose(*results, rtol=1e-5, atol=1e-5)
        gradients = [tape.gradient(loss, [x, *tables]) for loss in losses]
        for one, other in zip(*gradients, strict=True):
            self.assertIsInstance(one, tf.Tensor)
            self.assertGreater(float(tf.norm(other)), 0.1)
            self.assertAllClose(one, other, rtol=1e-4, atol=1e-4)

    def test_gradients_equal_differences(self):
        layer = relations.RelationAttention(
            4, 2, 3, add_relation_bias=True, dtype="float64"
        )
        layer.build((None, None, 4))
        arrays = [testing.normal(2, 2, 3, 4)] + [
            testing.normal([7, n], *weight.shape)
            for n, weight in enumerate(layer.weights)
        ]
        labels = tf.constant(labels_of(3, 2, 3, 3) % 4 - 1)

        @tf.function
        def loss(x, *values):
            for weight, value in zip(layer.weights, values, strict=True):
                weight.assign(value)
            return tf.reduce_sum(tf.sin(layer(x, relations=labels)))

        loss(*arrays)  # assigns the weights
        x = tf.constant(arrays[0])
        with tf.GradientTape() as tape:
            tape.watch(x)
            result = tf.reduce_sum(tf.sin(layer(x, relations=labels)))
        gradients = tape.gradient(
            result, [x, *(w.value for w in layer.weights)]
        )
        for gradient in gradients:
            self.assertGreater(np.max(np.abs(gradient)), 1e-3)
        testing.assert_gradients(self, gradients, loss, arrays)


class RelativeTest(testing.LayerTestCase):
    """Clipped distances are labels, so relative attention is a special case."""

    @parameterized.product(shared=[False, True], causal=[False, True])
    def test_clipped_distances_make_it_relative_attention(self, shared, causal):
        k = 2
        relative_layer = attention.TransformerAttention(
            F,
            H,
            positions=[shaw.Shaw(k, heads_share=shared)],
        )
        relative_layer.build((None, None, F))
        testing.randomize(relative_layer)
        layer = relations.RelationAttention(
            F, H, 2 * k + 1, heads_share_relations=shared
        )
        layer.build((None, None, F))
        layer.set_weights(relative_layer.get_weights())
        x = example(2, B, K, F)
        labels = shaw.relative_position_ids(K, K, k)
        mask = pairs.Pairs(K, K, causal=True).mask() if causal else None
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            results = (
                layer(x, relations=labels, may_attend=mask),
                relative_layer(x, may_attend=mask),
            )
            losses = [tf.reduce_sum(tf.sin(result)) for result in results]
        self.assertAllClose(*results, rtol=1e-5, atol=1e-5)
        gradients = [
            tape.gradient(loss, [x, *(w.value for w in layer.weights)])
            for loss, layer in zip(losses, (layer, relative_layer), strict=True)
        ]
        for one, other in zip(*gradients, strict=True):
            self.assertAllClose(one, other, rtol=1e-4, atol=1e-4)

    def test_weights_equal_those_of_relative_attention(self):
        layer = relation_layer(num_relations=5)
        x = example(2, B, K, F)
        labels = shaw.relative_position_ids(K, K, 2)
        _, weights = layer(x, relations=labels, return_weights=True)
        heads = [
            tf.stack(tf.split(x @ part.kernel, H, axis=-1), 1)
            for part in (layer.q, layer.k, layer.v)
        ]
        _, expected = shaw.relative_attention(
            heads[0] * D**-0.5,
            *heads[1:],
            layer.key_table.value,
            layer.value_table.value,
            implementation="reshape",
        )
        self.assertAllClose(weights, expected, rtol=1e-5, atol=1e-5)


class GatherAndSumTest(tf.test.TestCase, parameterized.TestCase):
    def test_numbers_are_gathered_and_weights_summed(self):
        labels = relations.Labels(tf.constant([[[2, 0, 2], [1, 3, 0]]]), 3)
        numbers = tf.constant([[[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]]])
        self.assertAllEqual(
            labels.gather(numbers), [[[[3.0, 1.0, 3.0], [5.0, 0.0, 4.0]]]]
        )
        weights = tf.constant([[[[1.0, 2.0, 4.0], [8.0, 16.0, 32.0]]]])
        self.assertAllEqual(
            labels.sum(weights), [[[[2.0, 0.0, 5.0], [32.0, 8.0, 0.0]]]]
        )

    @parameterized.parameters(False, True)
    def test_both_equal_products_with_one_hot_rows(self, jit_compile):
        ids = labels_of(1, B, Q, K) + 1  # R stands for no label
        labels = relations.Labels(tf.constant(ids, tf.int32), R)
        one_hot = np.eye(R + 1)[ids][..., :R]
        numbers = testing.normal(2, B, H, Q, R)
        weights = testing.normal(3, B, H, Q, K)

        @tf.function(jit_compile=jit_compile)
        def call(numbers, weights):
            with tf.GradientTape(persistent=True) as tape:
                tape.watch([numbers, weights])
                gathered, sums = labels.gather(numbers), labels.sum(weights)
            return (
                gathered,
                sums,
                tape.gradient(gathered, numbers, output_gradients=weights),
                tape.gradient(sums, weights, output_gradients=numbers),
            )

        gathered = np.einsum("bqkr,bhqr->bhqk", one_hot, numbers)
        sums = np.einsum("bqkr,bhqk->bhqr", one_hot, weights)
        results = call(tf.constant(numbers), tf.constant(weights))
        for result, expected in zip(
            results, (gathered, sums, sums, gathered), strict=True
        ):
            self.assertAllClose(result, expected, rtol=1e-12, atol=1e-12)

    def test_gradients_have_gradients(self):
        labels = relations.Labels(tf.constant([[[0, 1, 0]]]), 2)
        numbers = tf.constant([[[[2.0, 3.0]]]])
        with tf.GradientTape() as outer:
            outer.watch(numbers)
            with tf.GradientTape() as inner:
                inner.watch(numbers)
                cubes = tf.reduce_sum(labels.gather(numbers) ** 3)
            first = inner.gradient(cubes, numbers)
        self.assertAllClose(first, [[[[24.0, 27.0]]]])
        second = outer.gradient(first, numbers)
        self.assertAllClose(second, [[[[24.0, 18.0]]]])

    def test_long_sums_of_bfloat16_do_not_stop_growing(self):
        labels = relations.Labels(tf.zeros([1, 1, 4096], tf.int32), 1)
        weights = tf.fill([1, 1, 1, 4096], tf.constant(1 / 4096, tf.bfloat16))
        self.assertAllEqual(labels.sum(weights), [[[[1.0]]]])


class LabelsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.product(
        missing=[-1, 0, 3, 7, None], dtype=[tf.int32, tf.int64]
    )
    def test_only_the_missing_label_counts_as_none(self, missing, dtype):
        given = [0, 1, 2] if missing is None else [0, 1, 2, missing]
        ids = relations.label_ids(tf.constant([given], dtype), 3, missing)
        expected = [3 if label == missing else label for label in given]
        self.assertAllEqual(ids, [expected])

    @parameterized.parameters(
        ([[0, 3]], -1, "Expected labels from 0 to 2 or -1. Received: 3."),
        ([[-2, 0]], -1, "Expected labels from 0 to 2 or -1. Received: -2."),
        ([[-1, 0]], None, "Expected labels from 0 to 2. Received: -1."),
        ([[-1, 0]], 1, "Expected labels from 0 to 2. Received: -1."),
        ([[1 << 32, 0]], -1, "Received: 4294967296."),
    )
    def test_unknown_labels_are_refused(self, labels, missing, message):
        labels = tf.constant(labels, tf.int64)
        with self.assertRaisesRegex(errors.UserError, message):
            relations.label_ids(labels, 3, missing)
        in_graph = tf.function(lambda x: relations.label_ids(x, 3, missing))
        with self.assertRaisesRegex(
            tf.errors.InvalidArgumentError, "Expected labels from 0 to 2"
        ):
            in_graph(labels)

    def test_xla_takes_unknown_labels_for_none(self):
        call = tf.function(
            lambda x: relations.label_ids(x, 3, -1), jit_compile=True
        )
        labels = tf.constant([[0, 3, -1, 9, -7, 1 << 32]], tf.int64)
        self.assertAllEqual(call(labels), [[0, 3, 3, 3, 3, 3]])


class MemoryTest(tf.test.TestCase, parameterized.TestCase):
    """Labels never have a vector, nor a one-hot row, for each pair."""

    LENGTH, HEADS, DEPTH, NUMBER = 13, 2, 17, 19

    @parameterized.parameters(False, True)
    def test_no_tensor_has_a_row_for_each_pair(self, batched):
        shape = [2] * batched + [self.LENGTH] * 2
        layer = relations.RelationAttention(
            self.HEADS * self.DEPTH, self.HEADS, self.NUMBER
        )
        layer.build((None, None, self.HEADS * self.DEPTH))
        x = testing.normal(1, 2, self.LENGTH, layer.hidden_size)

        def loss(x):
            return layer(x, relations=tf.ones(shape, tf.int32))

        pairs = 2 * self.LENGTH**2  # of both examples
        self.assertLess(testing.largest_tensor(loss, x), pairs * self.DEPTH)
        vectors = tf.ones([2, self.LENGTH, self.LENGTH, self.DEPTH])
        plain = relations.RelationAttention(layer.hidden_size, self.HEADS)
        plain.build((None, None, layer.hidden_size))
        self.assertGreaterEqual(  # the probe sees them
            testing.largest_tensor(lambda x: plain(x, key_vectors=vectors), x),
            pairs * self.DEPTH,
        )


if __name__ == "__main__":
    tf.test.main()
