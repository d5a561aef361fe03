"""Attention with linear biases: far keys get smaller logits.

Shapes: H heads, Q queries, K keys.
"""

import math

import keras
import tensorflow as tf

from relpos_tf.layers import pairs as pairs_lib
from relpos_tf.layers.positions import scheme


@keras.saving.register_keras_serializable(package="relpos_tf")
class Alibi(scheme.Scheme):
    """Subtracts the distance of a key, times a slope of the head.

        e[i, j] = q[i] . k[j] / sqrt(D) - slope[h] |j - i|

    Nothing is learned. The paper has a decoder only; in an encoder, which sees
    both sides, the bias is symmetric.

    Reference:
        [Press et al., 2022](https://arxiv.org/abs/2108.12409), section 3.
    """

    name = "ALiBi"

    def build(self, layer: keras.layers.Layer) -> None:
        self._slopes = slopes(layer.num_heads)

    def bias(
        self, x: tf.Tensor, keys: tf.Tensor, pairs: pairs_lib.Pairs
    ) -> tf.Tensor:
        del x, keys
        distance = tf.cast(tf.abs(pairs.distances()), tf.float32)  # [Q, K]
        per_head = tf.constant(self._slopes)[:, tf.newaxis, tf.newaxis]
        return -per_head * distance  # [H, Q, K]


def slopes(num_heads: int) -> list[float]:
    """Returns the slope of each head, from steep to flat.

    If H is a power of 2, the slopes are 2^(-8/H), 2^(-16/H), ..., 2^-8. For
    another H, the slopes for the power of 2 below H come first, then every
    second slope for the next power of 2, beginning with the first.

    Example:
    >>> slopes(2), slopes(3)
    ([0.0625, 0.00390625], [0.0625, 0.00390625, 0.25])
    """
    power = 2 ** math.floor(math.log2(num_heads))

    def geometric(heads):
        return [2.0 ** (-8.0 * (h + 1) / heads) for h in range(heads)]

    return geometric(power) + geometric(2 * power)[::2][: num_heads - power]
