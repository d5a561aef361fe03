"""One tensor as several arguments of an attention, also if Keras casts it.

Shapes: B batch, L length, F features, H heads.
"""

from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.layers import attention
from relpos_tf.layers import keras_attention
from relpos_tf.layers import relations
from relpos_tf.layers import row_blocks
from relpos_tf.layers.positions import localness
from relpos_tf.layers.positions import shaw
from tests import testing

B, L, F, H = 2, 5, 12, 3
POLICIES = ("float32", "mixed_bfloat16", "float64")
X = tf.TensorSpec([None, None, F])


def example(length=L):
    return tf.constant(testing.normal(1, B, length, F), tf.float32)


def keras_layer(**arguments):
    return keras_attention.RelativeMultiHeadAttention(
        H, 5, max_relative_position=2, **arguments
    )


def made(policy, *positions):
    """Returns a `TransformerAttention` whose weights all differ from 0."""
    layer = attention.TransformerAttention(
        F, H, positions=positions, dtype=policy
    )
    layer.build((None, None, F))
    return testing.randomize(layer)


def operations(function, *signature):
    """Returns the types of operations in a graph."""
    graph = tf.function(function, list(signature)).get_concrete_function().graph
    return {operation.type for operation in graph.get_operations()}


class KerasLayerTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.product(
        policy=POLICIES, call=["positions", "names", "key", "model"]
    )
    def test_self_attention_is_known_in_every_precision(self, policy, call):
        layer = keras_layer(dtype=policy)
        if call == "model":
            inputs = keras.Input([None, F])
            layer = keras.Model(inputs, layer(inputs, inputs))
        function = {
            "positions": lambda x: layer(x, x),
            "names": lambda x: layer(value=x, query=x),
            "key": lambda x: layer(x, x, tf.identity(x)),
            "model": lambda x: layer(x),
        }[call]
        self.assertIn("MatrixDiagPartV3", operations(function, X))

    def test_a_saved_model_knows_it_too(self):
        inputs = keras.Input([None, F])
        layer = keras_layer(dtype="mixed_bfloat16")
        model = keras.Model(inputs, layer(inputs, inputs))
        testing.randomize(model)
        loaded = testing.reloaded(model)
        self.assertIn("MatrixDiagPartV3", operations(loaded, X))
        x = example()
        self.assertAllEqual(loaded(x), model(x))

    def test_two_tensors_stay_two(self):
        layer = keras_layer(dtype="mixed_bfloat16")
        self.assertNotIn("MatrixDiagPartV3", operations(layer, X, X))

    @parameterized.parameters(*POLICIES)
    def test_masks_of_keras_are_obeyed_and_kept(self, policy):
        ids = np.array([[3, 5, 7, 0, 0], [2, 4, 6, 1, 5]])
        layer = keras_layer(dtype=policy)
        embed = keras.layers.Embedding(11, F, mask_zero=True)
        x = embed(ids)
        layer(x, x)
        testing.randomize(layer)
        found = layer(x, x)
        self.assertAllEqual(found._keras_mask, ids > 0)
        self.assertAllEqual(x._keras_mask, ids > 0)
        plain = tf.identity(x)
        expected = layer(plain, tf.identity(x), value_mask=ids > 0)
        self.assertAllClose(
            tf.cast(found, tf.float32)[ids > 0],
            tf.cast(expected, tf.float32)[ids > 0],
            1e-5,
            1e-5,
        )


class TransformerAttentionTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.product(policy=POLICIES, causal=[False, True])
    def test_the_queries_as_memory_are_taken_in_blocks(self, policy, causal):
        layer = made(policy, shaw.Shaw(2), localness.Localness("layer"))
        x, mask = example(), np.arange(L) < [[L], [3]]
        expected = layer(x, mask=mask, use_causal_mask=causal)
        with (
            mock.patch.object(row_blocks, "MOST_NUMBERS", 2 * B * H * L),
            mock.patch.object(
                row_blocks, "by_blocks", wraps=row_blocks.by_blocks
            ) as by_blocks,
        ):
            found = layer(x, x, memory_mask=mask, use_causal_mask=causal)
        by_blocks.assert_called_once()
        tolerance = 0.05 if policy == "mixed_bfloat16" else 1e-5
        self.assertAllClose(
            tf.cast(found, tf.float32),
            tf.cast(expected, tf.float32),
            tolerance,
            tolerance,
        )

    def test_masks_of_keras_are_obeyed(self):
        layer = made("mixed_bfloat16", shaw.Shaw(2))
        ids = np.array([[3, 5, 7, 0, 0], [2, 4, 6, 1, 5]])
        x = keras.layers.Embedding(11, F, mask_zero=True)(ids)
        plain = tf.identity(x)
        # Not layer(x): Keras 3.8 loses the mask of a tensor that it casts.
        self.assertAllEqual(
            layer(x, x), layer(plain, plain, memory_mask=ids > 0)
        )
        self.assertNotAllClose(layer(plain), layer(x, x), atol=0.1)

    @parameterized.parameters(
        lambda: made("mixed_bfloat16"),
        lambda: relations.RelationAttention(F, H, dtype="mixed_bfloat16"),
    )
    def test_one_product_projects_queries_keys_and_values(self, make):
        layer = make()
        with mock.patch.object(
            layer, "to_heads", wraps=layer.to_heads
        ) as to_heads:
            layer(example(), example())
            self.assertEqual(to_heads.call_count, 2)
            x = example()
            layer(x, x)
            self.assertEqual(to_heads.call_count, 3)


if __name__ == "__main__":
    tf.test.main()
