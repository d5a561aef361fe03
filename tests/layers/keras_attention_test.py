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

from relpos_tf import errors
from relpos_tf.layers import attention
from relpos_tf.layers import conversion
from relpos_tf.layers import keras_attention
from relpos_tf.layers.positions import alibi
from relpos_tf.layers.positions import shaw
from tests import testing

N, D, F = 3, 5, 15


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


class GraphTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.product(
        lengths=((5, 5), (3, 7), (7, 3)),
        known=("all", "lengths", "features"),
        jit_compile=(False, True),
    )
    def test_graphs_give_the_numbers_and_gradients_of_eager_code(
        self, lengths, known, jit_compile
    ):
        layer = example_layer()
        inputs = example_inputs(*lengths)
        layer(*inputs)
        testing.randomize(layer)
        shape = {"all": 3, "lengths": 2, "features": 1}[known]
        signature = [
            tf.TensorSpec([None] * (3 - shape) + list(x.shape[3 - shape :]))
            for x in inputs
        ]

        def compute(query, value):
            with tf.GradientTape() as tape:
                output, _ = layer(
                    query,
                    value,
                    use_causal_mask=True,
                    return_attention_scores=True,
                )
                loss = tf.reduce_sum(tf.sin(output))
            variables = [w.value for w in layer.trainable_weights]
            return output, tape.gradient(loss, variables)

        graph = tf.function(compute, signature, jit_compile=jit_compile)
        self.assertAllClose(
            graph(*inputs), compute(*inputs), rtol=1e-4, atol=1e-5
        )

    @parameterized.parameters(*keras_attention.IMPLEMENTATIONS)
    def test_implementations_have_one_gradient(self, implementation):
        x, _ = example_inputs()
        layers = [example_layer(implementation=implementation), example_layer()]
        gradients = []
        for layer in layers:
            layer(x, x)
            testing.randomize(layer)
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.sin(layer(x, x, use_causal_mask=True)))
            variables = [w.value for w in layer.trainable_weights]
            gradients.append(tape.gradient(loss, variables))
        self.assertAllClose(*gradients, rtol=1e-5, atol=1e-5)

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
        self.assertAllClose(scores[0, :, 0], np.full([N, 5], 1 / 5))
        values = layer.value_dense(x)[0]  # [S, N, D]
        table = layer.relative_values.numpy()[:, 2:]  # distances 0, 1, 2
        vectors = table[:, [0, 1, 2, 2, 2]].mean(1)  # [N, D]
        heads = tf.reduce_mean(values, 0) + vectors
        expected = layer.output_dense(heads[None, None])[0, 0]
        self.assertAllClose(output[0, 0], expected, rtol=1e-4, atol=1e-4)

    def test_exports_run_without_the_package(self):
        inputs = keras.Input([None, F])
        model = keras.Model(inputs, example_layer()(inputs, inputs))
        testing.randomize(model)
        x = example_inputs(7)[0]
        with tempfile.TemporaryDirectory() as folder:
            model.export(folder, verbose=False)
            loaded = tf.saved_model.load(folder)
            self.assertAllClose(loaded.serve(x), model(x), rtol=1e-5, atol=1e-5)

    @parameterized.parameters(*keras_attention.IMPLEMENTATIONS)
    def test_litert_runs_every_implementation(self, implementation):
        # The oldest Keras exports SavedModels only.
        has_export = importlib.util.find_spec("keras.src.export.litert")
        by_keras = has_export and implementation == "auto"
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


class ConversionTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        ([],),
        ([shaw.Shaw(2)],),
        ([shaw.Shaw(0)],),
        ([shaw.Shaw(3, heads_share=True, add_to_values=False)],),
        ([shaw.Shaw(3, add_to_keys=False, implementation="reshape")],),
    )
    def test_layers_give_the_same_output_and_weights(self, positions):
        x, y = example_inputs()
        layer = attention.TransformerAttention(F, N, positions=positions)
        layer(x)
        testing.randomize(layer)
        ours = conversion.to_keras(layer)
        back = conversion.to_transformer(ours)
        self.assertEqual(back.get_config(), layer.get_config())
        mask = np.arange(5) < [[5], [3]]
        self.assertAllClose(
            ours(x, x, value_mask=mask, return_attention_scores=True),
            layer(x, may_attend=mask[:, None, None], return_weights=True),
            rtol=1e-5,
            atol=1e-5,
        )
        self.assertAllClose(
            ours(x, y, use_causal_mask=True),
            layer(x, y, use_causal_mask=True),
            rtol=1e-5,
            atol=1e-5,
        )
        self.assertAllEqual(back(x), layer(x))

    @parameterized.parameters(
        (shaw.Shaw(4, max_relative_position_right=2),),
        (shaw.Shaw(0, max_relative_position_right=3, heads_share=True),),
    )
    def test_two_clipping_distances_become_one(self, one):
        x, _ = example_inputs(7, 7)
        layer = attention.TransformerAttention(F, N, positions=[one])
        layer(x)
        testing.randomize(layer)
        ours = conversion.to_keras(layer)
        self.assertEqual(ours.max_relative_position, max(one.left, one.right))
        back = conversion.to_transformer(ours)
        expected = layer(x, return_weights=True)
        for found in (
            ours(x, x, return_attention_scores=True),
            back(x, return_weights=True),
        ):
            self.assertAllClose(found, expected, rtol=1e-5, atol=1e-5)

    def test_other_features_than_the_hidden_size_are_refused(self):
        x, y = example_inputs()
        narrow = attention.TransformerAttention(F, N)
        narrow(x[..., :7])
        with self.assertRaisesRegex(
            errors.UserError, "hidden_size = 15 features.*'queries': 7"
        ):
            conversion.to_keras(narrow)
        wide = attention.TransformerAttention(F, N)
        wide(x, tf.concat([y, y], -1))
        with self.assertRaisesRegex(errors.UserError, "'memory': 30"):
            conversion.to_keras(wide)

    def test_what_cannot_be_converted_is_refused(self):
        x, _ = example_inputs()
        other = attention.TransformerAttention(F, N, positions=[alibi.Alibi()])
        for layer in (other, example_layer(use_bias=False)):
            convert = (
                conversion.to_keras
                if layer is other
                else conversion.to_transformer
            )
            with self.assertRaisesRegex(errors.UserError, "must be built"):
                convert(layer)
        other(x)
        with self.assertRaisesRegex(errors.UserError, "empty or one Shaw"):
            conversion.to_keras(other)
        for name, value in (
            ("use_bias", True),
            ("value_dim", 7),
            ("output_shape", 7),
            ("key_dim", 7),
        ):
            layer = example_layer(**({"use_bias": False} | {name: value}))
            layer(x, x)
            with self.assertRaisesRegex(errors.UserError, "no bias, gate"):
                conversion.to_transformer(layer)
        rows = example_layer(use_bias=False, attention_axes=(2,))
        rows(x[:, tf.newaxis], x[:, tf.newaxis])
        with self.assertRaisesRegex(errors.UserError, "'rank': 4"):
            conversion.to_transformer(rows)

    @parameterized.parameters("int8", "float8")
    def test_quantized_projections_are_refused(self, mode):
        x, _ = example_inputs()
        layer = example_layer(use_bias=False)
        layer(x, x)
        with warnings.catch_warnings():
            # Of how Keras turns its variables into arrays of NumPy.
            warnings.simplefilter("ignore", DeprecationWarning)
            layer.key_dense.quantize(mode)
        with self.assertRaisesRegex(
            errors.UserError, f"no bias.*'quantization': '{mode}'"
        ):
            conversion.to_transformer(layer)


if __name__ == "__main__":
    tf.test.main()
