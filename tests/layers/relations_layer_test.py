"""Tests of `RelationAttention` as a layer that Keras builds and saves.

Shapes: B batch, H heads, Q queries, K keys, D depth per head, F features,
R relations.
"""

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf.layers import relations
from tests import testing

B, H, Q, K, F, R = 2, 3, 5, 7, 33, 4
D = F // H


@keras.saving.register_keras_serializable(package="relations_layer_test")
class ByPosition(relations.RelationAttention):
    """Takes its labels by position, as the contract of layers gives them."""

    def build(self, queries_shape):
        super().build(queries_shape)

    def call(self, queries, labels):
        return super().call(queries, relations=labels)


def labels_of(seed, *shape):
    """Returns labels, one in R + 1 of them -1."""
    return np.random.default_rng(seed).integers(-1, R, shape)


def example(seed, *shape):
    return tf.constant(testing.normal(seed, *shape), tf.float32)


def relation_layer(**kwargs):
    """Returns a layer whose weights are all different from 0."""
    layer = relations.RelationAttention(F, H, **kwargs)
    layer.build((None, None, F))
    return testing.randomize(layer)


class LayerTest(testing.LayerTestCase):
    @parameterized.named_parameters(
        ("per_head", {}, ("keys", "values"), (H,)),
        (
            "shared",
            {"heads_share_relations": True, "add_relations_to_keys": False},
            ("values",),
            (),
        ),
    )
    def test_contract(self, arguments, tables, heads):
        kernels = ("q", "k", "v", "output_transform")
        arguments |= {"add_relation_bias": True, "dropout": 0.3}
        labels = labels_of(3, B, Q, Q)
        labels[labels < 0] = 9
        self.assert_layer_contract(
            ByPosition(F, H, R, no_relation=9, **arguments),
            example(1, B, Q, F),
            tf.constant(labels),
            weights={f"{name}/kernel": (F, F) for name in kernels}
            | {f"relation_{name}": (*heads, R, D) for name in tables}
            | {"relation_bias": (*heads, R)},
            xla=bool(heads),
        )

    def test_a_model_is_saved_and_loaded(self):
        x = keras.Input([None, F])
        edges = keras.Input([None, None], dtype="int32")
        y = relations.RelationAttention(F, H, R, add_relation_bias=True)(
            x, relations=edges
        )
        model = keras.Model([x, edges], keras.layers.Dense(1)(y))
        testing.randomize(model)
        inputs = [example(1, B, Q, F), tf.constant(labels_of(3, B, Q, Q))]
        loaded = testing.reloaded(model)
        self.assertAllEqual(loaded(inputs), model(inputs))
        # Other lengths than in the saved call.
        inputs = [example(1, B, K, F), tf.constant(labels_of(3, B, K, K))]
        self.assertAllClose(
            model.predict_on_batch(inputs), model(inputs), rtol=1e-5, atol=1e-5
        )

    def test_lengths_may_be_unknown_in_a_graph(self):
        layer = relation_layer(num_relations=R)

        @tf.function(
            input_signature=[
                tf.TensorSpec([None, None, F]),
                tf.TensorSpec([None, None, F]),
                tf.TensorSpec([None, None, None], tf.int64),
            ]
        )
        def call(x, memory, labels):
            return layer(x, memory, relations=labels)

        for b, q, k in ((2, 3, 5), (3, 7, 2)):
            inputs = example(1, b, q, F), example(2, b, k, F)
            labels = tf.constant(labels_of(3, b, q, k))
            self.assertAllClose(
                call(*inputs, labels),
                layer(*inputs, relations=labels),
                rtol=1e-5,
                atol=1e-5,
            )

    @parameterized.parameters(
        ("relations", (1, Q, K)),
        ("relations", (B, 1, K)),
        ("relations", (B, Q, 1)),
        ("relations", (1, Q * B, K)),
        ("relations", (B, K, Q)),
        ("relations", (Q, 1)),
        ("key_vectors", (B, Q, 1, D)),
        ("key_vectors", (Q, K, D + 1)),
        ("value_vectors", (B, K, Q, D)),
        ("value_vectors", (B, H, Q, K, 1)),
    )
    def test_other_sizes_are_repeated_or_refused_in_a_graph(self, name, shape):
        # Labels [1, Q, K] have as many numbers as [K, Q, 1].
        is_labels = name == "relations"
        layer = relation_layer(num_relations=R if is_labels else None)
        full = (B, Q, K) if is_labels else (B, H, Q, K, D)
        x, memory = example(1, B, Q, F), example(2, B, K, F)
        dtype = tf.int32 if is_labels else tf.float32
        spec = [tf.TensorSpec([None, None, F])] * 2
        spec += [tf.TensorSpec([None] * len(shape), dtype)]
        given = example(3, *shape)
        if is_labels:
            given = tf.constant(labels_of(3, *shape), dtype)
        if len(shape) == 4:  # without heads
            full = B, Q, K, D
        fits = all(
            size in (1, right)
            for size, right in zip(shape[::-1], full[::-1], strict=False)
        )
        for jit_compile in (False, True):
            call = tf.function(
                lambda x, memory, given: layer(x, memory, **{name: given}),
                input_signature=spec,
                jit_compile=jit_compile,
            )
            if not fits:
                with self.assertRaises(tf.errors.InvalidArgumentError):
                    call(x, memory, given)
                continue
            repeated = {name: np.broadcast_to(given, full)}
            self.assertAllClose(
                call(x, memory, given),
                layer(x, memory, **repeated),
                rtol=1e-5,
                atol=1e-5,
            )

    def test_labels_and_vectors_of_unknown_rank_are_refused(self):
        x = example(1, B, Q, F)
        for name, layer, dtype in (
            ("relations", relation_layer(num_relations=R), tf.int32),
            ("key_vectors", relation_layer(), tf.float32),
        ):

            @tf.function(
                input_signature=[tf.TensorSpec(None, dtype)], autograph=False
            )
            def call(tensor, layer=layer, name=name):
                return layer(x, **{name: tensor})

            with self.assertRaisesRegex(
                errors.UserError, f"`{name}` of .*<unknown>"
            ):
                call(tf.zeros([Q, Q], dtype))

    def test_new_tables_are_glorots_and_the_bias_is_zero(self):
        layer = relations.RelationAttention(22, 2, 17, add_relation_bias=True)
        layer.build((None, None, 22))
        limit = (6 / (17 + 11)) ** 0.5
        for table in (layer.key_table, layer.value_table):
            largest = np.max(np.abs(table.numpy()), axis=(1, 2))
            self.assertAllInRange(largest, 0.9 * limit, limit)
        self.assertAllEqual(layer.bias_table, np.zeros([2, 17]))

    def test_dropout_zeroes_weights_while_training_only(self):
        layer = relations.RelationAttention(F, H, 1, dropout=0.5)
        layer.build((None, None, F))
        # Values and output are the identity, so that weights are visible; the
        # vector of the only label shows that it gets the same weights.
        for kernel in (layer.v.kernel, layer.output_transform.kernel):
            kernel.assign(tf.eye(F))
        layer.value_table.assign(tf.fill([H, 1, D], 2.0))
        x, labels = tf.ones([3, 101, F]), tf.zeros([101, 101], tf.int32)
        self.assertAllClose(layer(x, relations=labels), 3 * x, rtol=1e-4)
        dropped = layer(x, relations=labels, training=True)
        kept = np.asarray(dropped) / 3 * 101 / 2
        self.assertAllClose(kept, np.round(kept), atol=1e-3)
        self.assertGreater(np.std(kept), 3.0)

    @parameterized.parameters(
        (R, {}, "`relations`.*num_relations=4, and none"),
        (None, {"relations": [Q, Q]}, "num_relations=None, and some"),
        (R, {"relations": [Q, 1]}, r"`relations`.*\(5, 1\)"),
        (R, {"relations": [1, Q, Q]}, r"`relations`.*\(1, 5, 5\)"),
        (None, {"key_vectors": [Q, Q, 1]}, r"`key_vectors`.*\(5, 5, 1\)"),
        (None, {"value_vectors": [Q, D]}, r"`value_vectors`.*\(5, 11\)"),
    )
    def test_arguments_that_do_not_fit_are_refused(
        self, number, shapes, message
    ):
        layer = relation_layer(num_relations=number)
        arguments = {
            name: tf.zeros(
                shape, tf.int32 if name == "relations" else tf.float32
            )
            for name, shape in shapes.items()
        }
        with self.assertRaisesRegex(errors.UserError, message):
            layer(example(1, B, Q, F), **arguments)

    @parameterized.parameters("float32", "bool", "uint8")
    def test_labels_of_other_types_are_refused(self, dtype):
        layer = relation_layer(num_relations=R)
        labels = tf.zeros([Q, Q], dtype)
        with self.assertRaisesRegex(errors.UserError, f"int64.*{dtype}"):
            layer(example(1, B, Q, F), relations=labels)


if __name__ == "__main__":
    tf.test.main()
