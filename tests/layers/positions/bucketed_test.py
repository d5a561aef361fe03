"""Tests of T5's bias, against loops and the formula of its released code.

Shapes: B batch, H heads, L length, F features, R buckets.
"""

import pathlib
import warnings

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf.layers import pairs
from relpos_tf.layers.positions import bucketed
from relpos_tf.layers.positions import fire
from relpos_tf.layers.positions import kerple
from relpos_tf.layers.positions import window
from relpos_tf.utils import graphs
from tests import oracles
from tests import testing
from tests.layers import schemes

B, H, L, F = 2, 3, 11, 21
BUCKETS, MOST = 8, 7


def made(bidirectional=True, **kwargs):
    one = bucketed.Bucketed(BUCKETS, MOST, bidirectional=bidirectional)
    return schemes.made(F, H, one, **kwargs)


class BucketsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.product(
        # Of 20 buckets up to 160, logarithms round two starts to the bucket
        # before; of 64 up to 34, some hold no distance.
        sizes=[(32, 128), (8, 7), (4, 3), (20, 160), (6, 101), (64, 34)],
        bidirectional=[True, False],
    )
    def test_every_distance_has_the_bucket_of_the_released_code(
        self, sizes, bidirectional
    ):
        number, most = sizes
        distances = np.arange(-3 * most, 3 * most)
        directions = 2 if bidirectional else 1
        found = bucketed.bucket_ids(
            tf.constant(distances, tf.int32),
            bucketed.bucket_starts(number // directions, most),
            bidirectional,
        )
        expected = [
            oracles.t5_bucket(d, number, most, bidirectional) for d in distances
        ]
        self.assertAllEqual(found, expected)


class BucketedTest(testing.LayerTestCase):
    @parameterized.product(bidirectional=[True, False], xla=[True, False])
    def test_output_and_gradients_equal_the_loops(self, bidirectional, xla):
        layer = made(bidirectional, dtype="float64")
        x = testing.normal(1, B, L, F)
        upstream = testing.normal(2, B, L, F)
        weights = testing.named_weights(layer)
        allowed = (np.arange(L) < [[4], [11]])[:, None, None]

        @graphs.function(jit_compile=xla)
        def compute(x):
            with tf.GradientTape() as tape:
                output = layer(x, may_attend=allowed)
                total = tf.reduce_sum(output * upstream)
            table = layer.relative_attention_bias.value
            return output, tape.gradient(total, table)

        def output(table):
            moved = weights | {"relative_attention_bias": table}
            return oracles.multihead(
                moved, H, x, x, allowed, t5=(MOST, bidirectional)
            )

        table = weights["relative_attention_bias"]
        found, gradient = compute(tf.constant(x))
        self.assertAllClose(found, output(table), 1e-9, 1e-9)
        self.assertIsInstance(gradient, tf.Tensor)
        testing.assert_gradients(
            self,
            [gradient],
            lambda table: np.sum(output(table) * upstream),
            [table],
        )

    def test_buckets_that_no_pair_has_get_a_gradient_of_exactly_0(self):
        # Adam would make whole steps of rounding errors. Three tokens have
        # the distances -2 to 2: buckets 0 to 2, and 5 and 6.
        layer = made()
        x = tf.constant(testing.normal(1, B, L, F), tf.float32)
        allowed = np.arange(L) < 3
        with tf.GradientTape() as tape:
            output = layer(x, may_attend=allowed, training=True)[:, :3]
            loss = tf.reduce_sum(tf.square(output))
        gradient = tape.gradient(loss, layer.relative_attention_bias.value)
        is_zero = np.all(gradient == 0.0, 1)
        self.assertAllEqual(np.flatnonzero(is_zero), [3, 4, 7])

    @parameterized.parameters(bucketed.Bucketed, kerple.Kerple, fire.Fire)
    def test_bfloat16_has_its_bias_in_float32(self, kind):
        layer, half = (
            schemes.made(F, H, kind(), dtype=dtype)
            for dtype in ("float32", "mixed_bfloat16")
        )
        half.set_weights(layer.get_weights())
        given = pairs.Pairs(3, 3)
        self.assertAllEqual(
            half.positions[0].bias(None, None, given),
            layer.positions[0].bias(None, None, given),
        )

    def test_layers_that_share_a_table_are_saved_by_their_weights_alone(self):
        def shared():
            t5 = bucketed.Bucketed(BUCKETS, MOST)
            layers = [schemes.made(F, H, t5) for _ in range(2)]
            return keras.Sequential([keras.Input([None, F]), *layers])

        model, again = shared(), shared()
        folder = pathlib.Path(self.create_tempdir().full_path)
        for refused in (
            lambda: model.save(folder / "x.keras"),
            lambda: keras.models.clone_model(model),
            lambda: keras.Sequential(model.layers[1:]).get_config(),
        ):
            with self.assertRaisesRegex(errors.UserError, "`save_weights`"):
                refused()
        with warnings.catch_warnings():
            # Keras saves by an interface that NumPy 2 wants changed.
            warnings.simplefilter("ignore", DeprecationWarning)
            model.save_weights(folder / "x.weights.h5")
            again.load_weights(folder / "x.weights.h5")
        x = tf.constant(testing.normal(1, B, L, F), tf.float32)
        self.assertAllEqual(again(x), model(x))
        self.assertLen(again.weights, 9)  # one table
        owner = keras.Sequential([keras.Input([None, F]), model.layers[0]])
        self.assertLen(keras.models.clone_model(owner).weights, 5)

    @parameterized.parameters((0, 1), (1, 0))
    def test_a_sum_with_another_bias_keeps_every_digit(self, before, after):
        none = [window.Window(L)]  # forbids nothing, in float32
        t5 = bucketed.Bucketed(BUCKETS, MOST)
        positions = [*none * before, t5, *none * after]
        layer = schemes.made(F, H, *positions, dtype="float64")
        layer.relative_attention_bias.assign(testing.normal(3, BUCKETS, H))
        x = testing.normal(1, B, L, F)
        expected = oracles.multihead(
            testing.named_weights(layer), H, x, x, True, t5=(MOST, True)
        )
        self.assertAllClose(layer(tf.constant(x)), expected, 1e-12, 1e-12)
