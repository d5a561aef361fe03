"""Tests of attention with labelled relations, against the equations.

Shapes: B batch, H heads, Q queries, K keys, D depth per head, F features,
R relations.
"""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.layers import pairs
from relpos_tf.layers import relations
from relpos_tf.layers.positions import shaw
from relpos_tf.utils import graphs
from tests import oracles
from tests import testing
from tests.layers import schemes
from tests.layers.schemes import floats

B, H, Q, K, F, R = 2, 3, 5, 7, 33, 4
D = F // H
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
    """Returns labels; the negative ones, two in R + 2, stand for none."""
    return np.random.default_rng(seed).integers(-2, R, shape)


def relation_layer(**kwargs):
    """Returns a layer whose weights are all different from 0."""
    layer = relations.RelationAttention(F, H, R, **kwargs)
    layer.build((None, None, F))
    return testing.randomize(layer)


def row_of(table, head, label, per_head_rank):
    """Returns a row of a table, or 0 of a pair that has no relation."""
    if table is None or label < 0:
        return 0.0
    return table[head, label] if table.ndim == per_head_rank else table[label]


def oracle(weights, x, memory, labels, allowed):
    """Equations 2 to 4, one pair at a time."""
    shape = B, H, x.shape[1], memory.shape[1]
    labels = np.broadcast_to(labels, (B, *shape[2:]))
    allowed = np.broadcast_to(allowed, shape)
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
            key = k[b, h, j] + row_of(keys, h, label, 3)
            e[j] = q[b, h, i] @ key / np.sqrt(D) + row_of(bias, h, label, 2)
            e[j] += 0.0 if allowed[b, h, i, j] else -1e9
        for j, alpha in enumerate(oracles.softmax(e)):
            z += alpha * (v[b, h, j] + row_of(values, h, labels[b, i, j], 3))
        output[b, i, h * D : (h + 1) * D] = z
    return output @ weights["output_transform/kernel"]


class EquationsTest(testing.LayerTestCase):
    @parameterized.product(
        tables=list(TABLES), batched=[False, True], keys=[Q, K]
    )
    def test_equals_the_loops(self, tables, batched, keys):
        layer = relation_layer(**TABLES[tables])
        x = testing.normal(2, B, Q, F)
        memory = x if keys == Q else testing.normal(3, B, K, F)
        labels = labels_of(3, *([B] if batched else []), Q, keys)
        allowed = np.arange(keys) != [[1], [3]]  # other keys for each example
        allowed = allowed[:, None, None]
        expected = oracle(
            testing.named_weights(layer), x, memory, labels, allowed
        )
        x, memory = tf.constant(x, tf.float32), tf.constant(memory, tf.float32)
        result = layer(
            x,
            tf.constant(labels),
            None if keys == Q else memory,
            may_attend=allowed,
        )
        self.assertAllClose(result, expected, rtol=1e-4, atol=1e-4)

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

        @graphs.function
        def loss(x, *values):
            for weight, value in zip(layer.weights, values, strict=True):
                weight.assign(value)
            return tf.reduce_sum(tf.sin(layer(x, labels)))

        loss(*arrays)  # assigns the weights
        x = tf.constant(arrays[0])
        with tf.GradientTape() as tape:
            tape.watch(x)
            result = tf.reduce_sum(tf.sin(layer(x, labels)))
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
        relative_layer = schemes.made(F, H, shaw.Shaw(k, heads_share=shared))
        layer = relations.RelationAttention(
            F, H, 2 * k + 1, heads_share_relations=shared
        )
        layer.build((None, None, F))
        layer.set_weights(relative_layer.get_weights())
        x = floats(2, B, K, F)
        labels = shaw.relative_position_ids(K, K, k)
        mask = pairs.Pairs(K, K, causal=True).mask() if causal else None
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            results = (
                layer(x, labels, may_attend=mask),
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


class GatherAndSumTest(tf.test.TestCase, parameterized.TestCase):
    def test_long_sums_of_bfloat16_do_not_stop_growing(self):
        weights = tf.fill([1, 1, 1, 4096], tf.constant(1 / 4096, tf.bfloat16))
        ids = tf.zeros([1, 1, 4096], tf.int32)
        self.assertAllEqual(
            relations.sum_by_label(weights, ids, 1), [[[[1.0]]]]
        )


class LabelsTest(tf.test.TestCase, parameterized.TestCase):
    def test_unknown_labels_are_refused(self):
        labels = tf.constant([[0, 1 << 32]], tf.int64)
        for function in (relations.label_ids, tf.function(relations.label_ids)):
            with self.assertRaisesRegex(
                tf.errors.InvalidArgumentError, "labels below 3"
            ):
                function(labels, 3)

    @parameterized.parameters(
        *((1, Q, K), (B, 1, K), (B, Q, 1), (1, Q * B, K), (B, K, Q)), (Q, 1)
    )
    def test_other_sizes_are_repeated_or_refused_in_a_graph(self, *shape):
        # Labels [1, Q, K] have as many numbers as [K, Q, 1].
        layer = relation_layer()
        x, memory = floats(1, B, Q, F), floats(2, B, K, F)
        labels = tf.constant(labels_of(3, *shape), tf.int32)
        call = graphs.function(
            layer,
            input_signature=[
                tf.TensorSpec([None, None, F]),
                tf.TensorSpec([None] * len(shape), tf.int32),
                tf.TensorSpec([None, None, F]),
            ],
        )
        sizes = zip(shape[::-1], (K, Q, B), strict=False)
        if all(size in (1, right) for size, right in sizes):
            repeated = tf.broadcast_to(labels, (B, Q, K))
            self.assertAllClose(
                call(x, labels, memory), layer(x, repeated, memory), 1e-5, 1e-5
            )
        else:
            with self.assertRaises(tf.errors.InvalidArgumentError):
                call(x, labels, memory)


class LayerTest(testing.LayerTestCase):
    @parameterized.parameters(
        ("per_head", {}, 7, (H, R, D)),
        ("shared", {"add_relations_to_keys": False}, 6, (R, D)),
    )
    def test_contract(self, tables, more, number, shape):
        more = TABLES[tables] | {"dropout": 0.3} | more
        layer = relations.RelationAttention(F, H, R, **more)
        self.assert_layer_contract(
            layer,
            floats(1, B, Q, F),
            tf.constant(labels_of(3, B, Q, Q)),
            number=number,
            xla=number == 7,
        )
        self.assertEqual(layer.value_table.shape, shape)

    @parameterized.parameters(False, True)
    def test_no_tensor_has_a_vector_for_each_pair(self, batched):
        length, heads, depth, number = 13, 2, 17, 19
        shape = [2] * batched + [length] * 2
        layer = relations.RelationAttention(heads * depth, heads, number)
        layer.build((None, None, heads * depth))
        x = testing.normal(1, 2, length, heads * depth)
        most = testing.largest_tensor(
            lambda x: layer(x, tf.ones(shape, tf.int32)), x
        )
        self.assertLess(most, 2 * length**2 * depth)
