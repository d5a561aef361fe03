"""Scores of other kinds than a dot product.

Shapes: B batch, H heads, Q queries, K keys, D depth per head.
"""

import copy
from typing import Any

import keras
import tensorflow as tf

from relpos_tf import errors
from relpos_tf.layers import pairs as pairs_lib
from relpos_tf.layers.positions import scheme
from relpos_tf.layers.positions import shaw


class Sums(scheme.Scheme):
    """Base of schemes that score q[i] + k[j] + a[i, j].

    Args:
        relative: None or a `shaw.Shaw`. Its vectors of the keys are added to
            queries and keys (a), and its vectors of the values to the values.
    """

    def __init__(self, relative: shaw.Shaw | None = None):
        self.relative = scheme.restored_from(relative)
        if not isinstance(self.relative, shaw.Shaw | None):
            raise errors.UserError(
                "`relative` must be None or a shaw.Shaw, whose vectors count. "
                f"Received: {relative!r}."
            )

    def build(self, layer: keras.layers.Layer) -> None:
        self._own = copy.copy(self.relative)
        if self._own is not None:
            self._own.build(layer)

    def sums(
        self, layer: keras.layers.Layer, q: tf.Tensor, keys: tf.Tensor, pairs
    ) -> tf.Tensor:
        """Returns q[i] + k[j] + a[i, j], `[B, H, Q, K, D]`."""
        q = q * layer.depth**0.5  # not scaled, because tanh is bounded
        sums = q[:, :, :, tf.newaxis] + keys[:, :, tf.newaxis]
        if self._own is not None:
            sums += self._own.pair_vectors("keys", pairs)
        return sums

    def get_config(self) -> dict[str, Any]:
        own = self.relative
        return {"relative": own and scheme.serialized([own])[0]}


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

    name = "additive score"

    def build(self, layer: keras.layers.Layer) -> None:
        self._vectors = layer.add_scheme_weight(
            "score_vectors",
            (layer.num_heads, layer.depth),
            scheme.glorot_uniform(layer.depth + 1),
        )
        super().build(layer)

    def attend(self, layer, q, keys_values, pairs, bias, training) -> Any:
        keys, values = keys_values
        u = layer.compute_value(self._vectors)[:, tf.newaxis, tf.newaxis]
        sums = self.sums(layer, q, keys, pairs)
        logits = tf.reduce_sum(tf.tanh(sums) * u, -1)  # [B, H, Q, K]
        logits = layer.logits(logits, q, pairs)
        weights = pairs_lib.softmax(logits, bias, values.dtype)
        others = () if self._own is None else (self._own,)
        arguments = weights, values, pairs, training, others
        return layer.weighted_values(*arguments), weights


@keras.saving.register_keras_serializable(package="relpos_tf")
class FeatureWise(Sums):
    """A logit and a weight for each feature of a value, not for each value.

        e[i, j] = c tanh((q[i] + k[j] + a[i, j]) / c), a vector; c = 5
        z[i]    = sum_j softmax(e[i])[j] * (value[j] + a_value[i, j])

    The softmax is over the keys j, for each feature. There are no new weights:
    the projections take the place of the paper's matrices, and its bias vector
    is left out, as all biases of attention are. The paper has one head and
    weighs the inputs of the keys; here, values are weighed. The weights that
    the layer returns are the means over the features.

    Args:
        relative: None or a `shaw.Shaw`. Its vectors of the keys are added to
            queries and keys (a), and its vectors of the values to the values.

    Raises:
        UserError: the layer has another scheme with vectors of pairs.

    Reference:
        [Shen et al., 2018](https://arxiv.org/abs/1709.04696), DiSAN, section
        on directional self-attention.
    """

    name = "feature-wise attention"
    _C = 5.0

    def build(self, layer: keras.layers.Layer) -> None:
        for one in layer.positions:
            if one.overrides("logits") or one.overrides("output"):
                raise errors.UserError(
                    "Beside FeatureWise, no scheme can add products with one "
                    "logit or weight of a pair: FeatureWise(Shaw(k)) adds "
                    f"Shaw's vectors. Received: {one.summary()}."
                )
        super().build(layer)

    def attend(self, layer, q, keys_values, pairs, bias, training) -> Any:
        keys, values = keys_values
        sums = self.sums(layer, q, keys, pairs)
        logits = self._C * tf.tanh(sums / self._C)  # [B, H, Q, K, D]
        if bias is not None and bias.shape.rank > 0:
            bias = bias[..., tf.newaxis]  # [B, H, Q, K, 1]
        weights = pairs_lib.softmax(logits, bias, values.dtype, axis=3)
        dropped = layer.weights_dropout(weights, training=training)
        values = values[:, :, tf.newaxis]  # [B, H, 1, K, D]
        if self._own is not None:
            values += self._own.pair_vectors("values", pairs)
        output = tf.reduce_sum(dropped * values, 3)  # [B, H, Q, D]
        return output, tf.reduce_mean(weights, -1)  # [B, H, Q, K]
