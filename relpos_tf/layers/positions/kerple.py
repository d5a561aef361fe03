"""Attention with a bias that falls with the logarithm of the distance.

Shapes: H heads, Q queries, K keys, S distances.
"""

import keras
import tensorflow as tf

from relpos_tf.layers import pairs as pairs_lib
from relpos_tf.layers.positions import by_distance
from relpos_tf.layers.positions import scheme


@keras.saving.register_keras_serializable(package="relpos_tf")
class Kerple(scheme.Scheme):
    """Subtracts the logarithm of a key's distance, with numbers of the head.

        e[i, j] = q[i] . k[j] / sqrt(D) - r1[h] log(1 + r2[h] |j - i|)

    r1 and r2 are absolute values of weights. As in the authors' program, they
    begin between 0 and 2, and between 0 and 1. The paper has a decoder only; in
    an encoder, which sees both sides, the bias is symmetric.

    Reference:
        [Chi et al., 2022](https://arxiv.org/abs/2205.09921), the logarithmic
        variant.
    """

    name = "KERPLE"

    def build(self, layer: keras.layers.Layer) -> None:
        uniform, heads = keras.initializers.RandomUniform, (layer.num_heads,)
        r1, r2 = (heads, uniform(0.0, 2.0)), (heads, uniform(0.0, 1.0))
        self._weights = scheme.add_exact(layer, "kerple", r1=r1, r2=r2)

    def bias(
        self, x: tf.Tensor, keys: tf.Tensor, pairs: pairs_lib.Pairs
    ) -> tf.Tensor:
        del x, keys
        r1, r2 = (tf.abs(scheme.exact(one)) for one in self._weights)  # [H]
        far = tf.cast(tf.abs(by_distance.distances(pairs)), r1.dtype)  # [S]
        logarithms = tf.math.log(1.0 + r2[:, tf.newaxis] * far)  # [H, S]
        return by_distance.biases(-r1[:, tf.newaxis] * logarithms, pairs)
