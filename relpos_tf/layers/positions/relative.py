"""Self-attention with relative position representations.

The equations of Shaw et al. (2018) for queries q = x W_q / sqrt(D), keys x W_k
and values x W_v. The weights w[i] of query i are softmax(e[i]).

    (1)  z[i] = sum_j w[i, j] value[j]
    (2)  e[i, j] = q[i] . key[j]

The pair of positions i and j has two learned vectors, one for each of the 2k+1
distances j - i clipped to [-k, k]:

    (3)  z[i] = sum_j w[i, j] (value[j] + a_value[i, j])
    (4)  e[i, j] = q[i] . (key[j] + a_key[i, j])
         a[i, j] = table[clip(j - i, -k, k) + k]

Keys before the query and keys after it may be clipped at two distances: with
`left` and `right`, row clip(j - i, -left, right) + left.

To compute (4) without a sum for each pair in every example and head:

    (5)  e[i, j] = q[i] . key[j] + q[i] . a_key[i, j]

Equation 3 is split in the same way. The implementation "reshape" is the
paper's: it looks up a[i, j] for all pairs. The implementation "compact"
multiplies with the rows of the tables alone, see `band`. Both give the same
output and weights.

Shapes: B batch, H heads, Q queries, K keys, D depth per head, k clipping,
R = 2k+1 rows of a table.
"""

import tensorflow as tf

from relpos_tf import errors
from relpos_tf.layers import checks
from relpos_tf.layers import masks
from relpos_tf.layers import pairs as pairs_lib
from relpos_tf.layers.positions import band
from relpos_tf.layers.positions import tables

IMPLEMENTATIONS = ("auto", "reshape", "compact")


def relative_position_ids(
    query_length,
    key_length,
    max_relative_position,
    query_start=None,
    max_relative_position_right=None,
):
    """Returns the table row of each query and key: `clip(j - i, -k, k) + k`.

    Args:
        query_length: int or scalar tensor, Q.
        key_length: int or scalar tensor, K.
        max_relative_position: int, k. With 0 every pair has row 0.
        query_start: int or scalar tensor: the position of the first query
            among the keys. By default the queries are the last Q keys.
        max_relative_position_right: int: k of the keys after the query, if it
            is another one.

    Returns:
        An int32 `[Q, K]` tensor.

    Raises:
        UserError: `max_relative_position` is no integer, or negative.

    Example:

    >>> relative_position_ids(2, 4, 1).numpy().tolist()
    [[0, 0, 1, 2], [0, 0, 0, 1]]
    """
    checks.integer("max_relative_position", max_relative_position, least=0)
    left = right = int(max_relative_position)
    if max_relative_position_right is not None:
        right = int(max_relative_position_right)
    distance = masks.distances(query_length, key_length, query_start)
    return tf.clip_by_value(distance, -left, right) + left


def relative_attention_inner(x, y, z, transpose):
    """Multiplies `x` with `y`, and with vectors `z` of pairs (equation 5).

    The sum `y + z` differs from pair to pair. `x y + x z` needs one batched
    product more, over positions instead of examples and heads, and no
    broadcast of `z` to the batch (section 3.3). The name is tensor2tensor's.

    Args:
        x: `[B, H, Q, K]` weights, or `[B, H, Q, D]` queries.
        y: `[B, H, K, D]` values or keys.
        z: `[Q, K, D]` vectors of the pairs; `[H, Q, K, D]` if each head has
            its own.
        transpose: bool. True for queries, whose last axis is D.

    Returns:
        `[B, H, Q, K]` for queries, `[B, H, Q, D]` for weights.

    Example:

    >>> q, keys = tf.ones([1, 1, 1, 2]), tf.ones([1, 1, 3, 2])
    >>> z = tf.reshape(tf.range(6.0), [1, 3, 2])
    >>> relative_attention_inner(q, keys, z, True).numpy().tolist()
    [[[[3.0, 7.0, 11.0]]]]
    """
    xy = tf.matmul(x, y, transpose_b=transpose)  # [B, H, Q, K or D]
    if z.shape.rank == 4:
        x_by_position = tf.transpose(x, [1, 2, 0, 3])  # [H, Q, B, D or K]
        xz = tf.matmul(x_by_position, z, transpose_b=transpose)
        return xy + tf.transpose(xz, [2, 0, 1, 3])  # [B, H, Q, K or D]
    batch, heads, queries, width = tf.unstack(tf.shape(x))
    by_position = tf.transpose(x, [2, 0, 1, 3])  # [Q, B, H, D or K]
    by_position = tf.reshape(by_position, [queries, batch * heads, width])
    xz = tf.matmul(by_position, z, transpose_b=transpose)  # [Q, B*H, ...]
    xz = tf.reshape(xz, [queries, batch, heads, tf.shape(xy)[-1]])
    return xy + tf.transpose(xz, [1, 2, 0, 3])  # [B, H, Q, K or D]


def relative_attention(
    q,
    k,
    v,
    key_table,
    value_table,
    *,
    bias=None,
    implementation="auto",
    query_start=None,
    causal=False,
    dropout=None,
    left=None,
):
    """Attends by content and by relative position.

    Args:
        q: `[B, H, Q, D]` queries, already scaled by `D**-0.5`.
        k: `[B, H, K, D]` keys.
        v: `[B, H, K, D]` values.
        key_table: `[R, D]`, or `[H, R, D]` with a table for each head, or
            None for no relative term on the keys. Row 0 is the vector of
            keys k or more positions to the left.
        value_table: The same for the values.
        bias: None or a float tensor that broadcasts to `[B, H, Q, K]`: 0
            where attention is allowed, -1e9 where not.
        implementation: "reshape" looks up `[Q, K, D]` vectors; "compact"
            adds products with the tables to diagonals (`band`); "auto" is
            "reshape" for a single query, else "compact". Queries at positions
            without a key always use "reshape".
        query_start: As in `relative_position_ids`. In a graph of unknown
            lengths, one promises that every query has the position of a key.
        causal: bool. Promises that `bias` leaves each query at least one key,
            and none right of the query.
        dropout: None or a function of the weights that multiply the values.
        left: int: the row of distance 0 in both tables, where keys before the
            query are clipped. By default k, the middle one of 2k+1 rows.

    Returns:
        A pair: `[B, H, Q, D]`, and the weights `[B, H, Q, K]` before dropout.
        The softmax is in float32, of float64 in float64.

    Raises:
        UserError: an unknown implementation, or shapes that do not fit.

    Example:

    >>> x = tf.ones([1, 1, 2, 2])
    >>> values = tf.constant([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]])  # k = 1
    >>> output, _ = relative_attention(x, x, x, None, values)
    >>> output.numpy().tolist()
    [[[[2.5, 1.0], [1.5, 1.0]]]]

    Reference:
        [Shaw et al., 2018](https://arxiv.org/abs/1803.02155), equations 3-5.
    """
    checks.choice("implementation", implementation, IMPLEMENTATIONS)
    arrays = q, k, v, key_table, value_table
    q, k, v, key_table, value_table = _checked(arrays, bias, left)
    pairs = pairs_lib.Sequence(
        tf.shape(q)[2], tf.shape(k)[2], query_start, causal
    )
    logits = relative_logits(q, k, key_table, pairs, implementation, left)
    weights = masks.softmax(logits, bias, v.dtype)  # [B, H, Q, K]
    dropped = weights if dropout is None else dropout(weights)
    output = relative_output(
        dropped, v, value_table, pairs, implementation, dropout is None, left
    )
    return output, weights


def relative_logits(q, k, table, pairs, implementation, left=None):
    """Returns the logits e of equation 4: `[B, H, Q, K]`.

    The compact form subtracts one number from all logits of a query, which
    changes no softmax.

    Args:
        q: `[B, H, Q, D]` queries, scaled.
        k: `[B, H, K, D]` keys.
        table: None, `[R, D]` or `[H, R, D]`: the vectors of the keys.
        pairs: `pairs.Sequence`. Its masks are not applied.
        implementation: As in `relative_attention`.
        left: As in `relative_attention`.
    """
    if table is None:
        return tf.matmul(q, k, transpose_b=True)  # equation 2
    table, left = _rows_in_use(table, pairs, left)
    if table.shape[-2] == 1:
        table = _without_gradient(table)
    padding = _padding(implementation, q.shape[2], k.shape[2], pairs)
    if padding is not None:
        return band.logits(q, k, table, pairs, padding, left)
    a = pair_vectors(table, pairs, left)
    return relative_attention_inner(q, k, a, transpose=True)  # equation 5


def relative_output(
    weights, v, table, pairs, implementation, sums_to_one, left=None
):
    """Returns the weighted values z of equation 3: `[B, H, Q, D]`.

    Args:
        weights: `[B, H, Q, K]` tensor.
        v: `[B, H, K, D]` values.
        table: None, `[R, D]` or `[H, R, D]`: the vectors of the values.
        pairs: `pairs.Sequence`.
        implementation: As in `relative_attention`.
        sums_to_one: bool. Whether the weights of each query sum to 1.
        left: As in `relative_attention`.
    """
    if table is None:
        return tf.matmul(weights, v)  # equation 1
    table, left = _rows_in_use(table, pairs, left)
    padding = _padding(implementation, *weights.shape[2:], pairs)
    if padding is not None:
        return band.output(weights, v, table, pairs, padding, sums_to_one, left)
    a = pair_vectors(table, pairs, left)
    return relative_attention_inner(weights, v, a, transpose=False)


def pair_vectors(table, pairs, left):
    """Returns the vectors a of all pairs: `[Q, K, D]` or `[H, Q, K, D]`."""
    right = table.shape[-2] - 1 - left
    ids = relative_position_ids(
        pairs.queries, pairs.keys, left, pairs.start, right
    )
    return tables.look_up(table, ids)


def _rows_in_use(table, pairs, left):
    """Returns the rows of a table that pairs have, and the row of distance 0.

    If no key after the query counts and all keys before it are clipped to
    distance 0, all pairs have one row.
    """
    if left is None:
        left = table.shape[-2] // 2
    if left == 0 and pairs.causal:
        table = table[..., :1, :]
    return table, left


def _padding(implementation, queries, keys, pairs):
    """Returns how many keys the compact form adds before the first key.

    The diagonals, stored by query, need a key at the position of each query.

    Args:
        implementation: As in `relative_attention`.
        queries: int, Q; None if only the graph knows.
        keys: int, K, or None.
        pairs: `pairs.Sequence`.

    Returns:
        0, or a scalar tensor if only the graph knows. None for the
        implementation "reshape", which queries at positions without a key need.
    """
    if implementation == "reshape" or 0 in (queries, keys):
        return None
    if implementation == "auto" and queries == 1:
        return None
    if queries is None or keys is None:
        if pairs.start is not None:
            return 0  # as the caller promises
        return tf.maximum(pairs.queries - pairs.keys, 0)
    start = keys - queries
    if pairs.start is not None:
        start = tf.get_static_value(pairs.start)
    return 0 if start is None or 0 <= start <= keys - queries else None


@tf.custom_gradient
def _without_gradient(table):
    """Returns a table of one row; on the keys, its gradient is exactly 0.

    The row changes all logits of a query alike, which changes no softmax. A
    computed gradient would consist of rounding errors, from which Adam would
    make whole steps.
    """
    return tf.identity(table), tf.zeros_like


def _checked(arrays, bias, left):
    """Returns q, k, v and tables as tensors, if their shapes fit."""
    checks.needs_tensorflow("relative_attention")
    q, k, v, key_table, value_table = arrays = [
        None if array is None else tf.convert_to_tensor(array)
        for array in arrays
    ]
    if bias is not None and tf.convert_to_tensor(bias).dtype.is_bool:
        raise errors.UserError(
            "`bias` must be float, 0 where attention is allowed: masks.to_bias"
            "(mask) of a mask. Received: dtype bool."
        )
    checks.sizes("q", q.shape, ("batch", "heads", "queries", "depth"))
    _, heads, _, depth = q.shape
    checks.sizes("k", k.shape, ("batch", heads, "keys", depth))
    checks.sizes("v", v.shape, ("batch", heads, k.shape[2], "depth"))
    for name, table, size in (
        ("key_table", key_table, depth),
        ("value_table", value_table, v.shape[3]),
    ):
        if table is not None:
            shape = (heads, "rows", size)[-max(table.shape.rank, 2) :]
            checks.sizes(name, table.shape, shape)
    if left is None:
        _check_rows(key_table, value_table)
    return arrays


def _check_rows(*arrays):
    rows = [table.shape[-2] for table in arrays if table is not None]
    if any(row is not None and row % 2 == 0 for row in rows):
        raise errors.UserError(
            "A relative table must have 2k+1 rows. "
            f"Received: tables with {rows} rows."
        )
