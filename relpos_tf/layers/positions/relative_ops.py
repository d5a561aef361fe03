"""Relative attention in `keras.ops`: for TensorFlow, JAX and PyTorch.

The equations are those of `shaw`, which is quicker on TensorFlow. This
form needs products, sums, padding and reshapes only. With one-hot rows
c[d, r] = 1 where distance d is clipped to row r of a table:

    e[i, j] = q[i] . key[j] + m[i, j - i],   m[i, d] = sum_r c[d, r] q[i] . a[r]
    z[i]    = sum_j w[i, j] value[j] + sum_r s[i, r] a[r]
              s[i, r] = sum_d c[d, r] w[i, i + d]

Two operations move between a matrix with a column for each key and one with a
column for each distance. Each undoes the other and is its gradient:

    key      0  1  2      distance  -2 -1  0  1  2
    query 0  a  b  c                 .  .  a  b  c
          1  d  e  f                 .  d  e  f  .
          2  g  h  i                 g  h  i  .  .

Shapes: H heads, Q queries, K keys, D depth per head, k clipping, R = 2k+1 rows
of a table, S = Q+K-1 distances, or K without queries. Leading axes, such as the
batch, are dots.
"""

from collections.abc import Callable
from typing import Any

from keras import ops

Tensor = Any  # of the backend that Keras runs on
NEGATIVE = -1e9  # the logit of a forbidden pair, as in `pairs`


def relative_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    key_table: Tensor | None,
    value_table: Tensor | None,
    *,
    may_attend: Tensor | None = None,
    dropout: Callable[[Tensor], Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """Attends by content and by relative position.

    Args:
        q: `[.., H, Q, D]` queries, already scaled by `D**-0.5`. Query i has
            position i.
        k: `[.., H, K, D]` keys. Key j has position j.
        v: `[.., H, K, D]` values; their D may be another.
        key_table: `[R, D]`, or `[H, R, D]` with a table for each head, or
            None for no relative term on the keys. Row 0 is the vector of
            keys k or more positions to the left.
        value_table: The same for the values.
        may_attend: None or a bool tensor that broadcasts to `[.., H, Q, K]`,
            True where attention is allowed. A query that may attend to
            nothing attends to all keys equally.
        dropout: None or a function of the weights that multiply the values.

    Returns:
        A pair: `[.., H, Q, D]`, and the weights `[.., H, Q, K]` before
        dropout. The softmax is in float32, of float64 in float64.

    Example:
    >>> x = ops.ones([1, 1, 2, 2])
    >>> values = ops.array([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]])  # k = 1
    >>> output, _ = relative_attention(x, x, x, None, values)
    >>> ops.convert_to_numpy(output).tolist()
    [[[[2.5, 1.0], [1.5, 1.0]]]]

    Reference:
        [Shaw et al., 2018](https://arxiv.org/abs/1803.02155), equations 3-5.
    """
    queries, keys = ops.shape(q)[-2], ops.shape(k)[-2]
    logits = _product(q, k)  # [.., H, Q, K]
    if key_table is not None:
        rows = _product(q, key_table)  # [.., H, Q, R]
        one_hot = clipped_distances(queries, keys, key_table)
        products = _product(rows, one_hot)  # [.., H, Q, S]
        logits = logits + by_key(products, keys)
    dtype = logits.dtype
    if "float64" not in str(dtype):
        logits = ops.cast(logits, "float32")
    if may_attend is not None:
        logits = ops.where(may_attend, logits, NEGATIVE)
    weights = ops.cast(_softmax(logits), dtype)
    dropped = weights if dropout is None else dropout(weights)
    output = _sum(dropped, v)  # [.., H, Q, D]
    if value_table is not None:
        one_hot = clipped_distances(queries, keys, value_table)
        sums = _sum(by_distance(dropped), one_hot)  # [.., H, Q, R]
        output = output + _sum(sums, value_table)
    return output, weights


def clipped_distances(
    queries: int | Tensor, keys: int | Tensor, table: Tensor
) -> Tensor:
    """Returns the row of each distance from 1-Q to K-1, one-hot: `[S, R]`."""
    rows = table.shape[-2]
    k = rows // 2
    last = _at_least_1(queries) - 1
    distances = ops.arange(last + keys, dtype="int32") - last
    ids = ops.clip(distances, -k, k) + k  # [S]
    one_hot = ids[:, None] == ops.arange(rows, dtype="int32")
    return ops.cast(one_hot, table.dtype)


def by_key(x: Tensor, keys: int | Tensor) -> Tensor:
    """Picks from `[.., Q, S]` the distance of each key: `[.., Q, K]`.

    Row i moves to the left by Q-1-i. After one more column of zeros, a row of
    S columns of the same numbers begins one column later than the row before.

    Example:
    >>> x = ops.array([[9, 9, 1, 2, 3], [9, 4, 5, 6, 9], [7, 8, 9, 0, 0]])
    >>> ops.convert_to_numpy(by_key(x, 3)).tolist()
    [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    """
    *batch, queries, distances = ops.shape(x)
    x = _pad(x, 0, 1)  # [.., Q, S + 1]
    x = ops.reshape(x, [*batch, queries * (distances + 1)])
    x = x[..., queries - 1 : queries * (distances + 1) - 1]
    return ops.reshape(x, [*batch, queries, distances])[..., :keys]


def by_distance(x: Tensor) -> Tensor:
    """Moves `[.., Q, K]` to the column of each distance: `[.., Q, S]`.

    Example:
    >>> x = ops.array([[1, 2, 3], [4, 5, 6], [7, 8, 9]])
    >>> ops.convert_to_numpy(by_distance(x)).tolist()
    [[0, 0, 1, 2, 3], [0, 4, 5, 6, 0], [7, 8, 9, 0, 0]]
    """
    *batch, queries, keys = ops.shape(x)
    last = _at_least_1(queries) - 1
    distances = last + keys
    x = _pad(x, 0, last)  # [.., Q, S]
    x = ops.reshape(x, [*batch, queries * distances])
    x = _pad(x, last, queries - last)  # without queries, nothing
    return ops.reshape(x, [*batch, queries, distances + 1])[..., :distances]


def _at_least_1(size):
    """Returns a size, or 1 for 0: an int, or a tensor of a graph's size."""
    return max(size, 1) if isinstance(size, int) else ops.maximum(size, 1)


def _softmax(logits):
    if logits.shape[-1] == 1:  # of which Keras' softmax warns
        return ops.ones_like(logits)
    return ops.softmax(logits, axis=-1)


def _pad(x, before, after):
    """Adds zeros at both ends of the last axis."""
    others = [[0, 0]] * (len(x.shape) - 1)
    return ops.pad(x, [*others, [before, after]])


def _product(x, y):
    """Multiplies each row of x with each row of y."""
    # On PyTorch, `ops.matmul` multiplies float64 in float32.
    return ops.einsum("...qd,...kd->...qk", x, y)


def _sum(weights, rows):
    """Sums rows by weights."""
    return ops.einsum("...qk,...kd->...qd", weights, rows)
