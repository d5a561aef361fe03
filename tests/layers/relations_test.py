"""Tests of attention with labelled relations, against the equations.

Shapes: B batch, H heads, Q queries, K keys, D depth per head, F features,
R relations.
"""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.layers import attention
from relpos_tf.layers import masks
from relpos_tf.layers import relations
from relpos_tf.layers.positions import relative
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
        labels = relative.relative_position_ids(K, K, k)
        mask = masks.causal_mask(K, K) if causal else None
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
        labels = relative.relative_position_ids(K, K, 2)
        _, weights = layer(x, relations=labels, return_weights=True)
        heads = [
            tf.stack(tf.split(x @ part.kernel, H, axis=-1), 1)
            for part in (layer.q, layer.k, layer.v)
        ]
        _, expected = relative.relative_attention(
            heads[0] * D**-0.5,
            *heads[1:],
            layer.key_table.value,
            layer.value_table.value,
            implementation="reshape",
        )
        self.assertAllClose(weights, expected, rtol=1e-5, atol=1e-5)


if __name__ == "__main__":
    tf.test.main()
