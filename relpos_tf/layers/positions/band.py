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
row r, and t[i] the sum over all keys: 1, unless weights were dropped. The sum
over the lower corner, s[i, 0], is t[i] less the sums of the other rows:

    z[i] = sum_j w[i, j] value[j] + sum_r s[i, r] table[r]

So the band needs two operations: `_add` for n and `_sums` for s. Each is the
gradient of the other. The gradient of the table has the same form for both,
with s of the gradients of e instead of the weights, and q instead of the
gradient of z. Then t is 0, as for the gradient of each softmax.

Shapes: B batch, H heads, Q queries, K keys, D depth per head, R = left + 1 +
right rows of a table, W rows of the band, P rows with those of the corners.
`left` is the row of distance 0.
"""

import functools
from typing import NamedTuple

import tensorflow as tf

from relpos_tf.layers import pairs as pairs_lib

# Both kinds of diagonals, above and below the middle, are stored by query.
_ALIGN = "LEFT_RIGHT"


class Band(NamedTuple):
    """The diagonals of the distances 1-left to right in `[B, H, Q, K]`."""

    diagonals: tf.Tensor  # [2]: the lowest and the highest, column minus row
    shape: tf.Tensor  # [4]: B, H, W and Q
    # One-hot: the rows of the upper corner, of the band with the highest
    # diagonal first, and of the lower corner; those of the band less row 0.
    rows: tf.Tensor  # [P, R]
    differences: tf.Tensor  # [W, R]
    # [Q, K]: 1 where a key is more than `right` after its query, else 0.
    corner: tf.Tensor | None  # None where no such key counts
    has_row_0: tf.Tensor  # [Q]: 1 where a key is `left` or more before, else 0


def _band_of(x, left, right, pairs):
    """Returns the `Band` for `x` `[B, H, ..]`; not both distances are 0."""
    return pairs.once(
        ("band", left, right, x.dtype),
        lambda: _compute_band(x, left, right, pairs),
    )


def _compute_band(x, left, right, pairs):
    """Returns the `Band`, for keys and values alike."""
    batch, heads, _, _ = tf.unstack(tf.shape(x))
    first, queries = pairs.first(), tf.maximum(pairs.queries, 1)
    # An empty matrix has the main diagonal, of no pairs.
    last_key = tf.maximum(pairs.keys, 1) - 1
    start = tf.minimum(first, last_key)
    low = tf.maximum(start + (1 - max(left, 1)), 1 - queries)
    high = tf.minimum(start + (0 if pairs.only_causal else right), last_key)
    diagonals = tf.range(high, low - 1, -1)  # [W]
    one_hot = functools.partial(
        tf.one_hot, depth=left + 1 + right, dtype=x.dtype
    )
    rows, row_0 = one_hot(diagonals + (left - start)), one_hot([0])
    positions = first + tf.range(pairs.queries)  # [Q]
    corner, above = None, []
    if not pairs.only_causal:
        corner = tf.range(pairs.keys) > (positions + right)[:, tf.newaxis]
        corner, above = tf.cast(corner, x.dtype), [rows[:1]]
    return Band(
        tf.stack([low, high]),
        tf.stack([batch, heads, tf.size(diagonals), pairs.queries]),
        tf.concat([*above, rows, row_0], 0),
        rows - row_0,
        corner,
        tf.cast(positions >= left, x.dtype),
    )


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
    table = _of_all_heads(table)
    if table.shape[-2] == 1:  # one vector for all keys
        return logits + multiply(q, table, transpose=True)
    # The band is computed from q: an operation that reads the shape of the
    # logits may prevent TensorFlow from changing them in place.
    band = _band_of(q, left, table.shape[-2] - 1 - left, pairs)

    @tf.custom_gradient
    def compute(logits, q, table):
        def gradient(dy):
            s = _sums(dy, 0.0, band)
            # They sum to 0, so the numbers n[i, 0] take no part.
            dq = _sum_of_rows(s, table, band)
            return dy, dq, _gradient_of_table(s, q, table, band)

        return _add(logits, q, table, band), gradient

    return compute(logits, q, table)


def weighted_vectors(
    weights: tf.Tensor,
    table: tf.Tensor,
    pairs: pairs_lib.Pairs,
    sums_to_one: bool,
    left: int,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns weights `[B, H, Q, K]`, and equation 3's terms of the table."""
    table = _of_all_heads(table)
    if table.shape[-2] == 1:  # one vector for all keys
        if sums_to_one:
            return weights, table  # [1, D] or [H, 1, D]
        t = tf.reduce_sum(weights, -1, keepdims=True)  # [B, H, Q, 1]
        return weights, multiply(t, table)
    band = _band_of(weights, left, table.shape[-2] - 1 - left, pairs)

    # The gradient of the weights returned gets that of the terms in place.
    @tf.custom_gradient
    def compute(weights, table):
        t = 1.0
        if not sums_to_one:
            t = tf.expand_dims(tf.reduce_sum(weights, -1), 2)  # [B, H, 1, Q]
        s = _sums(weights, t, band)

        def gradient(d, dz):
            d = _add(d, dz, table, band)
            if not sums_to_one:
                d += multiply(dz, table[..., :1, :], transpose=True)
            return d, _gradient_of_table(s, dz, table, band)

        return (tf.identity(weights), _sum_of_rows(s, table, band)), gradient

    return compute(weights, table)


def _sums(x, t, band):
    """Sums `[B, H, Q, K]` by rows: `[B, H, P, Q]`, for sums `t` of all keys."""
    sums = [tf.reshape(_diagonals_of(x, band), band.shape)]  # [B, H, W, Q]
    if band.corner is not None:
        corner = tf.reduce_sum(x * band.corner, -1)
        sums.insert(0, tf.expand_dims(corner, 2))
    others = tf.add_n([tf.reduce_sum(part, 2, keepdims=True) for part in sums])
    # The mask leaves 0 instead of rounding errors where no key has row 0.
    return tf.concat([*sums, band.has_row_0 * (t - others)], 2)


def _sum_of_rows(s, table, band):
    """Sums rows of a table by `[B, H, P, Q]`: `[B, H, Q, D]`."""
    return tf.matmul(s, tf.matmul(band.rows, table), transpose_a=True)


def _gradient_of_table(s, vectors, table, band):
    """Sums `[B, H, Q, D]` by `[B, H, P, Q]` for the rows of a table."""
    sums = tf.matmul(s, vectors)  # [B, H, P, D]
    sums = tf.reduce_sum(sums, [0, 1] if table.shape.rank == 2 else 0)
    return tf.matmul(band.rows, sums, transpose_a=True)


def _diagonals_of(x, band):
    """Reads the band, highest first: `[B, H, W, Q]`; `[B, H, Q]` if W is 1."""
    return tf.raw_ops.MatrixDiagPartV3(
        input=x,
        k=band.diagonals,
        padding_value=tf.zeros([], x.dtype),
        align=_ALIGN,
    )


def _add(x, vectors, table, band):
    """Adds n[i, r] - n[i, 0] of `[B, H, Q, D]` to `[B, H, Q, K]`."""
    differences = tf.matmul(band.differences, table)  # [.., W, D]
    numbers = tf.matmul(differences, vectors, transpose_b=True)  # [B, H, W, Q]
    diagonals = _diagonals_of(x, band)
    shape = tf.shape(diagonals)
    if x.shape[0] is None and None not in x.shape[1:]:
        # The graph must not know the rank: if the batch alone is unknown,
        # TensorFlow expects one of 5 (its issue 38280).
        shape = tf.raw_ops.PlaceholderWithDefault(input=shape, shape=[None])
    # In place: x is not copied where nothing else needs it.
    y = tf.raw_ops.MatrixSetDiagV3(
        input=x,
        diagonal=diagonals + tf.reshape(numbers, shape),
        k=band.diagonals,
        align=_ALIGN,
    )
    if band.corner is not None:
        y += tf.expand_dims(numbers[:, :, 0], 3) * band.corner
    return y


def multiply(
    x: tf.Tensor, table: tf.Tensor, transpose: bool = False
) -> tf.Tensor:
    """Multiplies `[B, H, Q, R]` with a table `[R, D]`, or `[H, R, D]`."""
    table = _of_all_heads(table)
    if table.shape.rank == 3:
        return tf.matmul(x, table, transpose_b=transpose)
    # On several threads, oneDNN multiplies [B, 1, Q, R] with [R, D] wrongly,
    # and writes beyond the result. Transposed, the left one does no harm.
    flat = tf.reshape(x, [-1, pairs_lib.size(x, -1)])
    product = tf.matmul(flat, table, transpose_b=transpose)
    shape = tf.concat([tf.shape(x)[:-1], tf.shape(product)[-1:]], 0)
    return tf.reshape(product, shape)


def _of_all_heads(table):
    """Returns `[R, D]` if a table `[H, R, D]` has one head."""
    is_one = table.shape.rank == 3 and table.shape[0] == 1
    return tf.squeeze(table, 0) if is_one else table
