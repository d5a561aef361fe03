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

import keras
import numpy as np
import tensorflow as tf

from relpos_tf import errors
from relpos_tf.layers import checks
from relpos_tf.layers import masks
from relpos_tf.layers.positions import scheme


@keras.saving.register_keras_serializable(package="relpos_tf")
class HeadWindow(scheme.Scheme):
    """Attention to the keys and values of N heads, with one softmax.

    Logits and weights are `[B, H, Q, N, K]` tensors, N times as large as
    without this scheme. Masks and summands of other schemes are those of the
    query's head for all N heads, and so are the vectors of `score`.

    Args:
        heads: int, N, odd: the query's head and N // 2 heads on each side. A
            head beyond the first or the last is left out.
        score: None, or a scheme that computes a logit for each key, as
            `shaw.Shaw` does. It scores the keys of each head by themselves.

    Raises:
        UserError: an even N, or another `score`.

    Reference:
        [Yang et al., 2019](https://arxiv.org/abs/1904.03107), section 3.
    """

    computes = True
    name = "attention to the keys of other heads"

    def __init__(self, heads: int, score: scheme.Scheme | None = None):
        checks.integer("heads", heads, least=1)
        if heads % 2 == 0:
            raise errors.UserError(
                "`heads` must be odd: a head and as many on each side. "
                f"Received: {heads}."
            )
        score = scheme.restored(score)
        if score is not None and not _scores_keys(score):
            raise errors.UserError(
                "`score` must be None or a scheme that computes one logit for "
                "each key; list others beside this one. "
                f"Received: {getattr(score, 'name', score)!r}."
            )
        self.heads = int(heads)
        self.score = score
        self._score = scheme.Scheme() if score is None else score

    def build(self, layer):
        head = np.arange(layer.num_heads)[:, np.newaxis] + self._offsets()
        is_head = (head >= 0) & (head < layer.num_heads)  # [H, N]
        bias = np.where(is_head, 0.0, masks.NEGATIVE).astype(np.float32)
        self._bias = bias[:, np.newaxis, :, np.newaxis]  # [H, 1, N, 1]
        self._score.build(layer)

    def weight_shapes(self, num_heads, depth):
        return self._score.weight_shapes(num_heads, depth)

    def scale(self, depth):
        return self._score.scale(depth)

    def logits(self, q, keys_values, pairs):
        logits = [
            self._score.logits(q, neighbour, pairs)  # [B, H, Q, K]
            for neighbour in self._neighbours(keys_values)
        ]
        return tf.stack(logits, 3)  # [B, H, Q, N, K]

    def weights(self, logits, bias, dtype):
        if logits.dtype != tf.float64:
            logits = tf.cast(logits, tf.float32)
        logits += tf.cast(self._bias, logits.dtype)
        if bias is not None:
            if bias.shape.rank > 0:
                bias = tf.expand_dims(bias, -2)  # [B, H, Q, 1, K]
            logits += tf.cast(bias, logits.dtype)
        shape = tf.shape(logits)
        rows = tf.concat([shape[:3], [shape[3] * shape[4]]], 0)
        weights = tf.nn.softmax(tf.reshape(logits, rows))  # [B, H, Q, N * K]
        return tf.cast(tf.reshape(weights, shape), dtype)

    def weights_of_keys(self, weights):
        return tf.reduce_sum(weights, 3)  # [B, H, Q, K]

    def output(self, weights, keys_values, pairs, sums_to_one):
        del sums_to_one  # the weights of one head do not
        first, *others = (
            self._score.output(
                weights[:, :, :, n], neighbour, pairs, sums_to_one=False
            )
            for n, neighbour in enumerate(self._neighbours(keys_values))
        )
        return sum(others, first)  # [B, H, Q, D]

    def _offsets(self):
        """Returns the distances of the N heads: -1, 0, 1 of three."""
        return np.arange(self.heads) - self.heads // 2

    def _neighbours(self, keys_values):
        """Yields keys and values whose head h is the neighbour of head h.

        Heads beyond the ends are zeros, which `weights` masks.
        """
        side = self.heads // 2
        padded = [
            tf.pad(x, [[0, 0], [side, side], [0, 0], [0, 0]])
            for x in keys_values
        ]
        count = keys_values.values.shape[1]
        for first in range(self.heads):
            yield type(keys_values)(
                *(x[:, first : first + count] for x in padded)
            )

    def tables(self):
        return self._score.tables()

    def numbers_per_pair(self, logits, num_heads, depth):
        each = self._score.numbers_per_pair(logits, num_heads, depth)
        return self.heads * each

    def summary(self):
        names = [] if self.score is None else [self.score.summary()]
        return " and ".join([*names, f"keys of {self.heads} heads"])

    def get_config(self):
        score = self.score
        return {
            "heads": self.heads,
            "score": score and scheme.serialized([score])[0],
        }


def _scores_keys(score):
    """Returns whether a scheme computes logits `[B, H, Q, K]`."""
    if not isinstance(score, scheme.Scheme) or not score.computes:
        return False
    return type(score).weights is scheme.Scheme.weights
