"""Rotary positions: queries and keys rotated by angles of their positions.

Shapes: B batch, H heads, L positions, D depth per head.
"""

import keras
import tensorflow as tf

from relpos_tf import errors
from relpos_tf.layers.positions import scheme

MAX_TIMESCALE = 10_000.0


@keras.saving.register_keras_serializable(package="relpos_tf")
class Rotary(scheme.Scheme):
    """Rotates neighbouring channels of queries and keys.

    Channels 2c and 2c + 1 at position p are rotated by the angle
    p / 10000^(2c / D). The product of a query and a key then depends on the
    difference of their positions alone. Nothing is learned.

    Raises:
        UserError: the depth of a head is odd.

    Example:
    >>> x = tf.constant([[[[1.0, 0.0]]]])
    >>> Rotary().rotate(x, tf.constant([0])).numpy().tolist()
    [[[[1.0, 0.0]]]]

    Reference:
        [Su et al., 2021](https://arxiv.org/abs/2104.09864), equations 14-16.
    """

    name = "rotary"

    def build(self, layer: keras.layers.Layer) -> None:
        if layer.depth % 2:
            raise errors.UserError(
                "Rotary positions need an even number of channels of a head. "
                f"Received: hidden_size / num_heads = {layer.depth}."
            )

    def rotate(self, x: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
        # In float32 or float64: bfloat16 distinguishes few angles.
        dtype = tf.float64 if x.dtype == tf.float64 else tf.float32
        depth = x.shape[-1]
        exponents = tf.range(0, depth, 2, dtype=dtype) / depth  # [D / 2]
        inverse = tf.cast(MAX_TIMESCALE, dtype) ** -exponents
        angles = tf.cast(positions, dtype)[:, tf.newaxis] * inverse
        cosine, sine = tf.cos(angles), tf.sin(angles)  # [L, D / 2]
        channels = tf.cast(x, dtype)
        even, odd = channels[..., ::2], channels[..., 1::2]  # [B, H, L, D / 2]
        rotated = tf.stack(
            [even * cosine - odd * sine, even * sine + odd * cosine], -1
        )
        return tf.cast(tf.reshape(rotated, tf.shape(x)), x.dtype)

    def why_not_ctranslate2(self) -> str | None:
        return None
