"""Additive attention (Bahdanau et al., 2014).

Shapes: B batch, H heads, Q queries, K keys, D depth per head.
"""

import keras
import tensorflow as tf

from relpos_tf.layers.positions import scheme


@keras.saving.register_keras_serializable(package="relpos_tf")
class Additive(scheme.Scheme):
    """Logits of a small network instead of a dot product, for each head.

        e[i, j] = u . tanh(q[i] + k[j] + a[i, j])

    Unlike a dot product, the sum is a `[B, H, Q, K, D]` tensor, which is
    expensive for long sentences.

    Args:
        relative: None or a `shaw.Shaw`. Its vectors of the keys are added to
            queries and keys (a), and its vectors of the values to the values.

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
        sums = q[:, :, :, tf.newaxis]  # [B, H, Q, 1, D]
        sums += keys_values.key_rows()[:, :, tf.newaxis]  # [B, H, Q, K, D]
        if self.relative is not None:
            a = self.relative.key_vectors(pairs)
            if a is not None:
                sums += a
        u = self._compute_value(self._vectors)[:, tf.newaxis, tf.newaxis]
        return tf.reduce_sum(tf.tanh(sums) * u, -1)

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
