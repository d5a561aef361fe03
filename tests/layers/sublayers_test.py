"""Tests of feed-forward layers and residual connections."""

import itertools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.layers import dropout
from relpos_tf.layers import sublayers
from tests import oracles
from tests import testing
from tests.layers.schemes import floats

NORMS = ("before_norm", "after_norm")


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
    @parameterized.product(before=[True, False], after=[True, False])
    def test_norms_are_before_and_after_as_asked(self, before, after):
        layer = sublayers.Residual(
            norm_before=before, norm_after=after, epsilon=0.1
        )
        x, y = floats(1, 2, 3, 5).numpy(), floats(2, 2, 3, 5).numpy()
        layer.build(x.shape)
        weights = testing.named_weights(testing.randomize(layer))
        self.assertEqual(
            {path.split("/")[0] for path in weights},
            set(itertools.compress(NORMS, (before, after))),
        )
        seen = []

        def sublayer(inputs):
            seen.append(inputs)
            return y

        expected = oracles.sublayer(weights, 0.1, x, sublayer)
        self.assertAllClose(layer.before(x), seen[0], atol=1e-5)
        self.assertAllClose(layer(x, y), expected, atol=1e-5)

    def test_dropout_acts_on_the_sublayer_and_not_on_its_input(self):
        layer = sublayers.Residual(
            norm_before=False, norm_after=False, rate=0.5
        )
        x, y = tf.fill([1, 11, 101], 3.0), tf.ones([1, 11, 101])
        with dropout.seed_scope(tf.constant([3, 5])):
            result = layer(x, y, training=True)
        self.assertAllEqual(np.unique(result), [3.0, 5.0])
        self.assertAllEqual(layer(x, y), tf.fill([1, 11, 101], 4.0))
