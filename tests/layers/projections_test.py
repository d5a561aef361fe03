"""Tests of linear maps and norms: against NumPy and against Keras'."""

import numpy as np
import tensorflow as tf

from relpos_tf.layers import projections
from tests import testing


class ProjectionTest(testing.LayerTestCase):
    def test_the_gradient_of_a_bfloat16_bias_counts_every_row(self):
        layer = projections.Projection(7, dtype="mixed_bfloat16")
        layer.build((None, 5))
        x = tf.ones([64, 64, 5], tf.bfloat16)
        with tf.GradientTape() as tape:
            output = layer(x)
        gradient = tape.gradient(output, layer.bias.value, tf.ones_like(output))
        self.assertEqual(gradient.dtype, tf.float32)
        self.assertAllEqual(gradient, [4096.0] * 7)


class LayerNormTest(testing.LayerTestCase):
    def test_value_and_gradients_equal_the_definition(self):
        layer = projections.LayerNorm(epsilon=0.1, dtype="float64")
        layer.build((None, None, 5))
        arrays = [
            testing.normal(i, *shape)
            for i, shape in enumerate([(2, 3, 5), (5,), (5,)])
        ]
        upstream = testing.normal(9, 2, 3, 5)

        def define(x, gamma, beta):
            mean = x.mean(-1, keepdims=True)
            variance = np.square(x - mean).mean(-1, keepdims=True)
            return (x - mean) / np.sqrt(variance + 0.1) * gamma + beta

        layer.gamma.assign(arrays[1])
        layer.beta.assign(arrays[2])
        x = tf.constant(arrays[0])
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x)
        self.assertAllClose(y, define(*arrays), 1e-12, 1e-12)
        gradients = tape.gradient(
            y, [x, layer.gamma.value, layer.beta.value], upstream
        )
        testing.assert_gradients(
            self,
            gradients,
            lambda *moved: np.sum(define(*moved) * upstream),
            arrays,
        )

    def test_bfloat16_is_normalised_in_float32(self):
        # In bfloat16, 256 and 257 are the same number.
        layer = projections.LayerNorm(epsilon=0.0, dtype="mixed_bfloat16")
        found = layer(tf.constant([[256.0, 258.0, 256.0, 258.0]]))
        self.assertEqual(found.dtype, tf.bfloat16)
        self.assertAllEqual(tf.cast(found, tf.float32), [[-1.0, 1.0] * 2])
