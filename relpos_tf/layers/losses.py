"""The training loss.

Shapes: B batch, T target length, N = B*T tokens, V vocabulary, F features.
"""

import math

import tensorflow as tf

from relpos_tf.layers import projections
from relpos_tf.layers import row_blocks


def padded_cross_entropy(logits, labels, label_smoothing):
    """Sums the smoothed cross-entropy of all labels that are not padding.

    The label gets the probability `1 - label_smoothing`, every other class an
    equal share of the rest. As in tensor2tensor, the least possible value is
    subtracted, so that a perfect prediction costs 0 nats.

    The sum and the count are apart because a loss over several replicas is
    the sum of sums over the sum of counts, and not a mean of means.

    Where the one is longer than the other, as after a decoding of its own
    length, the shorter is padded with zeros: a label without logits then
    costs as much as a guess among all classes.

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
    losses = _smoothed_cross_entropy(
        tf.reshape(logits, [-1, vocab_size]),
        flat_labels,
        label_smoothing / (vocab_size - 1),
    )  # [N]
    return _over_tokens(losses, flat_labels, label_smoothing, vocab_size)


def projected_cross_entropy(features, table, labels, label_smoothing):
    """Returns `padded_cross_entropy` of `features` times `table`.

    Of a large vocabulary, the logits and their gradient are by far the largest
    matrices of a training step. Here the softmax alone is kept, and what its
    gradient would be multiplied with is corrected for the labels instead.

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
        flat_labels,
        label_smoothing / (vocab_size - 1),
    )  # [N]
    return _over_tokens(losses, flat_labels, label_smoothing, vocab_size)


def token_losses(features, table, labels):
    """Scores tokens one by one, for what needs no gradient.

    However many tokens there are, only so many have their logits in memory at
    once as `row_blocks` says.

    Args:
        features: floating-point `[B, T, F]` tensor.
        table: `[V, F]` tensor in the same dtype.
        labels: int32 `[B, T]` tensor.

    Returns:
        A pair: the cross-entropy of each label, float32 `[B, T]`, without
        smoothing; and the most probable id at its place, int32 `[B, T]`.

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
    """Sums `[N]` losses, less the least possible, over all but padding."""
    losses -= _least_cross_entropy(label_smoothing, vocab_size)
    counts = tf.cast(tf.not_equal(labels, 0), tf.float32)  # [N]
    return tf.reduce_sum(losses * counts), tf.reduce_sum(counts)


def _projected_cross_entropy(features, table, labels, low):
    """`_smoothed_cross_entropy` of the products of `[N, F]` and `[V, F]`.

    The gradient of a loss in its logits is, with the softmax p,

        p - (c - low) one_hot(y) - low

    and the product of `low` with the table is one row, for all tokens the same.
    """
    vocab_size = table.shape[0]
    labels = tf.cast(labels, tf.int32)

    @tf.custom_gradient
    def cross_entropy(features, table):
        logits = tf.matmul(features, table, transpose_b=True)  # [N, V]
        logits = tf.cast(logits, tf.float32)
        softmax = tf.nn.softmax(logits)
        label_logits = tf.gather(logits, labels, batch_dims=1)  # [N]
        shares = tf.gather(softmax, labels, batch_dims=1)
        hard = _minus_log(shares, logits, labels)  # [N]
        column_sums = projections.sum_rows(tf.cast(table, tf.float32))  # [F]
        sums = tf.reduce_sum(tf.cast(features, tf.float32) * column_sums, -1)
        every = vocab_size * (hard + label_logits) - sums
        # 1 - V low = c - low: the weight of the label beyond the others'.
        beyond = 1 - vocab_size * low

        def gradient(upstream):
            weights = upstream[:, tf.newaxis]  # [N, 1]
            weighted = weights * tf.cast(features, tf.float32)  # [N, F]
            by_features, by_table = _slope_products(
                softmax, labels, beyond, table, tf.cast(weighted, table.dtype)
            )
            by_features = tf.cast(by_features, tf.float32) - low * column_sums
            total = low * projections.sum_rows(weighted)  # [F]
            return (
                tf.cast(weights * by_features, features.dtype),
                by_table - tf.cast(total, table.dtype),
            )

        return beyond * hard + low * every, gradient

    return cross_entropy(features, table)


def _slope_products(softmax, labels, beyond, table, weighted):
    """Multiplies `p - beyond one_hot(y)`, p being the `softmax`, `[N, V]`.

    Returns:
        Its products with the table, `[N, F]`, and, transposed, with `weighted`
        `[N, F]`: `[V, F]`.
    """
    rows = labels[:, tf.newaxis]  # [N, 1]
    if table.dtype == tf.bfloat16:  # else products would round what cancels
        places = tf.concat([tf.range(tf.size(labels))[:, tf.newaxis], rows], 1)
        shares = tf.fill(tf.shape(labels), beyond)
        slope = tf.tensor_scatter_nd_sub(softmax, places, shares)
        slope = tf.cast(slope, table.dtype)
        by_features = tf.matmul(slope, table)
        return by_features, tf.matmul(slope, weighted, transpose_a=True)
    # The one-hot vectors pick rows; to change p would copy it.
    softmax = tf.cast(softmax, table.dtype)
    by_features = tf.matmul(softmax, table) - beyond * tf.gather(table, labels)
    by_table = tf.matmul(softmax, weighted, transpose_a=True)
    return by_features, tf.tensor_scatter_nd_sub(
        by_table, rows, beyond * weighted
    )


def _minus_log(probabilities, logits, labels):
    """Returns minus the logarithm of the labels' probabilities: `[N]`.

    A probability that float32 cannot hold is found in another, slower way.
    """
    return tf.cond(
        tf.reduce_all(probabilities > 1e-30),
        lambda: -tf.math.log(probabilities),
        lambda: tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits),
    )


def _smoothed_cross_entropy(logits, labels, low):
    """Cross-entropy of `[N, V]` logits, `low` for each class but the label.

    With confidence c = 1 - (V-1) low for the label y, and the logarithm of
    the partition function z, the loss is

        (c - low) (z - logits[y]) + low sum_v (z - logits[v])

    so neither a one-hot matrix nor a matrix of log-probabilities is needed.
    """
    vocab_size = logits.shape[-1]

    @tf.custom_gradient
    def cross_entropy(logits):
        # The fused kernel returns z - logits[y] and softmax - one_hot(y).
        hard, slope = tf.raw_ops.SparseSoftmaxCrossEntropyWithLogits(
            features=logits, labels=labels
        )
        label_logits = tf.gather(logits, labels, batch_dims=1)  # [N]
        log_partition = hard + label_logits
        every = vocab_size * log_partition - tf.reduce_sum(logits, -1)
        # 1 - V low = c - low: the weight of the label beyond the others'.
        losses = (1 - vocab_size * low) * hard + low * every  # [N]

        def gradient(upstream):
            dense = (slope - low) * upstream[:, tf.newaxis]  # [N, V]
            rows = tf.range(tf.shape(labels)[0], dtype=labels.dtype)
            places = tf.stack([rows, labels], axis=1)  # [N, 2]
            return tf.tensor_scatter_nd_add(
                dense, places, vocab_size * low * upstream
            )

        return losses, gradient

    return cross_entropy(logits)


def _least_cross_entropy(label_smoothing, vocab_size):
    """Returns the entropy of the smoothed label, in nats."""
    if label_smoothing == 0.0:
        return 0.0
    confidence = 1.0 - label_smoothing
    low = label_smoothing / (vocab_size - 1)
    return -(
        confidence * math.log(confidence)
        + (vocab_size - 1) * low * math.log(low + 1e-20)
    )
