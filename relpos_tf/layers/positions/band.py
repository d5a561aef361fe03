"""The compact form of relative attention: distances as diagonals of a matrix.

The pair of query i and key j has row r = clip(j - i, -k, k) + k of a relative
table. With k = 2 and five positions:

              key 0  1  2  3  4
    query 0       2  3  4  4  4
          1       1  2  3  4  4
          2       0  1  2  3  4
          3       0  0  1  2  3
          4       0  0  0  1  2

Each row is one diagonal, except that row 0 fills the corner at the lower left
and row 2k the corner at the upper right. The band consists of the diagonals of
the rows 1 to 2k, or to k if no key right of its query counts. With two
distances, `left` and `right`, it consists of the rows 1 to left + right; and of
row 0 on the main diagonal if `left` is 0.

Keys (equation 4). A query has one product n[i, r] = q[i] . table[r] with each
row. A softmax does not change if one number is subtracted from all logits of a
query. Without n[i, 0], the lower corner needs no change:

    e[i, j] = q[i] . key[j] + n[i, r] - n[i, 0]

Values (equation 3). s[i, r] is the sum of the weights w[i, j] over the keys of
row r, and t[i] the sum over all keys: 1, unless weights were dropped.

    z[i] = sum_j w[i, j] value[j] + t[i] table[0]
           + sum_r s[i, r] (table[r] - table[0])

So the band needs two operations, each of which is the gradient of the other:
`_add_by_distance` for n and `_sum_by_distance` for s.

Shapes: B batch, H heads, Q queries, K keys, D depth per head, R = left + 1 +
right rows of a table, W rows of the band. `left` is the row of distance 0.
"""

from typing import NamedTuple

import tensorflow as tf

from relpos_tf.layers import pairs as pairs_lib

# Both kinds of diagonals, above and below the middle, are stored by query.
_ALIGN = "LEFT_RIGHT"


class Band(NamedTuple):
    """The diagonals of the distances 1-left to right in a matrix `[Q, K]`."""

    diagonals: tf.Tensor  # [2]: the lowest and the highest, column minus row
    first: tf.Tensor  # the row of the table of the lowest diagonal
    # [Q, K]: 1 where a key is more than `right` after its query, else 0.
    corner: tf.Tensor | None  # None where no such key counts

    def rows(self, table: tf.Tensor) -> tf.Tensor:
        """Returns the rows `[.., W, D]` of the diagonals, highest first."""
        size = self.diagonals[1] - self.diagonals[0] + 1
        rows = table[..., self.first : self.first + size, :]
        return tf.reverse(rows, [-2])


def _band_of(x, left, right, pairs):
    """Returns the `Band` of `[B, H, Q, K]`; not both distances are 0."""
    # An empty matrix has the main diagonal, of no pairs.
    sizes = tf.maximum(tf.shape(x)[2:], 1)
    queries, keys = sizes[0], sizes[1]
    start = tf.minimum(pairs.first(), keys - 1)
    low = tf.maximum(start - max(left, 1) + 1, 1 - queries)
    high = tf.minimum(start + (0 if pairs.only_causal else right), keys - 1)
    corner = None
    if not pairs.only_causal:
        last = start + tf.range(queries) + right  # [Q]
        corner = tf.range(keys) > last[:, tf.newaxis]  # [Q, K]
        corner = tf.cast(corner, x.dtype)
    return Band(tf.stack([low, high]), low - start + left, corner)


def add_to_logits(
    logits: tf.Tensor,
    q: tf.Tensor,
    table: tf.Tensor,
    pairs: pairs_lib.Pairs,
    left: int,
) -> tf.Tensor:
    """Adds n[i, r] - n[i, 0] to logits `[B, H, Q, K]`.

    The table is `[R, D]` or `[H, R, D]`. Each query has the position of a key.
    """
    if table.shape[-2] == 1:  # one vector for all keys
        return logits + multiply(q, table, transpose=True)
    right = table.shape[-2] - 1 - left
    band = _band_of(logits, left, right, pairs)
    row_0 = table[..., :1, :]
    rows = band.rows(table - tf.stop_gradient(row_0))
    n = multiply(q, rows, transpose=True)  # [B, H, Q, W], less n[i, 0]
    has_row_0 = _has_row_0(pairs, left, q.dtype)

    def row_0_gradient(dn, q, has_row_0):
        weights = -has_row_0 * tf.reduce_sum(dn, -1, keepdims=True)
        return _weighted_sum(weights, q, row_0.shape)

    n = _with_gradient_of(row_0, n, row_0_gradient, q, has_row_0)
    return _add_by_distance(logits, tf.transpose(n, [0, 1, 3, 2]), band)


def weighted_vectors(
    weights: tf.Tensor,
    table: tf.Tensor,
    pairs: pairs_lib.Pairs,
    sums_to_one: bool,
    left: int,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns weights `[B, H, Q, K]`, and equation 3's terms of the table."""
    # To the gradient of these weights, that of the terms is added in place.
    row_0 = table[..., :1, :]
    t = tf.ones([], weights.dtype)
    if not sums_to_one:
        t = tf.reduce_sum(weights, -1, keepdims=True)  # [B, H, Q, 1]
    if table.shape[-2] == 1:  # one vector for all keys
        return weights, _times_row(t, row_0)
    right = table.shape[-2] - 1 - left
    band = _band_of(weights, left, right, pairs)
    weights, s = _weights_and_sums(weights, band)
    s = tf.transpose(s, [0, 1, 3, 2])  # [B, H, Q, W]
    rows = band.rows(table - tf.stop_gradient(row_0))
    z = _times_row(t, tf.stop_gradient(row_0))
    z += multiply(s, rows)
    has_row_0 = _has_row_0(pairs, left, weights.dtype)

    def row_0_gradient(dz, s, t, has_row_0):
        s_0 = t - tf.reduce_sum(s, -1, keepdims=True)  # [B, H, Q, 1]
        return _weighted_sum(has_row_0 * s_0, dz, row_0.shape)

    z = _with_gradient_of(row_0, z, row_0_gradient, s, t, has_row_0)
    return weights, z


def _add_by_distance(x, numbers, band):
    """Adds `[B, H, W, Q]`, highest first, to all pairs of `[B, H, Q, K]`."""

    @tf.custom_gradient
    def compute(x, numbers):
        # TensorFlow's own gradient would copy dy for x, with zeros in the band.
        return (
            _add(x, numbers, band),
            lambda dy: (dy, _sum_by_distance(dy, band)),
        )

    return compute(x, numbers)


def _weights_and_sums(weights, band):
    """Returns weights `[B, H, Q, K]` and `_sum_by_distance` of them."""

    @tf.custom_gradient
    def compute(weights):
        # Added in place, where TensorFlow would add two matrices.
        return (
            (tf.identity(weights), _sum_by_distance(weights, band)),
            lambda d, d_sums: _add(d, d_sums, band),
        )

    return compute(weights)


def _sum_by_distance(x, band):
    """Sums `[B, H, Q, K]` by distance: `[B, H, W, Q]`, highest first."""
    sums = _diagonals_of(x, band)
    if band.corner is None:
        return sums
    corner = tf.reduce_sum(x * band.corner, -1)[:, :, tf.newaxis]
    return tf.concat([sums[:, :, :1] + corner, sums[:, :, 1:]], 2)


def _diagonals_of(x, band):
    """Reads the band of `[B, H, Q, K]`: `[B, H, W, Q]`, highest first."""
    diagonals = tf.raw_ops.MatrixDiagPartV3(
        input=x,
        k=band.diagonals,
        padding_value=tf.zeros([], x.dtype),
        align=_ALIGN,
    )  # [B, H, Q] if W is 1
    shape = tf.shape(x)
    size = band.diagonals[1] - band.diagonals[0] + 1
    return tf.reshape(diagonals, [shape[0], shape[1], size, shape[2]])


def _add(x, numbers, band):
    """Computes `_add_by_distance`, without its gradient."""
    diagonals = numbers + _diagonals_of(x, band)  # [B, H, W, Q]
    shape = tf.shape(diagonals)
    if_several = tf.cast(shape[2] > 1, tf.int32)  # as in `_diagonals_of`
    if x.shape[0] is None and None not in x.shape[1:]:
        # The graph must not know the rank: if the batch alone is unknown,
        # TensorFlow expects one of 5 (its issue 38280).
        if_several = tf.raw_ops.PlaceholderWithDefault(
            input=if_several, shape=[]
        )
    shape = tf.concat([shape[:2], shape[2 : 2 + if_several], shape[3:]], 0)
    # In place: x is not copied where nothing else needs it.
    y = tf.raw_ops.MatrixSetDiagV3(
        input=x,
        diagonal=tf.reshape(diagonals, shape),
        k=band.diagonals,
        align=_ALIGN,
    )
    if band.corner is not None:
        y += numbers[:, :, 0, :, tf.newaxis] * band.corner
    return y


def _has_row_0(pairs, left, dtype):
    """Returns 1 for each query with keys `left` or more before it: `[Q, 1]`."""
    positions = pairs.first() + tf.range(pairs.queries)
    return tf.cast(positions >= left, dtype)[:, tf.newaxis]


def _with_gradient_of(row, x, gradient, *tensors):
    """Returns `x`; `row` gets the gradient `gradient(dx, *tensors)`."""
    # The compact form subtracts row 0 from all other rows. TensorFlow would
    # compute the gradient of row 0 as a difference, and leave rounding errors
    # instead of 0 to queries that have no key of row 0.
    # Within `tf.cond` a gradient sees tensors of its own branch only.
    tensors = [tf.identity(tensor) for tensor in tensors]

    @tf.custom_gradient
    def identity(x, row):
        del row
        return tf.identity(x), lambda dx: (dx, gradient(dx, *tensors))

    return identity(x, row)


def _weighted_sum(weights, vectors, shape):
    """Sums `[B, H, Q, D]` by weights `[B, H, Q, 1]`, as a row `[.., 1, D]`."""
    if len(shape) == 3 and shape[0] > 1:
        sums = tf.matmul(weights, vectors, transpose_a=True)  # [B, H, 1, D]
        return tf.reduce_sum(sums, 0)
    flat = tf.reshape(vectors, [-1, shape[-1]])
    sums = tf.matmul(tf.reshape(weights, [1, -1]), flat)  # [1, D]
    return tf.reshape(sums, shape)


def _times_row(weights, row):
    """Multiplies `[]` or `[B, H, Q, 1]` with a row `[1, D]` or `[H, 1, D]`."""
    if weights.shape.rank == 4:
        return multiply(weights, row)  # [B, H, Q, D]
    return weights * (row if row.shape.rank == 2 else row[tf.newaxis])


def multiply(
    x: tf.Tensor, table: tf.Tensor, transpose: bool = False
) -> tf.Tensor:
    """Multiplies `[B, H, Q, R]` with a table `[R, D]`, or `[H, R, D]`."""
    if table.shape.rank == 3 and table.shape[0] > 1:
        return tf.matmul(x, table, transpose_b=transpose)
    # oneDNN multiplies [B, 1, Q, D] with [1, R, D] wrongly; with one head, its
    # table serves all heads.
    table = table if table.shape.rank == 2 else tf.squeeze(table, 0)
    width = pairs_lib.size(x, -1)
    flat = tf.reshape(x, [-1, width])  # one product for all heads
    product = tf.matmul(flat, table, transpose_b=transpose)
    shape = tf.concat([tf.shape(x)[:-1], tf.shape(product)[-1:]], 0)
    return tf.reshape(product, shape)
