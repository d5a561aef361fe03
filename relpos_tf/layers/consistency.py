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

# The most tokens of a block times V: smaller matrices would save no time.
BLOCK_NUMBERS = 2**23


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
    flat_labels = tf.cast(tf.reshape(labels, [-1]), tf.int32)  # [N]

    @tf.custom_gradient
    def loss(rows, table):
        sums, d_rows, d_table = _by_blocks(
            rows, table, flat_labels, label_smoothing, alpha
        )

        def gradient(upstream, _):
            return (
                tf.cast(upstream * d_rows, rows.dtype),
                tf.cast(upstream * d_table, table.dtype),
            )

        return (sums[0] + alpha / 4 * sums[1], sums[0]), gradient

    return loss(rows, table)


def _by_blocks(rows, table, labels, label_smoothing, alpha):
    """Sums the results of `_block` over all blocks of tokens.

    Returns:
        Float32 tensors: a pair of sums, of (L1 + L2) / 2 and of K; and the
        gradients of the sum of L in `rows`, `[2, N, F]`, and `table`.
    """
    number = tf.size(labels)
    if row_blocks.in_xla():
        size = number
    else:
        size = tf.constant(max(BLOCK_NUMBERS // table.shape[0], 1))
    blocks = tf.maximum(-(-number // size), 1)  # one empty block of no rows

    def body(i, sums, d_rows, d_table):
        end = tf.minimum((i + 1) * size, number)
        own_sums, own_rows, own_table = _block(
            rows[:, i * size : end],
            table,
            labels[i * size : end],
            label_smoothing,
            alpha,
        )
        d_rows = [
            array.write(i, own)
            for array, own in zip(d_rows, own_rows, strict=True)
        ]
        return i + 1, sums + own_sums, d_rows, d_table + own_table

    arrays = [
        tf.TensorArray(tf.float32, blocks, infer_shape=False) for _ in range(2)
    ]
    _, sums, d_rows, d_table = tf.while_loop(
        lambda i, *_: i < blocks,
        body,
        (0, tf.zeros([2]), arrays, tf.zeros(table.shape)),
        parallel_iterations=1,
    )
    d_rows = tf.stack([array.concat() for array in d_rows])  # [2, N, F]
    return sums, tf.ensure_shape(d_rows, rows.shape), d_table


def _block(rows, table, labels, label_smoothing, alpha):
    """Returns what `_by_blocks` does, of one block, `[2, R, F]`."""
    vocab_size = table.shape[0]
    low = label_smoothing / (vocab_size - 1)
    column_sums = projections.sum_rows(tf.cast(table, tf.float32))  # [F]
    counts = tf.cast(tf.not_equal(labels, 0), tf.float32)  # [R]
    logits, p, cross_entropies = [], [], []
    for own in tf.unstack(rows):  # [R, F]
        logits.append(
            tf.cast(tf.matmul(own, table, transpose_b=True), tf.float32)
        )  # [R, V]
        p.append(tf.nn.softmax(logits[-1]))
        label_logits = tf.gather(logits[-1], labels, batch_dims=1)  # [R]
        label_p = tf.gather(p[-1], labels, batch_dims=1)
        minus_log = losses.minus_log_of_labels(label_p, logits[-1], labels)
        sums = tf.reduce_sum(tf.cast(own, tf.float32) * column_sums, -1)
        each = losses.smoothed(minus_log, label_logits, sums, low, vocab_size)
        cross_entropies.append(
            losses.over_tokens(each, labels, label_smoothing, vocab_size)[0]
        )
    d = logits[0] - logits[1]  # [R, V]
    e_first = tf.reduce_sum(p[0] * d, -1, keepdims=True)  # [R, 1]
    e_second = tf.reduce_sum(p[1] * d, -1, keepdims=True)
    consistency = tf.reduce_sum((e_first - e_second)[:, 0] * counts)
    a = alpha / 4
    d = a * d
    d_logits = [
        p[0] * (d + (0.5 + a - a * e_first)) - a * p[1],
        p[1] * ((0.5 + a + a * e_second) - d) - a * p[0],
    ]
    indices = tf.stack([tf.range(tf.size(labels)), labels], 1)
    weights = tf.fill(tf.shape(labels), (1 - vocab_size * low) / 2)
    d_rows, d_table = [], 0.0
    for own, matrix in zip(tf.unstack(rows), d_logits, strict=True):
        matrix = tf.tensor_scatter_nd_sub(matrix, indices, weights)
        matrix = tf.cast(matrix, table.dtype)  # [R, V]
        d_own = tf.cast(tf.matmul(matrix, table), tf.float32)  # [R, F]
        d_own -= low / 2 * column_sums
        d_rows.append(d_own * counts[:, tf.newaxis])
        masked = own * tf.cast(counts, own.dtype)[:, tf.newaxis]
        d_table += tf.cast(
            tf.matmul(matrix, masked, transpose_a=True), tf.float32
        )  # [V, F]
        d_table -= low / 2 * projections.sum_rows(masked)
    cross_entropy = tf.add_n(cross_entropies) / 2
    sums = tf.stack([cross_entropy, consistency])
    return sums, d_rows, d_table
