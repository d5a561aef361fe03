"""Attention obeys the masks that Keras attaches to tensors."""

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.layers import blocks
from relpos_tf.layers import relations
from relpos_tf.layers.positions import shaw
from tests.layers import schemes
from tests.layers.schemes import floats

B, Q, K, H, F = 2, 5, 7, 3, 12
POSITIONS = {"shaw": [shaw.Shaw(2)], "plain": []}
LINES = np.arange(K) < [[K], [K - 3]]


def made(kind):
    return schemes.made(F, H, *POSITIONS[kind])


def encoder_block(norm):
    return blocks.EncoderBlock(
        {"hidden_size": F, "num_heads": H, "positions": [shaw.Shaw(2)]},
        {"filter_size": 17, "hidden_size": F},
        {"norm_before": norm == "before", "norm_after": norm == "after"},
    )


class MasksOfKerasTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(*POSITIONS)
    def test_masks_forbid_padding_as_may_attend_does(self, kind):
        layer, x, y = made(kind), floats(1, B, K, F), floats(2, B, Q, F)
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

    def test_relations_obey_masks_too(self):
        layer = relations.RelationAttention(F, H, 3)
        x, labels = floats(1, B, K, F), np.arange(K * K).reshape(K, K) % 3
        expected = layer(x, labels, may_attend=LINES[:, None, None])
        self.assertNotAllClose(expected, layer(x, labels), atol=1e-3)
        self.assertAllEqual(layer(x, labels, queries_mask=LINES), expected)
        self.assertAllEqual(layer(x, labels, x, memory_mask=LINES), expected)

    @parameterized.parameters(*POSITIONS, "before", "after")
    def test_the_mask_of_an_embedding_is_obeyed_and_passed_on(self, kind):
        ids = keras.Input([None], dtype="int32")
        x = keras.layers.Embedding(13, F, mask_zero=True)(ids)
        for _ in range(2):
            if kind in POSITIONS:
                x = keras.layers.Add()([x, made(kind)(x)])
            else:
                x = encoder_block(kind)(x)
        pooled = keras.layers.GlobalAveragePooling1D()(x)
        model = keras.Model(ids, pooled)
        batch = np.random.default_rng(3).integers(1, 13, (B, K))
        padded = np.pad(batch, ((0, 0), (0, 4)))
        self.assertAllClose(model(padded), model(batch), 1e-5, 1e-5)
