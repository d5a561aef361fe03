"""Tests of `RelativeMultiHeadAttention` on TensorFlow alone.

tests/backends has those that hold on every backend of Keras.

Shapes: B batch, T queries, S keys, N heads, D depth per head, F features.
"""

import tempfile
import warnings

import keras
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.layers import keras_attention
from relpos_tf.utils import graphs
from tests import testing

N, D, F = 3, 5, 15
LENGTHS = ((5, 5), (3, 7), (7, 3), (0, 0), (0, 5), (0, 1), (5, 0), (1, 0))


def example_layer(heads=N, depth=D, k=2, **arguments):
    return keras_attention.RelativeMultiHeadAttention(
        heads, depth, max_relative_position=k, **arguments
    )


def example_inputs(queries=5, keys=5):
    return [
        tf.constant(testing.normal([1, n], 2, n, F), tf.float32)
        for n in (queries, keys)
    ]


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
        inputs = keras.Input([5, F], batch_size=2)
        layer = example_layer(implementation=implementation)
        model = keras.Model(inputs, layer(inputs, inputs))
        testing.randomize(model)
        x = example_inputs()[0]
        converter = tf.lite.TFLiteConverter.from_keras_model(model)
        content = converter.convert()  # refuses operations of TensorFlow
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
        layer = example_layer(1, 8, 4)
        x = testing.normal(1, 1, 64, F)
        layer(x, x)
        for arguments in ({}, {"use_causal_mask": True}):
            most = testing.largest_tensor(
                lambda y, arguments=arguments: layer(y, y, **arguments), x
            )
            self.assertLessEqual(most, 2 * 64 * 64)
