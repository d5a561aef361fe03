"""Attention of the hypotheses of a beam search, those of a source together.

Hypotheses that continue the same one share its past. So the keys and values
of every step stay where they were written, whoever continues whom, and
`ancestors` says which of them a hypothesis has: to reorder a search moves one
number for each position instead of all keys and values.

Shapes: B sources, n hypotheses of each, T positions so far, H heads, K keys
(T * n of hypotheses, or those of a source), D depth per head, F features.
"""

from typing import NamedTuple

import tensorflow as tf

from relpos_tf.layers import additive
from relpos_tf.layers import relative

NEGATIVE = -1e9  # the logit of a forbidden pair; T2T's value


class BeamKeysValues(NamedTuple):
    """Keys and values that all hypotheses of a source may choose from.

    Attributes:
        keys: `[B, H, D, K]`, transposed as the product with queries wants it.
        values: `[B, H, K, D]`.
    """

    keys: tf.Tensor
    values: tf.Tensor

    def extend(self, new):
        """Appends those of a step, n for each source."""
        return BeamKeysValues(
            tf.concat([self.keys, new.keys], 3),
            tf.concat([self.values, new.values], 2),
        )


class Past(NamedTuple):
    """What hypotheses at one position attend to.

    Attributes:
        bias: float, broadcasts to `[B, H, n, K]`: 0 where a hypothesis may
            look, -1e9 where not.
        distances: int32 `[K]`: the position of each key minus that of the
            hypotheses. None where positions play no part.
    """

    bias: tf.Tensor
    distances: tf.Tensor | None = None


def past_of(ancestors, window=0):
    """Returns what hypotheses see of one another's past.

    Args:
        ancestors: int32 `[B, n, T]`: which of the n hypotheses at position t a
            hypothesis goes back to; at the last position, each to itself.
        window: int. How many places back they see; 0 for all.

    Returns:
        A `Past` of K = T * n keys, position by position.

    Example:

    >>> past = past_of(tf.constant([[[0, 0], [0, 1]]]))  # both continue 0
    >>> (past.bias[0, 0] == 0).numpy().astype(int).tolist()
    [[1, 0, 1, 0], [1, 0, 0, 1]]
    >>> past.distances.numpy().tolist()
    [-1, -1, 0, 0]
    """
    batch, n, length = tf.unstack(tf.shape(ancestors))
    n = n if ancestors.shape[1] is None else ancestors.shape[1]
    own = ancestors[..., tf.newaxis] == tf.range(n)  # [B, n, T, n]
    distances = tf.range(length) - (length - 1)  # [T]
    if window:
        own &= (distances >= -window)[:, tf.newaxis]
    own = tf.reshape(own, [batch, 1, n, length * n])
    return Past(tf.where(own, 0.0, NEGATIVE), tf.repeat(distances, n))


def beam_attention(
    q, keys_values, key_table, value_table, past, score_vectors=None
):
    """Attends from hypotheses at one position, as equations 3 and 4 say.

    All queries have the same position, so each key has one vector of the table
    for all of them, and the relative terms are plain products.

    Args:
        q: `[B, H, n, D]` queries, scaled as `relative.relative_attention` says.
        keys_values: `BeamKeysValues`.
        key_table: As for `relative.relative_attention`.
        value_table: The same for the values.
        past: `Past`.
        score_vectors: As for `relative.relative_attention`.

    Returns:
        `[B, H, n, D]`.

    Reference:
        [Shaw et al., 2018](https://arxiv.org/abs/1803.02155), equations 3-5.
    """
    rows = None
    if key_table is not None:
        rows = _rows(key_table, past.distances)  # [K, D] or [H, K, D]
    if score_vectors is not None:
        keys = tf.transpose(keys_values.keys, [0, 1, 3, 2])
        if rows is not None:
            rows = rows[..., tf.newaxis, :, :]  # the same for all n
        logits = additive.logits(q, keys, score_vectors, rows)
    else:
        logits = tf.matmul(q, keys_values.keys)  # [B, H, n, K]
        if rows is not None:
            logits += relative.times_table(q, rows, transpose=True)
    if logits.dtype != tf.float64:
        logits = tf.cast(logits, tf.float32)
    weights = tf.nn.softmax(logits + tf.cast(past.bias, logits.dtype))
    weights = tf.cast(weights, q.dtype)  # [B, H, n, K]
    output = tf.matmul(weights, keys_values.values)  # [B, H, n, D]
    if value_table is not None:
        rows = _rows(value_table, past.distances)
        output += relative.times_table(weights, rows, transpose=False)
    return output


def _rows(table, distances):
    """Looks up the vectors of distances: `[K, D]` or `[H, K, D]`."""
    k = table.shape[-2] // 2
    row = tf.clip_by_value(distances, -k, k) + k  # [K]
    # As in `relative`: a gather would have a sparse gradient.
    one_hot = tf.one_hot(row, 2 * k + 1, dtype=table.dtype)  # [K, R]
    if table.shape.rank == 2:
        return tf.matmul(one_hot, table)
    return tf.einsum("kr,hrd->hkd", one_hot, table)
