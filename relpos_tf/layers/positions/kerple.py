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

    name = "logarithmic bias of distances (KERPLE)"

    def build(self, layer: keras.layers.Layer) -> None:
        self._weights = [
            layer.add_scheme_weight(
                f"kerple_{name}",
                (layer.num_heads,),
                keras.initializers.RandomUniform(0.0, most),
                autocast=False,
            )
            for name, most in (("r1", 2.0), ("r2", 1.0))
        ]

    def bias(
        self, x: tf.Tensor, keys: tf.Tensor, pairs: pairs_lib.Pairs
    ) -> tf.Tensor:
        del x, keys
        r1, r2 = (tf.abs(scheme.exact(one)) for one in self._weights)  # [H]
        far = tf.cast(tf.abs(by_distance.distances(pairs)), r1.dtype)  # [S]
        logarithms = tf.math.log(1.0 + r2[:, tf.newaxis] * far)  # [H, S]
        numbers = -r1[:, tf.newaxis] * logarithms
        return by_distance.biases(numbers, pairs)  # [H, Q, K]

    def summary(self) -> str:
        return "KERPLE"
