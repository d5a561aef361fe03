"""Tests of the parts of blocks: maps, norms, feed-forward, residuals."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.layers import blocks
from relpos_tf.layers import dropout
from relpos_tf.layers import projections
from relpos_tf.layers import sublayers
from relpos_tf.layers.positions import shaw
from tests import testing
from tests.layers.schemes import floats

F = 12


class FeedForwardTest(testing.LayerTestCase):
    def test_dropout_acts_between_the_maps(self):
        layer = sublayers.FeedForward(101, 101, relu_dropout=0.5)
        layer.build((None, None, 101))
        layer.conv1.kernel.assign(tf.eye(101))
        layer.conv2.kernel.assign(tf.eye(101))
        layer.conv2.bias.assign(tf.fill([101], 3.0))
        with dropout.seed_scope(tf.constant([3, 5])):
            y = layer(tf.ones([1, 11, 101]), training=True)
        self.assertAllEqual(np.unique(y), [3.0, 5.0])
        self.assertAllClose(np.mean(y), 4.0, atol=0.2)


class ResidualTest(testing.LayerTestCase):
    def test_dropout_acts_on_the_sublayer_and_not_on_its_input(self):
        layer = sublayers.Residual(
            norm_before=False, norm_after=False, rate=0.5
        )
        x, y = tf.fill([1, 11, 101], 3.0), tf.ones([1, 11, 101])
        with dropout.seed_scope(tf.constant([3, 5])):
            result = layer(x, y, training=True)
        self.assertAllEqual(np.unique(result), [3.0, 5.0])
        self.assertAllEqual(layer(x, y), tf.fill([1, 11, 101], 4.0))


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


class BlocksTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(blocks.EncoderBlock, blocks.DecoderBlock)
    def test_each_sublayer_drops_and_only_while_training(self, kind):
        block = kind(
            {"hidden_size": F, "num_heads": 2, "positions": [shaw.Shaw(2)]},
            {"filter_size": 17, "hidden_size": F},
            {"norm_before": False, "norm_after": True, "rate": 0.5},
        )
        block.build((None, None, F))
        testing.randomize(block)
        inputs = [floats(1, 1, 7, F)] * 2
        inputs = inputs if kind is blocks.DecoderBlock else inputs[:1]
        residuals = [
            layer
            for layer in block._flatten_layers()
            if isinstance(layer, sublayers.Residual)
        ]
        self.assertLen(residuals, 1 + len(inputs))
        still = block(*inputs)
        self.assertAllEqual(block(*inputs, training=False), still)
        for residual in residuals:
            residual.drop.rate = 0.0
        self.assertAllEqual(block(*inputs, training=True), still)
        for residual in residuals:
            residual.drop.rate = 0.5
            with dropout.seed_scope(tf.constant([3, 5])):
                dropped = block(*inputs, training=True)
            self.assertNotAllClose(dropped, still, atol=0.01)
            residual.drop.rate = 0.0
