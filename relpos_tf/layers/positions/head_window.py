"""Attention to the keys of neighbouring heads, too.

With a window of positions (`window.Window`), this is the two-dimensional
convolutional self-attention of Yang et al. (2019). Without this scheme, the
window alone is their one-dimensional one:

    1D  query i of head h attends to the keys j of head h, |j - i| <= M // 2
    2D  ... to the keys j of the heads g, |j - i| <= M // 2, |g - h| <= N // 2

and to their values, with one softmax over all these keys:

    e[h, i, g, j] = q[h, i] . key[g, j] / sqrt(D)
    z[h, i]       = sum_{g, j} softmax(e[h, i])[g, j] value[g, j]

From the paper: one softmax, no new weights, windows in the lowest three layers
of the encoder only, and M = 11, N = 3. Decided here: heads and positions beyond
the ends are left out, so that a head or token at an end has fewer keys. (The
authors' published program leaves out positions, too. Beyond the last head it
takes the keys of the first head and the values of the last one once more.)

Shapes: B batch, H heads, N heads of a window, Q queries, K keys, D depth per
head.
"""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from relpos_tf import errors
from relpos_tf.layers import checks
from relpos_tf.layers import pairs as pairs_lib
from relpos_tf.layers.positions import scheme


@keras.saving.register_keras_serializable(package="relpos_tf")
class HeadWindow(scheme.Scheme):
    """Attention to the keys and values of N heads, with one softmax.

    Logits and weights are `[B, H, Q, N * K]` tensors, N times as large as
    without this scheme. Masks and summands of other schemes are those of the
    query's head for all N heads.

    Args:
        heads: int, N, odd: the query's head and N // 2 heads on each side. A
            head beyond the first or the last is left out.

    Raises:
        UserError: an even N.

    Reference:
        [Yang et al., 2019](https://arxiv.org/abs/1904.03107), section 3.
    """

    def __init__(self, heads: int):
        self.heads = checks.integer("heads", heads, least=1)
        if heads % 2 == 0:
            raise errors.UserError(
                "`heads` must be odd: a head and as many on each side. "
                f"Received: {heads}."
            )

    def attend(self, layer, q, keys_values, pairs, bias, training) -> Any:
        neighbours = list(self._neighbours(keys_values))
        logits = []
        for keys, _, is_head in neighbours:
            content = tf.matmul(q, keys, transpose_b=True)
            own = layer.logits(content, q, pairs)  # [B, H, Q, K]
            own = pairs_lib.add_bias(own, pairs_lib.to_bias(is_head))
            logits.append(pairs_lib.add_bias(own, bias))
        dtype = keys_values.values.dtype
        weights = pairs_lib.softmax(tf.concat(logits, -1), None, dtype)
        weights = tf.split(weights, self.heads, -1)
        outputs = [
            layer.weighted_values(own, values, pairs, training)
            for own, (_, values, _) in zip(weights, neighbours, strict=True)
        ]
        return tf.add_n(outputs), tf.add_n(weights)

    def _neighbours(self, keys_values):
        """Yields keys and values whose head h is a neighbour of head h.

        With a mask `[H, 1, 1]` of the heads that have this neighbour.
        """
        side, count = self.heads // 2, keys_values.keys.shape[1]
        padded = [
            tf.pad(x, [[0, 0], [side, side], [0, 0], [0, 0]])
            for x in keys_values
        ]
        for first in range(self.heads):
            head = np.arange(count) + first - side
            is_head = (head >= 0) & (head < count)
            keys, values = (x[:, first : first + count] for x in padded)
            yield keys, values, is_head[:, np.newaxis, np.newaxis]

    def summary(self) -> str:
        return f"keys of {self.heads} heads"
