"""Masks: True where a query may attend to a key.

Shapes: B batch, H heads, Q queries, K keys.
"""

import tensorflow as tf

NEGATIVE = -1e9  # the logit of a forbidden pair; T2T's value


def distances(query_length, key_length, query_start=None):
    """Returns the position of each key minus the position of each query.

    Args:
        query_length: int or scalar tensor, Q.
        key_length: int or scalar tensor, K.
        query_start: int or scalar tensor: the position of the first query
            among the keys. By default the queries are the last Q keys.

    Returns:
        An int32 `[Q, K]` tensor.
    """
    keys, queries = _positions(query_length, key_length, query_start)
    return keys - queries


def _positions(query_length, key_length, query_start):
    """Returns the positions of keys, `[1, K]`, and of queries, `[Q, 1]`."""
    if query_start is None:
        query_start = key_length - query_length
    queries = query_start + tf.range(query_length)
    return tf.range(key_length)[tf.newaxis, :], queries[:, tf.newaxis]


def causal_mask(query_length, key_length, query_start=None):
    """Returns the mask of the keys up to each query: bool `[1, 1, Q, K]`.

    The arguments are those of `distances`.
    """
    keys, queries = _positions(query_length, key_length, query_start)
    allowed = keys <= queries
    return allowed[tf.newaxis, tf.newaxis]  # [1, 1, Q, K]


def join(*masks):
    """Returns the conjunction of masks; None stands for a mask of True."""
    joined = None
    for mask in masks:
        if mask is not None:
            joined = mask if joined is None else joined & mask
    return joined


def of_queries(mask, start, end):
    """Returns the mask of the queries from `start` to `end` - 1, or None."""
    if mask is None:
        return None
    mask = tf.convert_to_tensor(mask)
    if mask.shape.rank < 2 or mask.shape[-2] == 1:  # the same for all queries
        return mask
    is_one = tf.shape(mask)[-2] == 1
    start, end = tf.where(is_one, 0, start), tf.where(is_one, 1, end)
    return mask[..., start:end, :]


def number_of_keys(may_attend, key_length):
    """Returns how many of K keys a mask, or None, allows each query."""
    if may_attend is None:
        return key_length
    allowed = tf.cast(may_attend, tf.int32)
    if allowed.shape.rank == 0:
        return allowed * key_length
    # An axis of size 1 stands for all keys.
    repeats = key_length // tf.maximum(tf.shape(allowed)[-1], 1)
    return tf.reduce_sum(allowed, -1) * repeats


def first_key(may_attend):
    """Returns the first key that a mask, or None, allows each query, or 0."""
    if may_attend is None:
        return 0
    allowed = tf.cast(may_attend, tf.bool)
    if allowed.shape.rank == 0:
        return 0
    size = tf.shape(allowed)[-1]  # 1 stands for all keys
    first = tf.reduce_min(tf.where(allowed, tf.range(size), size), -1)
    return tf.where(first < size, first, 0)


def to_bias(allowed):
    """Returns 0 where a mask allows attention, -1e9 where not: float32."""
    return tf.where(allowed, 0.0, NEGATIVE)


def softmax(logits, bias, dtype):
    """Returns the weights of logits `[B, H, Q, K]` plus a bias that fits.

    The softmax is in float32, or of float64 in float64.
    """
    if logits.dtype != tf.float64:
        logits = tf.cast(logits, tf.float32)
    if bias is not None:
        logits += tf.cast(bias, logits.dtype)
    return tf.cast(tf.nn.softmax(logits), dtype)
