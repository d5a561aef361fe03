"""Tests that `TransformerAttention` and `RelationAttention` obey Keras' masks.

They also test what both refuse.
"""

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf.layers import attention
from relpos_tf.layers import blocks
from relpos_tf.layers import relations
from relpos_tf.layers.positions import shaw
from tests import testing

B, Q, K, H, F = 2, 5, 7, 3, 12
KINDS = {
    "transformer": lambda: attention.TransformerAttention(
        F, H, positions=[shaw.Shaw(2)]
    ),
    "plain": lambda: attention.TransformerAttention(F, H),
    "relations": lambda: relations.RelationAttention(F, H),
}
LINES = np.arange(K) < [[K], [K - 3]]


def example(seed, length):
    return tf.constant(testing.normal(seed, B, length, F), tf.float32)


def made(kind):
    layer = KINDS[kind]()
    layer.build((None, None, F))
    return testing.randomize(layer)


def encoder_block(norm):
    return blocks.EncoderBlock(
        {"hidden_size": F, "num_heads": H, "positions": [shaw.Shaw(2)]},
        {"filter_size": 17, "hidden_size": F},
        {"norm_before": norm == "before", "norm_after": norm == "after"},
    )


class MasksOfKerasTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(*KINDS)
    def test_masks_forbid_padding_as_may_attend_does(self, kind):
        layer, x, y = made(kind), example(1, K), example(2, Q)
        allowed = LINES[:, None, None]
        expected = layer(x, may_attend=allowed)
        self.assertNotAllClose(expected, layer(x), atol=0.01)
        for name in ("mask", "queries_mask"):
            self.assertAllEqual(layer(x, **{name: LINES}), expected)
        self.assertAllEqual(
            layer(y, x, memory_mask=LINES, queries_mask=LINES[:, :Q]),
            layer(y, x, may_attend=allowed),
        )
        other = (np.arange(K) != 2)[None, None, None]
        self.assertAllEqual(
            layer(x, mask=LINES, may_attend=other.astype(int)),
            layer(x, may_attend=allowed & other),
        )

    @parameterized.parameters(*KINDS, "before", "after")
    def test_the_mask_of_an_embedding_is_obeyed_and_passed_on(self, kind):
        ids = keras.Input([None], dtype="int32")
        x = keras.layers.Embedding(13, F, mask_zero=True)(ids)
        for _ in range(2):
            if kind in KINDS:
                x = keras.layers.Add()([x, made(kind)(x)])
            else:
                x = encoder_block(kind)(x)
        pooled = keras.layers.GlobalAveragePooling1D()(x)
        model = keras.Model(ids, pooled)
        batch = np.random.default_rng(3).integers(1, 13, (B, K))
        padded = np.pad(batch, ((0, 0), (0, 4)))
        self.assertAllClose(
            model.predict(padded, verbose=0),
            model.predict(batch, verbose=0),
            rtol=1e-5,
            atol=1e-5,
        )

    @parameterized.parameters(*KINDS)
    def test_shapes_are_known_before_the_call(self, kind):
        layer = made(kind)
        self.assertEqual(layer.compute_output_shape((B, Q, F)), (B, Q, F))
        x, y = keras.KerasTensor([B, Q, F]), keras.KerasTensor([B, K, F])
        output, weights = layer(x, y, return_weights=True)
        self.assertEqual(output.shape[1:], (Q, F))
        self.assertEqual(weights.shape[1:], (H, Q, K))
        inputs = keras.Input([3, Q, F])
        many = keras.layers.TimeDistributed(layer)(inputs)
        self.assertEqual(many.shape, (None, 3, Q, F))
        x = testing.normal(1, B, 3, Q, F)
        self.assertAllClose(
            keras.Model(inputs, many)(x)[:, 1],
            layer(x[:, 1]),
            rtol=1e-5,
            atol=1e-5,
        )

    @parameterized.parameters(*KINDS)
    def test_a_mask_of_other_axes_is_refused(self, kind):
        layer = made(kind)
        # As many examples as heads: it would broadcast.
        x = tf.ones([H, Q, F])
        for shape in ((H, Q, Q), (H, Q), (H, 1, Q, K)):
            with self.assertRaisesRegex(
                errors.UserError, r"`may_attend` must have the axes \[batch, he"
            ):
                layer(x, may_attend=np.ones(shape, bool))

    @parameterized.parameters(*KINDS)
    def test_inputs_of_another_shape_are_refused(self, kind):
        for shapes in (((Q, F),), ((B, Q, F), (K, F)), ((B, 1, Q, F),)):
            with self.assertRaisesRegex(errors.UserError, "batch, positions"):
                KINDS[kind]()(*map(tf.ones, shapes))
        layer = made(kind)
        for shape, message in (((Q, F), "ndim=3"), ((B, Q, F + 1), "axis -1")):
            with self.assertRaisesRegex(ValueError, message):
                layer(tf.ones(shape))


if __name__ == "__main__":
    tf.test.main()
