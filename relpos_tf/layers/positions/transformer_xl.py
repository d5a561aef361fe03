"""The relative positions of Transformer-XL: projected sinusoids of distances.

Shapes: B batch, H heads, Q queries, K keys, D depth per head, F features, S
distances.
"""

import keras
import tensorflow as tf

from relpos_tf.layers import embeddings
from relpos_tf.layers import pairs as pairs_lib
from relpos_tf.layers.positions import band
from relpos_tf.layers.positions import by_distance
from relpos_tf.layers.positions import scheme


@keras.saving.register_keras_serializable(package="relpos_tf")
class TransformerXL(scheme.Scheme):
    """Adds products with projected sinusoids of the signed distance.

        e[i, j] = ((q[i] + u) . k[j] + (q[i] + v) . W_R r(i - j)) / sqrt(D)

    r has F features. W_R is learned, and u and v for each head, from 0 on. Each
    layer has its own; the authors' program has one u and one v for all layers,
    unless told otherwise. A layer so depends on no other one, as with every
    scheme but T5's. There is no memory of earlier segments: translation has
    single sentences.

    The slowest cosines are 1 at all distances, which a softmax ignores: what
    `fire.Fire` says of rounding holds for their rows of W_R.

    Reference:
        [Dai et al., 2019](https://arxiv.org/abs/1901.02860), section 3.3.
    """

    name = "Transformer-XL"

    def build(self, layer: keras.layers.Layer) -> None:
        heads, size = (layer.num_heads, layer.depth), layer.hidden_size
        self._kernel, self._u, self._v = scheme.add_exact(
            layer,
            "transformer_xl",
            kernel=((size, size), "glorot_uniform"),  # W_R
            u=(heads, "zeros"),
            v=(heads, "zeros"),
        )

    def bias(
        self, x: tf.Tensor, keys: tf.Tensor, pairs: pairs_lib.Pairs
    ) -> tf.Tensor:
        del x, pairs
        u = scheme.exact(self._u)[:, tf.newaxis] * self._u.shape[1] ** -0.5
        products = tf.reduce_sum(u * tf.cast(keys, u.dtype), -1)
        return tf.expand_dims(products, 2)  # [B, H, 1, K]

    def logits(
        self, logits: tf.Tensor, q: tf.Tensor, pairs: pairs_lib.Pairs
    ) -> tf.Tensor:
        v = scheme.exact(self._v)[:, tf.newaxis] * self._v.shape[1] ** -0.5
        kernel = tf.cast(self._kernel.value, q.dtype)  # [F, F]
        backwards = -by_distance.distances(pairs)  # i - j
        signal = embeddings.timing_signal(backwards, kernel.shape[0])
        vectors = tf.matmul(tf.cast(signal, q.dtype), kernel)  # [S, F]
        vectors = tf.reshape(vectors, [-1, *self._v.shape])
        vectors = tf.transpose(vectors, [1, 0, 2])  # [H, S, D]
        products = band.multiply(q + tf.cast(v, q.dtype), vectors, True)
        return logits + by_distance.by_key(products, pairs)  # [B, H, Q, K]
