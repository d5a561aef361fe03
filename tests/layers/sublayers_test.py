"""Tests of feed-forward layers and residual connections."""

import numpy as np
import tensorflow as tf

from relpos_tf.layers import dropout
from relpos_tf.layers import sublayers
from tests import testing


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
