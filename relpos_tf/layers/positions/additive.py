"""Scores of the sum of a query and a key: one for each key, or each feature.

Unlike a dot product, the sum is a `[B, H, Q, K, D]` tensor, which is expensive
for long sentences.

Shapes: B batch, H heads, Q queries, K keys, D depth per head.
"""

import keras
import tensorflow as tf

from relpos_tf.layers.positions import scheme


class Sums(scheme.Scheme):
    """Base of schemes that score q[i] + k[j] + a[i, j].

    Args:
        relative: None or a `shaw.Shaw`. Its vectors of the keys are added to
            queries and keys (a), and its vectors of the values to the values.
    """

    computes = True
    score = ""  # a few words

    def __init__(self, relative: scheme.Scheme | None = None):
        self.relative = scheme.restored(relative)

    def build(self, layer):
        if self.relative is not None:
            self.relative.build(layer)

    def weight_shapes(self, num_heads, depth):
        if self.relative is None:
            return {}
        return self.relative.weight_shapes(num_heads, depth)

    def scale(self, depth):
        del depth
        return 1.0  # tanh is bounded

    def sums(self, q, keys_values, pairs):
        """Returns q[i] + k[j] + a[i, j], `[B, H, Q, K, D]`."""
        sums = q[:, :, :, tf.newaxis]  # [B, H, Q, 1, D]
        sums += keys_values.key_rows()[:, :, tf.newaxis]  # [B, H, Q, K, D]
        if self.relative is not None:
            a = self.relative.pair_vectors("keys", pairs)
            if a is not None:
                sums += a
        return sums

    def tables(self):
        return {} if self.relative is None else self.relative.tables()

    def numbers_per_pair(self, logits, num_heads, depth):
        if self.relative is None:
            return logits * depth
        return logits * depth + self.relative.vector_numbers(num_heads, depth)

    def summary(self):
        names = [] if self.relative is None else [self.relative.summary()]
        return " and ".join([*names, self.score])

    def get_config(self):
        if self.relative is None:
            return {"relative": None}
        return {"relative": scheme.serialized([self.relative])[0]}


@keras.saving.register_keras_serializable(package="relpos_tf")
class Additive(Sums):
    """Logits of a small network instead of a dot product, for each head.

        e[i, j] = u . tanh(q[i] + k[j] + a[i, j])

    Args:
        relative: None or a `shaw.Shaw`. Its vectors of the keys are added to
            queries and keys (a), and its vectors of the values to the values.

    Reference:
        [Bahdanau et al., 2014](https://arxiv.org/abs/1409.0473), appendix A;
        [Shaw et al., 2018](https://arxiv.org/abs/1803.02155), equations 3, 4.
    """

    name = "score other than a dot product"
    score = "additive score"

    def build(self, layer):
        self._compute_value = layer.compute_value
        self._vectors = layer.add_uniform(
            "score_vectors", (layer.num_heads, layer.depth), layer.depth + 1
        )
        super().build(layer)

    def weight_shapes(self, num_heads, depth):
        shapes = super().weight_shapes(num_heads, depth)
        return {"score_vectors": (num_heads, depth)} | shapes

    def logits(self, q, keys_values, pairs):
        u = self._compute_value(self._vectors)[:, tf.newaxis, tf.newaxis]
        return tf.reduce_sum(tf.tanh(self.sums(q, keys_values, pairs)) * u, -1)

    def output(self, weights, keys_values, pairs, sums_to_one):
        if self.relative is None:
            return super().output(weights, keys_values, pairs, sums_to_one)
        return self.relative.output(weights, keys_values, pairs, sums_to_one)


@keras.saving.register_keras_serializable(package="relpos_tf")
class FeatureWise(Sums):
    """A logit and a weight for each feature of a value, not for each value.

        e[i, j] = c tanh((q[i] + k[j] + a[i, j]) / c), a vector; c = 5
        z[i]    = sum_j softmax(e[i])[j] * (value[j] + a_value[i, j])

    The softmax is over the keys j, for each feature. There are no new weights:
    the projections take the place of the paper's matrices, and its bias vector
    is left out, as all biases of attention are. The paper has one head and
    weighs the inputs of the keys; here, values are weighed.

    Args:
        relative: None or a `shaw.Shaw`. Its vectors of the keys are added to
            queries and keys (a), and its vectors of the values to the values.

    Reference:
        [Shen et al., 2018](https://arxiv.org/abs/1709.04696), DiSAN, section
        on directional self-attention.
    """

    name = "weights of single features"
    score = "feature-wise attention"
    _C = 5.0

    def logits(self, q, keys_values, pairs):
        sums = self.sums(q, keys_values, pairs)
        return self._C * tf.tanh(sums / self._C)  # [B, H, Q, K, D]

    def weights(self, logits, bias, dtype):
        if logits.dtype != tf.float64:
            logits = tf.cast(logits, tf.float32)
        if bias is not None:
            if bias.shape.rank > 0:
                bias = bias[..., tf.newaxis]  # [B, H, Q, K, 1]
            logits += tf.cast(bias, logits.dtype)
        return tf.cast(tf.nn.softmax(logits, axis=3), dtype)

    def weights_of_keys(self, weights):
        return tf.reduce_mean(weights, -1)  # [B, H, Q, K]

    def output(self, weights, keys_values, pairs, sums_to_one):
        del sums_to_one
        values = keys_values.values[:, :, tf.newaxis]  # [B, H, 1, K, D]
        if self.relative is not None:
            a = self.relative.pair_vectors("values", pairs)
            if a is not None:
                values += a
        return tf.reduce_sum(weights * values, 3)  # [B, H, Q, D]
