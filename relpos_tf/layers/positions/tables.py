"""Tables of vectors, one for each relation of a query and a key.

A table is `[R, D]` for all heads together, or `[H, R, D]`: one for each head.

Shapes: B batch, H heads, Q queries, K keys, D depth per head, R rows.
"""

import numpy as np
import tensorflow as tf


def look_up(table, ids):
    """Returns the rows of a table.

    Args:
        table: `[R, D]` or `[H, R, D]` tensor.
        ids: int32 `[K]` or `[Q, K]` tensor.

    Returns:
        A `[K, D]` or `[Q, K, D]` tensor; with an axis H before, if each head
        has its own table.
    """
    # A product with one-hot rows, because the gradient of tf.gather is an
    # IndexedSlices whose duplicate rows Keras' Adam does not sum.
    one_hot = tf.one_hot(ids, table.shape[-2], dtype=table.dtype)  # [.., R]
    axes = "qk"[-ids.shape.rank :]
    if table.shape.rank == 2:
        return tf.einsum(f"{axes}r,rd->{axes}d", one_hot, table)
    return tf.einsum(f"{axes}r,hrd->h{axes}d", one_hot, table)


def multiply(x, table, transpose=False, shape=None):
    """Multiplies `[B, H, Q, R]` with a table; transposed, `[B, H, Q, D]`.

    `shape` is that of the result, if it is known: it saves operations.
    """
    if table.shape.rank == 3 and table.shape[0] > 1:
        return tf.matmul(x, table, transpose_b=transpose)
    # oneDNN multiplies [B, 1, Q, D] with [1, R, D] wrongly; with one head, its
    # table serves all heads.
    table = table if table.shape.rank == 2 else tf.squeeze(table, 0)
    width = tf.shape(x)[-1] if x.shape[-1] is None else x.shape[-1]
    flat = tf.reshape(x, [-1, width])  # one product for all heads
    product = tf.matmul(flat, table, transpose_b=transpose)
    if shape is None:
        shape = tf.concat([tf.shape(x)[:-1], tf.shape(product)[-1:]], 0)
    return tf.reshape(product, shape)


def symmetric(table: np.ndarray, left: int) -> np.ndarray:
    """Returns a table of clipped distances with as many rows on both sides.

    The last row of the shorter side is repeated, so that every distance keeps
    its vector.

    Args:
        table: `[R, D]` or `[H, R, D]` array.
        left: int: the row of distance 0.

    Returns:
        A `[2k+1, D]` or `[H, 2k+1, D]` array.

    Example:

    >>> symmetric(np.array([[0], [1], [2]]), left=0).ravel().tolist()
    [0, 0, 0, 1, 2]
    """
    right = table.shape[-2] - 1 - left
    k = max(left, right)
    paddings = [(0, 0)] * (table.ndim - 2) + [(k - left, k - right), (0, 0)]
    return np.pad(table, paddings, "edge")
