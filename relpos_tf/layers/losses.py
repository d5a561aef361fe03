"""The training loss: smoothed cross-entropy.

The label y of a token gets the probability c = 1 - (V-1) l, and every other
class the probability l. With the logits g and z = log(sum_v exp(g[v])), minus
the logarithm of the softmax's p[v] is z - g[v], and the loss is

    L = c (z - g[y]) + l sum_{v != y} (z - g[v])
      = (1 - V l) (z - g[y]) + l (V z - sum_v g[v])

so that neither a one-hot matrix nor a matrix of log-probabilities is needed.
Its gradient in the logits is

    dL / dg[v] = p[v] - l - (1 - V l) [v = y]

Shapes: B batch, T target length, N = B*T tokens, V vocabulary, F features.
"""

import math

import tensorflow as tf

from relpos_tf.layers import projections
from relpos_tf.layers import row_blocks


def padded_cross_entropy(
    logits: tf.Tensor, labels: tf.Tensor, label_smoothing: float
) -> tuple[tf.Tensor, tf.Tensor]:
    """Sums the smoothed cross-entropy of all labels that are not padding.

    As in tensor2tensor, the least possible value is subtracted, so that a
    perfect prediction costs 0 nats. A loss over several replicas is the sum of
    their sums, divided by the sum of their counts.

    If logits and labels have different lengths, as after decoding, the shorter
    is padded with zeros: a label without logits costs as much as a guess.

    Args:
        logits: float32 `[B, T, V]` tensor.
        labels: integer `[B, T]` tensor; 0 is padding.
        label_smoothing: float in [0, 1).

    Returns:
        A pair of float32 scalars: the sum, in nats, and the number of labels
        that are not padding.

    Example:
    >>> total, count = padded_cross_entropy(
    ...     tf.zeros([1, 2, 4]), tf.constant([[3, 0]]), 0.0
    ... )
    >>> round(float(total), 4), float(count)
    (1.3863, 1.0)

    Reference:
        [Szegedy et al., 2016](https://arxiv.org/abs/1512.00567), section 7;
        Vaswani et al. (2017), section 5.4.
    """
    vocab_size = logits.shape[-1]
    missing = tf.shape(labels)[1] - tf.shape(logits)[1]
    logits = tf.pad(logits, [[0, 0], [0, tf.maximum(missing, 0)], [0, 0]])
    labels = tf.pad(labels, [[0, 0], [0, tf.maximum(-missing, 0)]])
    flat_labels = tf.reshape(labels, [-1])  # [N]
    flat = tf.reshape(logits, [-1, vocab_size])  # [N, V]
    low = label_smoothing / (vocab_size - 1)
    minus_log = tf.nn.sparse_softmax_cross_entropy_with_logits(
        flat_labels, flat
    )  # [N]
    label_logits = tf.gather(flat, flat_labels, batch_dims=1)
    sums = tf.reduce_sum(flat, -1)
    losses = _smoothed(minus_log, label_logits, sums, low, vocab_size)
    return _over_tokens(losses, flat_labels, label_smoothing, vocab_size)


def projected_cross_entropy(
    features: tf.Tensor,
    table: tf.Tensor,
    labels: tf.Tensor,
    label_smoothing: float,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns `padded_cross_entropy` of `features` times `table`.

    With a large vocabulary, the logits and their gradient are by far the
    largest matrices of a training step. Here the softmax alone is kept; the
    products of its gradient are corrected instead of the gradient itself.

    Args:
        features: floating-point `[B, T, F]` tensor.
        table: `[V, F]` tensor in the same dtype.
        labels: integer `[B, T]` tensor; 0 is padding.
        label_smoothing: float in [0, 1).

    Returns:
        As `padded_cross_entropy`.

    Example:
    >>> total, count = projected_cross_entropy(
    ...     tf.zeros([1, 2, 3]), tf.ones([4, 3]), tf.constant([[3, 0]]), 0.0
    ... )
    >>> round(float(total), 4), float(count)
    (1.3863, 1.0)
    """
    vocab_size = table.shape[0]
    flat_labels = tf.reshape(labels, [-1])  # [N]
    losses = _projected_cross_entropy(
        tf.reshape(features, [-1, features.shape[-1]]),
        table,
        tf.cast(flat_labels, tf.int32),
        label_smoothing / (vocab_size - 1),
    )  # [N]
    return _over_tokens(losses, flat_labels, label_smoothing, vocab_size)


def token_losses(
    features: tf.Tensor, table: tf.Tensor, labels: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Scores tokens one by one, without a gradient.

    The logits are in memory for a block of tokens at a time (`row_blocks`).

    Args:
        features: floating-point `[B, T, F]` tensor.
        table: `[V, F]` tensor in the same dtype.
        labels: int32 `[B, T]` tensor.

    Returns:
        A pair: the cross-entropy of each label, float32 `[B, T]`, without
        smoothing; and the most probable id, int32 `[B, T]`.

    Example:
    >>> loss, best = token_losses(
    ...     tf.ones([1, 1, 3]), tf.ones([4, 3]), tf.constant([[2]])
    ... )
    >>> round(float(loss[0, 0]), 4), int(best[0, 0])
    (1.3863, 0)
    """
    rows = tf.reshape(features, [-1, features.shape[-1]])  # [N, F]
    flat = tf.reshape(labels, [-1])  # [N]

    def score(start, end):
        logits = tf.matmul(rows[start:end], table, transpose_b=True)
        logits = tf.cast(logits, tf.float32)  # [N of the block, V]
        return (
            tf.nn.sparse_softmax_cross_entropy_with_logits(
                flat[start:end], logits
            ),
            tf.argmax(logits, axis=-1, output_type=tf.int32),
        )

    losses, best = row_blocks.by_blocks(
        score, tf.size(flat), table.shape[0], (tf.float32, tf.int32)
    )
    shape = tf.shape(labels)
    return tf.reshape(losses, shape), tf.reshape(best, shape)


def _over_tokens(losses, labels, label_smoothing, vocab_size):
    """Sums losses `[N]`, less the least possible one, without padding."""
    losses -= _least_cross_entropy(label_smoothing, vocab_size)
    counts = tf.cast(tf.not_equal(labels, 0), tf.float32)  # [N]
    return tf.reduce_sum(losses * counts), tf.reduce_sum(counts)


def _smoothed(minus_log, label_logits, sums, low, vocab_size):
    """Returns L `[N]` of z - g[y], g[y] and sum_v g[v], each `[N]`."""
    others = vocab_size * (minus_log + label_logits) - sums
    return (1 - vocab_size * low) * minus_log + low * others


def _projected_cross_entropy(features, table, labels, low):
    """Returns L of g = features table^T; `[N, F]`, `[V, F]` and `[N]`.

    With dg = p - l - (1 - V l) one_hot(y) and the upstream gradient u:

        d features[n] = u[n] (dg[n] table)
        d table       = dg^T (u features)

    The products with the constant l are those of column sums.
    """
    vocab_size = table.shape[0]

    @tf.custom_gradient
    def cross_entropy(features, table):
        logits = tf.matmul(features, table, transpose_b=True)  # [N, V]
        logits = tf.cast(logits, tf.float32)
        p = tf.nn.softmax(logits)
        label_logits = tf.gather(logits, labels, batch_dims=1)  # [N]
        label_p = tf.gather(p, labels, batch_dims=1)
        minus_log = _minus_log_of_labels(label_p, logits, labels)
        column_sums = projections.sum_rows(tf.cast(table, tf.float32))  # [F]
        sums = tf.reduce_sum(tf.cast(features, tf.float32) * column_sums, -1)

        def gradient(upstream):
            u = upstream[:, tf.newaxis]  # [N, 1]
            u_features = u * tf.cast(features, tf.float32)  # [N, F]
            d_features, d_table = _products_without_l(
                p,
                labels,
                1 - vocab_size * low,
                table,
                tf.cast(u_features, table.dtype),
            )
            d_features = tf.cast(d_features, tf.float32) - low * column_sums
            l_sums = low * projections.sum_rows(u_features)  # [F]
            return (
                tf.cast(u * d_features, features.dtype),
                d_table - tf.cast(l_sums, table.dtype),
            )

        losses = _smoothed(minus_log, label_logits, sums, low, vocab_size)
        return losses, gradient

    return cross_entropy(features, table)


def _products_without_l(p, labels, weight, table, u_features):
    """Multiplies the matrix p - weight one_hot(y), `[N, V]`.

    Returns:
        Its product with the table, `[N, F]`; and the product of its transpose
        with `u_features`, `[V, F]`.
    """
    rows = labels[:, tf.newaxis]  # [N, 1]
    if table.dtype == tf.bfloat16:  # rounded products would not cancel
        indices = tf.concat([tf.range(tf.size(labels))[:, tf.newaxis], rows], 1)
        weights = tf.fill(tf.shape(labels), weight)
        matrix = tf.tensor_scatter_nd_sub(p, indices, weights)
        matrix = tf.cast(matrix, table.dtype)
        return (
            tf.matmul(matrix, table),
            tf.matmul(matrix, u_features, transpose_a=True),
        )
    # The products with one-hot vectors are rows; a changed p would be a copy.
    p = tf.cast(p, table.dtype)
    by_features = tf.matmul(p, table) - weight * tf.gather(table, labels)
    by_table = tf.matmul(p, u_features, transpose_a=True)
    return by_features, tf.tensor_scatter_nd_sub(
        by_table, rows, weight * u_features
    )


def _minus_log_of_labels(probabilities, logits, labels):
    """Returns minus the logarithm of the labels' probabilities: `[N]`.

    If float32 cannot hold a probability, it uses a slower way.
    """
    return tf.cond(
        tf.reduce_all(probabilities > 1e-30),
        lambda: -tf.math.log(probabilities),
        lambda: tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits),
    )


def _least_cross_entropy(label_smoothing, vocab_size):
    """Returns the entropy of the smoothed label, in nats."""
    confidence = 1.0 - label_smoothing
    low = label_smoothing / (vocab_size - 1)
    return -(
        confidence * math.log(confidence)
        + (vocab_size - 1) * low * math.log(low + 1e-20)
    )
