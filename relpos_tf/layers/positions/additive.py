"""Additive compatibility of a query and a key (Bahdanau et al., 2014).

Shapes: B batch, H heads, Q queries, K keys, D depth per head.
"""

import keras
import tensorflow as tf

from relpos_tf.layers.positions import scheme


@keras.saving.register_keras_serializable(package="relpos_tf")
class Additive(scheme.Scheme):
    """Logits of a small network instead of a dot product, see `logits`.

    Args:
        relative: None or a `shaw.Shaw`, whose vectors of the keys take part
            in the sum, and whose vectors of the values in the output.

    Example:

    >>> Additive().summary()
    'additive score'

    Reference:
        [Bahdanau et al., 2014](https://arxiv.org/abs/1409.0473), appendix A;
        [Shaw et al., 2018](https://arxiv.org/abs/1803.02155), equations 3, 4.
    """

    computes = True
    name = "score other than a dot product"

    def __init__(self, relative: scheme.Scheme | None = None):
        self.relative = scheme.restored(relative)

    def build(self, layer):
        self._compute_value = layer.compute_value
        self._vectors = layer.add_uniform(
            "score_vectors", (layer.num_heads, layer.depth), layer.depth + 1
        )
        if self.relative is not None:
            self.relative.build(layer)

    def weight_shapes(self, num_heads, depth):
        shapes = {"score_vectors": (num_heads, depth)}
        if self.relative is not None:
            shapes |= self.relative.weight_shapes(num_heads, depth)
        return shapes

    def scale(self, depth):
        del depth
        return 1.0  # tanh is bounded

    def logits(self, q, keys_values, pairs):
        vectors = None
        if self.relative is not None:
            vectors = self.relative.key_vectors(pairs)
        u = self._compute_value(self._vectors)
        return logits(q, keys_values.rows(), u, vectors)

    def output(self, weights, keys_values, pairs, sums_to_one):
        if self.relative is None:
            return super().output(weights, keys_values, pairs, sums_to_one)
        return self.relative.output(weights, keys_values, pairs, sums_to_one)

    def tables(self):
        return {} if self.relative is None else self.relative.tables()

    def numbers_per_pair(self, logits, num_heads, depth):
        if self.relative is None:
            return logits * depth
        return logits * depth + self.relative.vector_numbers(num_heads, depth)

    def summary(self):
        names = [] if self.relative is None else [self.relative.summary()]
        return " and ".join([*names, "additive score"])

    def get_config(self):
        if self.relative is None:
            return {"relative": None}
        return {"relative": scheme.serialized([self.relative])[0]}


def logits(q, k, score_vectors, pair_vectors=None):
    """Computes e[i, j] = u . tanh(q[i] + k[j] + a[i, j]) for each head.

    Nothing is scaled: tanh is bounded. Unlike a dot product this builds a
    `[B, H, Q, K, D]` tensor, for which long sentences are expensive.

    Args:
        q: `[B, H, Q, D]` queries.
        k: `[B, H, K, D]` keys.
        score_vectors: `[H, D]`, u.
        pair_vectors: None, or vectors a of the pairs: `[Q, K, D]`, or
            `[H, Q, K, D]` if each head has its own; Q may be 1 for all.

    Returns:
        `[B, H, Q, K]`.

    Example:

    >>> q, k = tf.constant([[[[1.0]]]]), tf.constant([[[[-1.0], [99.0]]]])
    >>> logits(q, k, tf.constant([[3.0]])).numpy().tolist()
    [[[[0.0, 3.0]]]]

    Reference:
        [Bahdanau et al., 2014](https://arxiv.org/abs/1409.0473), appendix A.
    """
    both = q[:, :, :, tf.newaxis] + k[:, :, tf.newaxis]  # [B, H, Q, K, D]
    if pair_vectors is not None:
        both += pair_vectors
    u = score_vectors[:, tf.newaxis, tf.newaxis]  # [H, 1, 1, D]
    return tf.reduce_sum(tf.tanh(both) * u, -1)
