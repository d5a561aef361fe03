"""Relative attention with few operations, for GPUs without XLA.

A step of training launches thousands of small kernels there, so the number of
operations decides. Two of them move between a column for each row of a table,
or each distance, and a column for each key. With k = 1 and three positions:

    row      0  1  2      key      0  1  2      distance  -2 -1  0  1  2  3
    query 0  .  b  c      query 0  b  c  c                 .  .  b  c  c  .
          1  a  b  c            1  a  b  c                 .  a  b  c  .  .
          2  a  b  .            2  a  a  b                 a  a  b  .  .  .

`_by_key` reads a number for each pair in one gather with constant indices.
`_by_distance` moves row i by i columns: zeros around the flat matrix, read in
rows that are one column longer; `by_key` moves it back. (`relative_ops` does
the same in `keras.ops`, by more operations, and their gradients have more.)
Products with the vectors of all distances, E, give equation 3 and the gradients
of both tables:

    e[i, j] = q[i] . key[j] + (q table')[i, row of j - i]
    z[i]    = sum_j w[i, j] value[j] + sum_d w[i, i + d] E[d]

Shapes: B batch, H heads, Q queries, K keys, D depth per head, R rows of a
table, S columns: the distances from 1-Q-first on, and a last one of zeros.
"""

import tensorflow as tf

from relpos_tf.layers import pairs as pairs_lib
from relpos_tf.layers.positions import band


def distances(pairs: pairs_lib.Pairs) -> tf.Tensor:
    """Returns the distance of each column: int32 `[S]`."""
    last = _last(pairs)
    columns = pairs.keys + 1 + (0 if _is_lower(pairs) else last)
    return tf.range(columns) - (last + pairs.first())


def by_key(x: tf.Tensor, pairs: pairs_lib.Pairs) -> tf.Tensor:
    """Moves `[.., Q, S]` to the column of each key: `[.., Q, K]`.

    A key that no query may attend to may get the number of another distance.
    """
    batch = [pairs_lib.size(x, axis) for axis in range(x.shape.rank - 2)]
    queries, columns = pairs.queries, pairs_lib.size(x, -1)
    # One after another, the rows begin at intervals of S - 1. So a reshape
    # takes the place of a gather, whose gradient is slow.
    flat = tf.reshape(x, [*batch, queries * columns])
    flat = flat[..., _last(pairs) : _last(pairs) + queries * (columns - 1)]
    return tf.reshape(flat, [*batch, queries, columns - 1])[..., : pairs.keys]


def biases(numbers: tf.Tensor, pairs: pairs_lib.Pairs) -> tf.Tensor:
    """Returns `[H, Q, K]`, by distance alone, of numbers `[H, S]`.

    Example:
    >>> pairs = pairs_lib.Pairs(2, 3, 0)
    >>> biases(distances(pairs)[tf.newaxis], pairs).numpy().tolist()
    [[[0, 1, 2], [-1, 0, 1]]]
    """
    copies = tf.tile(numbers[:, tf.newaxis], [1, pairs.queries, 1])
    return by_key(copies, pairs)


def add_to_logits(
    logits: tf.Tensor,
    q: tf.Tensor,
    table: tf.Tensor,
    vectors: tf.Tensor,
    pairs: pairs_lib.Pairs,
    left: int,
) -> tf.Tensor:
    """Adds q[i] . a_key[i, j] to logits `[B, H, Q, K]`.

    The gradient of the table `[R, D]` or `[H, R, D]` is that of its `vectors`
    of all distances, `[S, D]` or `[H, S, D]`.
    """
    table = tf.stop_gradient(table)

    @tf.custom_gradient
    def products(q, vectors):
        def gradient(dy):
            sums = _by_distance(dy, pairs)  # [B, H, Q, S]
            return band.multiply(sums, vectors), _summed(sums, q, vectors)

        return _by_key(q, table, pairs, left), gradient

    return logits + products(q, vectors)


def weighted_vectors(
    weights: tf.Tensor,
    table: tf.Tensor,
    vectors: tf.Tensor,
    pairs: pairs_lib.Pairs,
    left: int,
) -> tf.Tensor:
    """Returns sum_j w[i, j] a_value[i, j], `[B, H, Q, D]`."""
    table = tf.stop_gradient(table)

    @tf.custom_gradient
    def compute(weights, vectors):
        sums = _by_distance(weights, pairs)  # [B, H, Q, S]

        def gradient(dz):
            dw = _by_key(dz, table, pairs, left)
            return dw, _summed(sums, dz, vectors)

        return band.multiply(sums, vectors), gradient

    return compute(weights, vectors)


def _by_key(x, table, pairs, left):
    """Multiplies `[B, H, Q, D]` with the vector of each pair."""
    right = table.shape[-2] - 1 - left
    products = band.multiply(x, table, transpose=True)  # [B, H, Q, R]
    sizes = tf.shape(products)[:2], [pairs.queries * (left + 1 + right)]

    def indices():
        rows = tf.clip_by_value(pairs.distances(), -left, right) + left
        first = tf.range(pairs.queries) * (left + 1 + right)
        return rows + first[:, tf.newaxis]  # [Q, K]

    flat = tf.reshape(products, tf.concat(sizes, 0))
    chosen = pairs.once(("indices", left, right), indices)
    return tf.gather(flat, chosen, axis=2)


def _by_distance(x, pairs):
    """Moves `[B, H, Q, K]` to the column of each distance: `[B, H, Q, S]`."""
    batch, heads, queries, keys = tf.unstack(tf.shape(x))
    last, none = _last(pairs), [0, 0]
    if not _is_lower(pairs):
        x = tf.pad(x, [none, none, none, [0, last]])
        keys += last
    flat = tf.reshape(x, [batch, heads, queries * keys])
    flat = tf.pad(flat, [none, none, [last, queries - last]])
    return tf.reshape(flat, [batch, heads, queries, keys + 1])


def _last(pairs):
    """Returns Q - 1; 0 without queries."""
    return tf.maximum(pairs.queries, 1) - 1


def _is_lower(pairs):
    """Returns whether x[i, j] is 0 for all j > i, and Q = K: no room then."""
    queries, keys, start = pairs.queries, pairs.keys, pairs.start
    is_square = queries is keys or (
        isinstance(queries, int) and isinstance(keys, int) and queries == keys
    )
    is_first = start is None or (isinstance(start, int) and start == 0)
    return pairs.only_causal and is_square and is_first


def _summed(sums, x, vectors):
    """Sums `[B, H, Q, D]` by `[B, H, Q, S]`: `[S, D]`, or `[H, S, D]`."""
    if vectors.shape.rank == 2:
        sums, x = (tf.reshape(t, [-1, tf.shape(t)[3]]) for t in (sums, x))
        return tf.matmul(sums, x, transpose_a=True)
    return tf.reduce_sum(tf.matmul(sums, x, transpose_a=True), 0)
