"""Tests of the blocks; tests/models compares their numbers with NumPy."""

import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.layers import blocks
from relpos_tf.layers import dropout
from relpos_tf.layers import sublayers
from relpos_tf.layers.positions import shaw
from tests import testing
from tests.layers.schemes import floats

F = 12


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
