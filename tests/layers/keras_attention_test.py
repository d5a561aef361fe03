"""Tests of `RelativeMultiHeadAttention` on TensorFlow alone.

tests/backends has those that hold on every backend of Keras.

Shapes: B batch, T queries, S keys, N heads, D depth per head, F features.
"""

import importlib.util
import pathlib
import tempfile
import warnings

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.layers import keras_attention
from relpos_tf.utils import graphs
from tests import testing

N, D, F = 3, 5, 15
LENGTHS = ((5, 5), (3, 7), (7, 3), (0, 0), (0, 5), (0, 1), (5, 0), (1, 0))


def example_layer(**arguments):
    return keras_attention.RelativeMultiHeadAttention(
        **(
            {"num_heads": N, "key_dim": D, "max_relative_position": 2}
            | arguments
        )
    )


def example_inputs(queries=5, keys=5):
    return [
        tf.constant(testing.normal([1, n], 2, n, F), tf.float32)
        for n in (queries, keys)
    ]


def operations(function, inputs):
    """Returns the types of operations in a graph of unknown lengths."""
    signature = [tf.TensorSpec([None, None, F])] * inputs
    graph = graphs.function(function, signature).get_concrete_function().graph
    return {operation.type for operation in graph.get_operations()}


class GraphTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        # The axes that a graph knows, and the lengths that it serves.
        (1, ((3, 7), (7, 3)), True),
        (2, ((3, 7),), False),
        (2, ((7, 3),), False),
        (3, ((5, 5),), True),
        *(
            (1, LENGTHS, False, implementation)
            for implementation in keras_attention.IMPLEMENTATIONS
        ),
    )
    def test_graphs_give_the_numbers_and_gradients_of_eager_code(
        self, known, all_lengths, jit_compile, implementation="auto"
    ):
        layer = example_layer(implementation=implementation)
        layer(*example_inputs())
        testing.randomize(layer)
        signature = [
            tf.TensorSpec([None] * (3 - known) + list(x.shape[3 - known :]))
            for x in example_inputs(*all_lengths[0])
        ]

        def compute(query, value):
            with tf.GradientTape() as tape:
                output, scores = layer(
                    query,
                    value,
                    use_causal_mask=True,
                    return_attention_scores=True,
                )
                loss = tf.reduce_sum(tf.sin(output))
            gradients = tape.gradient(
                loss,
                [w.value for w in layer.trainable_weights],
                unconnected_gradients="zero",  # where there is no pair
            )
            return output, scores, gradients

        graph = graphs.function(compute, signature, jit_compile=jit_compile)
        for lengths in all_lengths:
            inputs = example_inputs(*lengths)
            self.assertAllClose(
                graph(*inputs), compute(*inputs), rtol=1e-4, atol=1e-5
            )

    @parameterized.parameters(*keras_attention.IMPLEMENTATIONS)
    def test_a_causal_query_without_a_key_attends_to_all(self, implementation):
        # The first position is padding: the first query has no key.
        x, _ = example_inputs()
        layer = example_layer(implementation=implementation)
        layer(x, x)
        testing.randomize(layer)
        output, scores = layer(
            x,
            x,
            value_mask=np.arange(5) > [[0], [-1]],
            use_causal_mask=True,
            return_attention_scores=True,
        )
        self.assertAllClose(scores[0, :, 0], np.full([N, 5], 1 / 5), atol=1e-6)
        values = layer.value_dense(x)[0]  # [S, N, D]
        table = layer.relative_values.numpy()[:, 2:]  # distances 0, 1, 2
        vectors = table[:, [0, 1, 2, 2, 2]].mean(1)  # [N, D]
        heads = tf.reduce_mean(values, 0) + vectors
        expected = layer.output_dense(heads[None, None])[0, 0]
        self.assertAllClose(output[0, 0], expected, rtol=1e-4, atol=1e-4)

    def test_one_tensor_of_unknown_length_takes_the_compact_form(self):
        layer = example_layer()
        for function in (
            lambda x: layer(x, x),
            lambda x: layer(value=x, query=x),
            lambda x: layer(x, x, tf.identity(x)),
        ):
            self.assertIn("MatrixDiagPartV3", operations(function, 1))
        self.assertNotIn("MatrixDiagPartV3", operations(example_layer(), 2))

    @parameterized.parameters("float32", "mixed_bfloat16", "float64")
    def test_masks_of_keras_are_obeyed_and_kept(self, policy):
        ids = np.array([[3, 5, 7, 0, 0], [2, 4, 6, 1, 5]])
        layer = example_layer(dtype=policy)
        # In the layer's dtype: Keras 3.8 loses the mask of what it casts.
        x = keras.layers.Embedding(11, F, mask_zero=True, dtype=policy)(ids)
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

    def test_exports_run_without_the_package(self):
        inputs = keras.Input([None, F])
        model = keras.Model(inputs, example_layer()(inputs, inputs))
        testing.randomize(model)
        x = example_inputs(7)[0]
        with tempfile.TemporaryDirectory() as folder:
            model.export(folder, verbose=False)
            loaded = tf.saved_model.load(folder)
            self.assertAllClose(loaded.serve(x), model(x), rtol=1e-5, atol=1e-5)

    @parameterized.parameters("ops", "reshape")
    def test_litert_runs_the_plain_implementations(self, implementation):
        # The oldest Keras exports SavedModels only.
        has_export = importlib.util.find_spec("keras.src.export.litert")
        by_keras = has_export and implementation == "ops"
        batch = 1 if by_keras else 2  # 1 in Keras' export
        inputs = keras.Input([5, F], batch_size=batch)
        layer = example_layer(implementation=implementation)
        model = keras.Model(inputs, layer(inputs, inputs))
        testing.randomize(model)
        x = example_inputs()[0][:batch]
        if by_keras:
            with tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder, "model.tflite")
                model.export(path, format="litert", verbose=False)
                content = path.read_bytes()
            self.assertNotIn(b"Flex", content)  # operations of TensorFlow
        else:
            converter = tf.lite.TFLiteConverter.from_keras_model(model)
            content = converter.convert()  # refuses such operations
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a later package
            interpreter = tf.lite.Interpreter(model_content=content)
        interpreter.allocate_tensors()
        interpreter.set_tensor(interpreter.get_input_details()[0]["index"], x)
        interpreter.invoke()
        output = interpreter.get_output_details()[0]["index"]
        self.assertAllClose(
            interpreter.get_tensor(output), model(x), rtol=1e-4, atol=1e-5
        )

    def test_no_tensor_has_a_vector_for_each_pair(self):
        layer = example_layer(num_heads=1, key_dim=8, max_relative_position=4)
        x = testing.normal(1, 1, 64, F)
        layer(x, x)
        for arguments in ({}, {"use_causal_mask": True}):
            most = testing.largest_tensor(
                lambda y, arguments=arguments: layer(y, y, **arguments), x
            )
            self.assertLessEqual(most, 2 * 64 * 64)
