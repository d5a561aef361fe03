"""Self-attention with relative position representations.

The mathematics of Shaw et al. (2018) as functions of their arguments. A query
at position i and a key at position j are related by the distance j - i,
clipped to [-k, k]; each of the 2k+1 distances has a vector that is added to
the keys (equation 4) and one that is added to the values (equation 3):

    e[i, j] = q[i] . (key[j] + a_key[clip(j - i)])
    z[i]    = sum_j softmax(e[i])[j] (value[j] + a_value[clip(j - i)])

Shapes: B batch, H heads, Q queries, K keys, D depth per head, k clipping,
R = 2k+1 rows of a table, W of them in the matrix of queries and keys.
"""

import tensorflow as tf

from relpos_tf.layers import checks
from relpos_tf.layers import masks
from relpos_tf.layers.positions import band

IMPLEMENTATIONS = ("auto", "reshape", "compact")


def relative_position_ids(
    query_length, key_length, max_relative_position, query_start=None
):
    """Returns the table row of each query and key: `clip(j - i, -k, k) + k`.

    Args:
        query_length: int or scalar tensor, Q.
        key_length: int or scalar tensor, K.
        max_relative_position: int, k. With 0 every pair has row 0.
        query_start: int or scalar tensor: the position of the first query
            among the keys. By default the queries are the last Q keys.

    Returns:
        An int32 `[Q, K]` tensor.

    Raises:
        UserError: `max_relative_position` is no integer, or negative.

    Example:

    >>> relative_position_ids(2, 4, 1).numpy().tolist()
    [[0, 0, 1, 2], [0, 0, 0, 1]]

    Reference:
        [Shaw et al., 2018](https://arxiv.org/abs/1803.02155), section 3.2.
    """
    checks.integer("max_relative_position", max_relative_position, least=0)
    if query_start is None:
        query_start = key_length - query_length
    keys = tf.range(key_length)  # [K]
    queries = query_start + tf.range(query_length)  # [Q]
    distance = keys[tf.newaxis, :] - queries[:, tf.newaxis]  # [Q, K]
    k = max_relative_position
    return tf.clip_by_value(distance, -k, k) + k


def relative_attention_inner(x, y, z, transpose):
    """Multiplies `x` with `y`, and with vectors `z` of pairs of positions.

    The trick of section 3.3: the sum `y + z` differs from pair to pair, but
    `x y + x z` needs only one batched product more, over positions instead of
    over examples and heads, and no broadcast of `z` to the batch.

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

    Reference:
        [Shaw et al., 2018](https://arxiv.org/abs/1803.02155), equation 5;
        tensor2tensor's `_relative_attention_inner`.
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
):
    """Attends by content and by relative position.

    Args:
        q: `[B, H, Q, D]` queries, already scaled by `D**-0.5`.
        k: `[B, H, K, D]` keys.
        v: `[B, H, K, D]` values.
        key_table: `[2k+1, D]`, or `[H, 2k+1, D]` with a table for each head,
            or None for no relative term on the keys. Row 0 is the vector of
            keys k or more places to the left.
        value_table: The same for the values.
        bias: None or a float tensor that broadcasts to `[B, H, Q, K]`: 0
            where attention is allowed, -1e9 where not.
        implementation: "reshape", the paper's, builds `[Q, K, D]` tensors;
            "compact" multiplies with the rows only and adds the products to
            the diagonals (`band`); "auto": "reshape" for a single query. So
            are queries outside of the keys.
        query_start: As in `relative_position_ids`. In a graph of unknown
            lengths it says that the queries stand among the keys.
        causal: bool. Says that each query may attend to a key, but none ahead.
        dropout: None or a function of the weights that multiply the values.

    Returns:
        A pair: the output, `[B, H, Q, D]`, and the weights before dropout,
        `[B, H, Q, K]`. The softmax is in float32, of float64 in float64.

    Raises:
        UserError: an unknown implementation.
        ValueError: tables that do not fit.

    Example:

    >>> x = tf.ones([1, 1, 2, 2])
    >>> values = tf.constant([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]])  # k = 1
    >>> output, _ = relative_attention(x, x, x, None, values)
    >>> output.numpy().tolist()
    [[[[2.5, 1.0], [1.5, 1.0]]]]

    Reference:
        [Shaw et al., 2018](https://arxiv.org/abs/1803.02155), equations 3-5.
    """
    _check(implementation, key_table, value_table)
    where = {
        "implementation": implementation,
        "query_start": query_start,
        "causal": causal,
    }
    logits = relative_logits(q, k, key_table, **where)
    weights = masks.softmax(logits, bias, v.dtype)  # [B, H, Q, K]
    dropped = weights if dropout is None else dropout(weights)
    output = relative_output(
        dropped, v, value_table, sums_to_one=dropout is None, **where
    )
    return output, weights


def relative_logits(
    q, k, table, *, implementation="auto", query_start=None, causal=False
):
    """Returns the logits of equation 4: `[B, H, Q, K]`.

    In the compact form less a number for each query, which no softmax notices.

    Args:
        q: `[B, H, Q, D]`. As in `relative_attention`, as for all others.
        k: `[B, H, K, D]`.
        table: The vectors of the keys, or None.
        implementation: str.
        query_start: None, int or scalar tensor.
        causal: bool.
    """
    if table is None:
        return tf.matmul(q, k, transpose_b=True)
    if table.shape[-2] == 1:
        table = _without_gradient(table)
    lengths = tf.shape(q)[2], tf.shape(k)[2]
    start = lengths[1] - lengths[0] if query_start is None else query_start
    known = q.shape[2], k.shape[2]
    before = _places_before(known, lengths, query_start)
    if _is_compact(implementation, known) and before is not None:
        return _compact_logits(q, k, table, start, causal, before)
    z = pair_vectors(table, *lengths, start)
    return relative_attention_inner(q, k, z, True)


def relative_output(
    weights,
    v,
    table,
    *,
    implementation="auto",
    query_start=None,
    causal=False,
    sums_to_one=True,
):
    """Returns the sums of equation 3: `[B, H, Q, D]`.

    Args:
        weights: `[B, H, Q, K]` tensor.
        v: `[B, H, K, D]` values.
        table: The vectors of the values, or None.
        implementation: As in `relative_attention`, as for the next two.
        query_start: None, int or scalar tensor.
        causal: bool.
        sums_to_one: bool. Whether the weights of each query sum to 1.
    """
    if table is None:
        return tf.matmul(weights, v)
    lengths = tf.unstack(tf.shape(weights)[2:])
    start = lengths[1] - lengths[0] if query_start is None else query_start
    known = weights.shape[2:]
    before = _places_before(known, lengths, query_start)
    if _is_compact(implementation, known) and before is not None:
        return _compact_output(
            weights, v, table, start, causal, before, sums_to_one
        )
    z = pair_vectors(table, *lengths, start)
    return relative_attention_inner(weights, v, z, False)


def _is_compact(implementation, known):
    """Says which form is meant; "auto" is "reshape" for a single query."""
    if implementation == "auto":
        return known[0] != 1
    return implementation == "compact"


def _places_before(known, lengths, query_start):
    """Returns how many places before the first key the compact form needs.

    A band of diagonals, stored by query, needs a key for each query.

    Args:
        known: Q and K, None where only the graph knows.
        lengths: Q and K as scalar tensors.
        query_start: As in `relative_attention`.

    Returns:
        0 where there are as many keys; a scalar tensor where only the graph
        knows; None where queries stand elsewhere outside of the keys.
    """
    queries, keys = known
    if queries is None or keys is None:
        if query_start is not None:
            return 0  # as the caller says
        return tf.maximum(lengths[0] - lengths[1], 0)
    start = keys - queries
    if query_start is not None:
        start = tf.get_static_value(query_start)
    return 0 if start is None or 0 <= start <= keys - queries else None


def _check(implementation, *tables):
    checks.choice("implementation", implementation, IMPLEMENTATIONS)
    rows = [table.shape[-2] for table in tables if table is not None]
    if any(row is not None and row % 2 == 0 for row in rows):
        raise ValueError(
            "A relative table must have 2k+1 rows. "
            f"Received: tables with {rows} rows."
        )


def pair_vectors(table, query_length, key_length, query_start):
    """Looks up the vector of each pair: `[Q, K, D]` or `[H, Q, K, D]`."""
    k = table.shape[-2] // 2
    ids = relative_position_ids(query_length, key_length, k, query_start)
    # A product with one-hot rows, because the gradient of tf.gather is an
    # IndexedSlices whose duplicate rows Keras' Adam does not sum.
    one_hot = tf.one_hot(ids, 2 * k + 1, dtype=table.dtype)  # [Q, K, R]
    if table.shape.rank == 2:
        return tf.einsum("qkr,rd->qkd", one_hot, table)
    return tf.einsum("qkr,hrd->hqkd", one_hot, table)


def _compact_logits(q, k, table, query_start, causal, before):
    logits = tf.matmul(q, k, transpose_b=True)  # [B, H, Q, K]
    if table.shape[-2] == 1:  # one number for all keys
        return logits + times_table(q, table, transpose=True)
    clip = table.shape[-2] // 2
    logits = _room_before(logits, -1, before)
    where = band.band_of(
        tf.shape(logits), clip, query_start + before, causal, q.dtype
    )
    # Less the number of all keys on the left, which no softmax notices.
    left = table[..., :1, :]
    rows = where.rows(table - tf.stop_gradient(left))
    numbers = times_table(q, rows, transpose=True)  # [B, H, Q, W]
    far = _sees_far_left(tf.shape(q)[2], query_start, clip, q.dtype)

    def left_gradient(slopes, q, far):
        shares = -far * tf.reduce_sum(slopes, -1, keepdims=True)
        return _weighted_sum(shares, q, left.shape)

    numbers = _with_gradient_of(left, numbers, left_gradient, q, far)
    logits = band.add(logits, tf.transpose(numbers, [0, 1, 3, 2]), where)
    return logits[..., before:] if tf.is_tensor(before) else logits


def _compact_output(
    weights, v, table, query_start, causal, before, sums_to_one
):
    left = table[..., :1, :]
    total = tf.ones([], v.dtype)
    if not sums_to_one:
        total = tf.reduce_sum(weights, -1, keepdims=True)  # [B, H, Q, 1]
    if table.shape[-2] == 1:  # one vector for all keys
        return _times_row(total, left) + tf.matmul(weights, v)
    clip = table.shape[-2] // 2
    weights, v = _room_before(weights, -1, before), _room_before(v, -2, before)
    where = band.band_of(
        tf.shape(weights), clip, query_start + before, causal, v.dtype
    )
    product, numbers = band.combine(weights, v, where)
    numbers = tf.transpose(numbers, [0, 1, 3, 2])  # [B, H, Q, W]
    rows = where.rows(table - tf.stop_gradient(left))
    output = _times_row(total, tf.stop_gradient(left))
    output += times_table(numbers, rows, transpose=False)
    far = _sees_far_left(tf.shape(weights)[2], query_start, clip, v.dtype)

    def left_gradient(slopes, numbers, total, far):
        near = tf.reduce_sum(numbers, -1, keepdims=True)  # [B, H, Q, 1]
        return _weighted_sum(far * (total - near), slopes, left.shape)

    return _with_gradient_of(
        left, output + product, left_gradient, numbers, total, far
    )


@tf.custom_gradient
def _without_gradient(table):
    """Returns a table of one row, whose gradient on the keys is exactly 0.

    It moves all logits of a query alike, which no softmax notices. Of its
    gradient, which is 0, rounding errors would be left, and Adam would make
    whole steps of them.
    """
    return tf.identity(table), tf.zeros_like


def _room_before(x, axis, before):
    """Puts zeros for keys before the first one, if `before` is a tensor."""
    if not tf.is_tensor(before):
        return x
    paddings = [[0, 0]] * 4
    paddings[axis] = [before, 0]
    return tf.pad(x, paddings)


def _sees_far_left(query_length, query_start, k, dtype):
    """Says which queries have keys k or more to the left: 0 or 1, `[Q, 1]`."""
    positions = query_start + tf.range(query_length)
    return tf.cast(positions >= k, dtype)[:, tf.newaxis]


def _with_gradient_of(row, x, gradient, *needed):
    """Returns `x`, and hands `gradient(dx, *needed)` on to `row`.

    The compact form takes the row of the keys on the far left from all other
    rows. TensorFlow would compute its gradient as a difference: for queries
    without keys so far left, rounding errors instead of 0.
    """
    # Within `tf.cond` a gradient sees tensors of its own branch only.
    needed = [tf.identity(tensor) for tensor in needed]

    @tf.custom_gradient
    def identity(x, row):
        del row
        return tf.identity(x), lambda dx: (dx, gradient(dx, *needed))

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
    """Multiplies `[]` or `[B, H, Q, 1]` with a row of every head or of each."""
    if weights.shape.rank == 4:
        return times_table(weights, row, transpose=False)  # [B, H, Q, D]
    return weights * (row if row.shape.rank == 2 else row[tf.newaxis])


def times_table(x, table, transpose):
    """Multiplies `[B, H, Q, D or R]` with a table of every head or of each."""
    if table.shape.rank == 3 and table.shape[0] > 1:
        return tf.matmul(x, table, transpose_b=transpose)
    # oneDNN multiplies [B, 1, Q, D] with [1, R, D] wrongly; a single head's
    # table is one for all.
    table = table if table.shape.rank == 2 else tf.squeeze(table, 0)
    flat = tf.reshape(x, [-1, tf.shape(x)[-1]])  # one product for all heads
    product = tf.matmul(flat, table, transpose_b=transpose)
    shape = tf.concat([tf.shape(x)[:-1], tf.shape(product)[-1:]], 0)
    return tf.reshape(product, shape)
