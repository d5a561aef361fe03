"""R-Drop: the loss of two passes that should agree.

Two passes of a batch, with different dropout masks, give a token the logits
g1 and g2 and the softmaxes p1 and p2. Liang et al. (2021), equation 3, add up
the cross-entropies of both passes and alpha / 2 of the divergences KL(p1 || p2)
and KL(p2 || p1). Half of that has the scale of one pass:

    L = (L1 + L2) / 2 + (alpha / 4) K

L1 and L2 are the smoothed cross-entropies of `losses`. With d = g1 - g2, the
normalisers cancel in the sum of the divergences:

    K = sum_v p1[v] (log p1[v] - log p2[v]) + p2[v] (log p2[v] - log p1[v])
      = sum_v (p1[v] - p2[v]) d[v]
      = e1 - e2,      e1 = sum_v p1[v] d[v],   e2 = sum_v p2[v] d[v]

The gradient of p1[w] in g1[v] is p1[w] ([v = w] - p1[v]), therefore

    dK / dg1[v] = p1[v] - p2[v] + p1[v] (d[v] - e1)
    dK / dg2[v] = p2[v] - p1[v] - p2[v] (d[v] - e2)

With a = alpha / 4, the label y and the constant l of `losses`:

    dL / dg1[v] = p1[v] (1/2 + a + a (d[v] - e1)) - a p2[v]
                  - l / 2 - (1 - V l) [v = y] / 2
    dL / dg2[v] = p2[v] (1/2 + a - a (d[v] - e2)) - a p1[v]
                  - l / 2 - (1 - V l) [v = y] / 2

Shapes: B batch, T target length, N = B*T tokens of one pass, R of them in a
block, V vocabulary, F features.
"""

import tensorflow as tf

from relpos_tf.layers import losses
from relpos_tf.layers import projections
from relpos_tf.layers import row_blocks


def padded_loss(logits, labels, label_smoothing, alpha):
    """Sums the loss of two passes over all labels that are not padding.

    Args:
        logits: float32 `[2 B, T, V]` tensor: the first pass, then the second.
        labels: integer `[B, T]` tensor; 0 is padding.
        label_smoothing: float in [0, 1).
        alpha: float. The weight of the divergences.

    Returns:
        A pair of float32 scalars: the sum of L, which is to be minimised; and
        the sum of (L1 + L2) / 2, which is comparable to the loss of one pass.

    Example:

    >>> one, other = tf.zeros([1, 2, 4]), tf.ones([1, 2, 4])
    >>> total, cross_entropy = padded_loss(
    ...     tf.concat([one, other], 0), tf.constant([[3, 0]]), 0.0, 5.0
    ... )
    >>> round(float(total), 4), round(float(cross_entropy), 4)
    (1.3863, 1.3863)

    Reference:
        [Liang et al., 2021](https://arxiv.org/abs/2106.14448), equations 1-3.
    """
    both = tf.concat([labels, labels], 0)  # [2 B, T]
    total, _ = losses.padded_cross_entropy(logits, both, label_smoothing)
    cross_entropy = total / 2
    first, second = tf.split(logits, 2)  # [B, T, V]
    p_first, p_second = tf.nn.softmax(first), tf.nn.softmax(second)
    divergences = tf.reduce_sum((p_first - p_second) * (first - second), -1)
    counts = tf.cast(tf.not_equal(labels, 0), tf.float32)  # [B, T]
    consistency = tf.reduce_sum(divergences * counts)
    return cross_entropy + alpha / 4 * consistency, cross_entropy


def projected_loss(features, table, labels, label_smoothing, alpha):
    """Returns `padded_loss` of `features` times `table`.

    The gradients are computed with the loss, for a block of tokens at a time.
    So no matrix of all tokens and the vocabulary is ever in memory.

    Args:
        features: floating-point `[2 B, T, F]` tensor: the first pass, then the
            second.
        table: `[V, F]` tensor in the same dtype.
        labels: integer `[B, T]` tensor; 0 is padding.
        label_smoothing: float in [0, 1).
        alpha: float. The weight of the divergences.

    Returns:
        As `padded_loss`. The second has no gradient.

    Example:

    >>> features = tf.concat([tf.zeros([1, 2, 3]), tf.ones([1, 2, 3])], 0)
    >>> total, cross_entropy = projected_loss(
    ...     features, tf.ones([4, 3]), tf.constant([[3, 0]]), 0.0, 5.0
    ... )
    >>> round(float(total), 4), round(float(cross_entropy), 4)
    (1.3863, 1.3863)
    """
    rows = tf.reshape(features, [2, -1, features.shape[-1]])  # [2, N, F]
    labels = tf.cast(tf.reshape(labels, [-1]), tf.int32)  # [N]
    return _loss(rows, table, labels, label_smoothing, alpha)


def _loss(rows, table, labels, label_smoothing, alpha):
    """Returns both sums for `[2, N, F]`, `[V, F]` and `[N]`."""
    in_xla = row_blocks.in_xla()

    @tf.custom_gradient
    def loss(rows, table):
        is_token = tf.not_equal(labels, 0)
        if in_xla:  # where no shape may depend on the number of tokens
            tokens = tf.range(tf.size(labels))
        else:
            tokens = tf.cast(tf.where(is_token)[:, 0], tf.int32)

        def block(start, end):
            own = tokens[start:end]
            return _block(
                tf.gather(rows, own, axis=1),
                table,
                tf.gather(labels, own),
                label_smoothing,
                alpha,
            )

        over_blocks = _at_once if in_xla else _over_blocks
        sums, *d_rows, d_table = over_blocks(
            block, tf.size(tokens), table.shape
        )
        d_rows = [
            tf.scatter_nd(tokens[:, tf.newaxis], own, tf.shape(rows)[1:])
            for own in d_rows
        ]  # [N, F] each
        # The products with the constant l / 2 are those of column sums.
        half_low = label_smoothing / (table.shape[0] - 1) / 2
        counts = tf.cast(is_token, tf.float32)[:, tf.newaxis]  # [N, 1]
        a = alpha / 4
        d_rows = a * tf.stack(d_rows) - counts * (half_low * _sum_rows(table))
        masked = rows * tf.cast(counts, rows.dtype)
        d_table = a * d_table - half_low * _sum_rows(masked)

        def gradient(upstream, _):
            return (
                tf.cast(upstream * d_rows, rows.dtype),
                tf.cast(upstream * d_table, table.dtype),
            )

        return (sums[0] + a * sums[1], sums[0]), gradient

    return loss(rows, table)


def _at_once(compute, number, table_shape):
    """Returns the results of `_over_blocks`, computed in one block."""
    del table_shape
    return compute(0, number)


def _over_blocks(compute, number, table_shape):
    """Joins the results of `_block` for one block of tokens after another.

    Args:
        compute: function of the first token of a block and of the token after
            its last.
        number: int32 scalar, N.
        table_shape: V and F.
    """
    size = max(row_blocks.MOST_NUMBERS // table_shape[0], 1)
    blocks = tf.maximum(-(-number // size), 1)  # one empty block of no rows

    def body(i, sums, first, second, d_table):
        start = i * size
        own = compute(start, tf.minimum(start + size, number))
        first, second = first.write(i, own[1]), second.write(i, own[2])
        return i + 1, sums + own[0], first, second, d_table + own[3]

    arrays = [
        tf.TensorArray(tf.float32, blocks, infer_shape=False) for _ in range(2)
    ]
    _, sums, first, second, d_table = tf.while_loop(
        lambda i, *_: i < blocks,
        body,
        (0, tf.zeros([2]), *arrays, tf.zeros(table_shape)),
        parallel_iterations=1,  # one block in memory at a time
    )
    return sums, first.concat(), second.concat(), d_table


def _block(rows, table, labels, label_smoothing, alpha):
    """Computes the loss of `[2, R, F]`, and its gradients but for l.

    The gradients are divided by a, which saves three products of `[R, V]`.

    Returns:
        Four float32 tensors: sums over tokens of (L1 + L2) / 2 and of K,
        `[2]`; the gradients in the rows of both passes, `[R, F]` each; and the
        gradient in the table, `[V, F]`.
    """
    vocab_size = table.shape[0]
    low = label_smoothing / (vocab_size - 1)
    counts = tf.cast(tf.not_equal(labels, 0), tf.float32)  # [R]
    rows = tf.unstack(rows)  # [R, F] each
    logits = [
        tf.cast(tf.matmul(x, table, transpose_b=True), tf.float32) for x in rows
    ]  # [R, V] each
    p = [tf.nn.softmax(x) for x in logits]
    cross_entropies = [
        _cross_entropy(*pass_, table, labels, label_smoothing)
        for pass_ in zip(rows, logits, p, strict=True)
    ]
    a = alpha / 4
    d = logits[0] - logits[1]
    e1, e2 = (tf.reduce_sum(x * d, -1, keepdims=True) for x in p)  # [R, 1]
    matrices = (
        p[0] * (d + (0.5 / a + 1.0 - e1)) - p[1],
        p[1] * ((0.5 / a + 1.0 + e2) - d) - p[0],
    )
    products = [
        losses.products_without_l(
            matrix,
            labels,
            (1 - vocab_size * low) / 2 / a,
            table,
            x * tf.cast(counts, x.dtype)[:, tf.newaxis],
        )
        for matrix, x in zip(matrices, rows, strict=True)
    ]
    d_rows = [
        counts[:, tf.newaxis] * tf.cast(own, tf.float32) for own, _ in products
    ]
    d_table = [tf.cast(own, tf.float32) for _, own in products]
    consistency = tf.reduce_sum((e1 - e2)[:, 0] * counts)
    sums = tf.stack([tf.add_n(cross_entropies) / 2, consistency])
    return sums, *d_rows, tf.add_n(d_table)


def _cross_entropy(rows, logits, p, table, labels, label_smoothing):
    """Sums the smoothed cross-entropy of a pass: `[R, F]` and `[R, V]`."""
    vocab_size = table.shape[0]
    label_logits = tf.gather(logits, labels, batch_dims=1)  # [R]
    label_p = tf.gather(p, labels, batch_dims=1)
    each = losses.smoothed(
        losses.minus_log_of_labels(label_p, logits, labels),
        label_logits,
        tf.reduce_sum(tf.cast(rows, tf.float32) * _sum_rows(table), -1),
        label_smoothing / (vocab_size - 1),
        vocab_size,
    )
    return losses.over_tokens(each, labels, label_smoothing, vocab_size)[0]


def _sum_rows(matrix):
    return projections.sum_rows(tf.cast(matrix, tf.float32))
