"""Clipped distances as diagonals of the matrix of all pairs.

The row of a relative table that each pair has, with k = 2 and five positions:

              key 0  1  2  3  4
    query 0       2  3  4  4  4
          1       1  2  3  4  4
          2       0  1  2  3  4
          3       0  0  1  2  3
          4       0  0  0  1  2

A query has one product n[r] with each row r. A softmax does not change if a
number is subtracted from all logits of a query, so n[0] is, and the pairs of
row 0 need nothing. n[r] - n[0] is added to the diagonals of the rows 1 to 2k
in place, and that of the highest diagonal once more right of it (here the 4 at
(0, 3), (0, 4) and (1, 4)). If no key right of its query counts, the diagonals
of the rows 1 to k are enough. The weights that multiply a table of values are
read off in the same way.

Shapes: B batch, H heads, Q queries, K keys, D depth per head, W diagonals that
lie within the matrix.
"""

from typing import NamedTuple

import tensorflow as tf

# Both kinds of diagonals, above and below the middle, are stored by query.
_ALIGN = "LEFT_RIGHT"


class Band(NamedTuple):
    """Where the distances 1-k to k lie in a matrix of queries and keys.

    Attributes:
        diagonals: int32 `[2]`: the lowest and the highest diagonal, column
            minus row.
        first: int32 scalar: the row of the table that the lowest one has.
        beyond: `[Q, K]` in the dtype of the logits: 1 where a key is more than
            k to the right of its query, else 0. None where no such key counts.
    """

    diagonals: tf.Tensor
    first: tf.Tensor
    beyond: tf.Tensor | None

    def rows(self, table):
        """Takes the rows `[.., W, D]` of the diagonals, highest first."""
        size = self.diagonals[1] - self.diagonals[0] + 1
        rows = table[..., self.first : self.first + size, :]
        return tf.reverse(rows, [-2])


def band_of(shape, k, query_start, causal, dtype):
    """Returns the `Band` of a matrix.

    Args:
        shape: int32 tensor that ends in Q, K. The positions of the queries are
            among those of the keys.
        k: int, at least 1. The clipping distance.
        query_start: int32 scalar: the position of the first query.
        causal: bool. Whether no key right of its query counts.
        dtype: of `beyond`.
    """
    queries, keys = shape[-2], shape[-1]
    low = tf.maximum(query_start - k + 1, 1 - queries)
    high = tf.minimum(query_start + (0 if causal else k), keys - 1)
    beyond = None
    if not causal:
        last = query_start + tf.range(queries) + k  # [Q]
        beyond = tf.range(keys) > last[:, tf.newaxis]  # [Q, K]
        beyond = tf.cast(beyond, dtype)
    return Band(tf.stack([low, high]), low - query_start + k, beyond)


def read(x, diagonals):
    """Reads diagonals of `[B, H, Q, K]`: `[B, H, W, Q]`, highest first."""
    found = tf.raw_ops.MatrixDiagPartV3(
        input=x,
        k=diagonals,
        padding_value=tf.zeros([], x.dtype),
        align=_ALIGN,
    )  # [B, H, Q] if there is but one
    shape = tf.shape(x)
    size = diagonals[1] - diagonals[0] + 1
    return tf.reshape(found, [shape[0], shape[1], size, shape[2]])


def _add_diagonals(x, numbers, diagonals):
    """Adds `[B, H, W, Q]` to diagonals of `[B, H, Q, K]`."""
    numbers += read(x, diagonals)
    shape = tf.shape(numbers)
    several = tf.cast(shape[2] > 1, tf.int32)  # one has no axis of its own
    shape = tf.concat([shape[:2], shape[2 : 2 + several], shape[3:]], 0)
    # The matrix itself is not copied where nobody else needs it.
    return tf.raw_ops.MatrixSetDiagV3(
        input=x,
        diagonal=tf.reshape(numbers, shape),
        k=diagonals,
        align=_ALIGN,
    )


def add(x, numbers, band):
    """Adds numbers to a matrix of all pairs.

    Args:
        x: `[B, H, Q, K]`.
        numbers: `[B, H, W, Q]`: what the diagonals get, the highest first,
            which all pairs right of it get, too.
        band: `Band`.

    Returns:
        `[B, H, Q, K]`.
    """

    @tf.custom_gradient
    def compute(x, numbers):
        y = _add_diagonals(x, numbers, band.diagonals)
        if band.beyond is not None:
            y += numbers[:, :, 0, :, tf.newaxis] * band.beyond
        # TensorFlow's own gradient would copy dy for x, with zeros in the band.
        return y, lambda dy: (dy, _read_all(dy, band))

    return compute(x, numbers)


def combine(weights, values, band):
    """Multiplies weights with values, and reads them by distance.

    Args:
        weights: `[B, H, Q, K]`.
        values: `[B, H, K, D]`.
        band: `Band`.

    Returns:
        A pair: the product, `[B, H, Q, D]`; and the weights on the diagonals,
        `[B, H, W, Q]`, the highest first, with all those right of it.
    """

    @tf.custom_gradient
    def compute(weights, values):
        def gradients(output, numbers):
            dw = tf.matmul(output, values, transpose_b=True)
            dw = _add_diagonals(dw, numbers, band.diagonals)
            if band.beyond is not None:
                dw += numbers[:, :, 0, :, tf.newaxis] * band.beyond
            return dw, tf.matmul(weights, output, transpose_a=True)

        output = tf.matmul(weights, values)
        return (output, _read_all(weights, band)), gradients

    return compute(weights, values)


def _read_all(x, band):
    """Reads the diagonals; what lies right of the highest is added to it."""
    numbers = read(x, band.diagonals)  # [B, H, W, Q]
    if band.beyond is None:
        return numbers
    right = tf.reduce_sum(x * band.beyond, -1)[:, :, tf.newaxis]  # [B, H, 1, Q]
    return tf.concat([numbers[:, :, :1] + right, numbers[:, :, 1:]], 2)
