"""Tests of the blocks; tests/models compares their numbers with NumPy."""

import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.layers import blocks
from relpos_tf.layers import dropout
from relpos_tf.layers import sublayers
from tests import testing
from tests.layers import schemes
from tests.layers.schemes import floats

B, S, T = 2, 7, 5
F, HEADS, FILTER = 12, 2, 17


def made(kind, norms=False, rate=0.0, **position):
    """Returns a block with weights that are all different from 0."""
    block = kind(
        {
            "hidden_size": F,
            "num_heads": HEADS,
            "positions": schemes.schemes(**position),
        },
        {"filter_size": FILTER, "hidden_size": F},
        {"norm_before": False, "norm_after": norms, "rate": rate},
    )
    block.build((None, None, F))
    return testing.randomize(block)


class BlocksTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        {"direction": "forward"},
        {"direction": "split"},
        {"window": 1},
        {"localness": "query"},
        {"max_relative_position": 1},
    )
    def test_a_target_sees_the_whole_source_from_any_position(self, **position):
        block = made(blocks.DecoderBlock, **position)
        # Self-attention is silenced: equal targets at several places must give
        # equal results, and so must a source in another order.
        block.self_attention.output_transform.kernel.assign(tf.zeros([F, F]))
        x = tf.repeat(floats(1, B, 1, F), T, 1)
        memory = floats(2, B, S, F)
        found = block(x, memory)
        self.assertAllClose(found, tf.repeat(found[:, :1], T, 1), 1e-5, 1e-5)
        turned = block(x, tf.reverse(memory, [1]))
        self.assertAllClose(found, turned, 1e-5, 1e-5)

    @parameterized.parameters(blocks.EncoderBlock, blocks.DecoderBlock)
    def test_each_sublayer_drops_and_only_while_training(self, kind):
        block = made(kind, norms=True, rate=0.5, max_relative_position=2)
        inputs = [floats(1, 1, S, F)] * 2
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
