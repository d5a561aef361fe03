"""Which keys a query may attend to, by their positions alone.

A mask says True where attention is allowed. Masks are joined by `&`.

Shapes: H heads, Q queries, K keys.
"""

import tensorflow as tf

from relpos_tf import errors
from relpos_tf.layers import checks

DIRECTIONS = ("forward", "backward", "split")
NEGATIVE = -1e9  # the logit of a forbidden pair; T2T's value


def distances(query_length, key_length, query_start=None):
    """Returns the position of each key less that of each query.

    Args:
        query_length: int or scalar tensor, Q.
        key_length: int or scalar tensor, K.
        query_start: int or scalar tensor: the position of the first query
            among the keys. By default the queries are the last Q keys.

    Returns:
        An int32 `[Q, K]` tensor.

    Example:

    >>> distances(2, 3).numpy().tolist()
    [[-1, 0, 1], [-2, -1, 0]]
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
    """Returns which keys a query may attend to: itself and those before it.

    Args:
        query_length: int or scalar tensor, Q.
        key_length: int or scalar tensor, K.
        query_start: As in `distances`.

    Returns:
        A bool `[1, 1, Q, K]` tensor; True where attention is allowed.

    Example:

    >>> causal_mask(2, 3).numpy()[0, 0].tolist()
    [[True, True, False], [True, True, True]]
    """
    keys, queries = _positions(query_length, key_length, query_start)
    allowed = keys <= queries
    return allowed[tf.newaxis, tf.newaxis]  # [1, 1, Q, K]


def one_side(distance, direction, num_heads):
    """Returns the keys on one side of a query, itself always among them.

    Shen et al. (2018) leave the query itself out; here it stays, so that the
    first and the last token see something.

    Args:
        distance: int32 `[Q, K]`: what `distances` returns.
        direction: str. "forward": a query sees what comes before it, as a
            reader does; "backward": what comes after it; "split": the first
            half of the heads (of an odd number, the larger half) looks
            forward, the others backward.
        num_heads: int, H.

    Returns:
        A bool `[Q, K]` tensor; `[H, Q, K]` for "split".

    Example:

    >>> one_side(distances(2, 2), "backward", 1).numpy().tolist()
    [[True, True], [False, True]]

    Reference:
        [Shen et al., 2018](https://arxiv.org/abs/1709.04696), DiSAN.
    """
    forward, backward = distance <= 0, distance >= 0
    if direction == "split":
        head = tf.range(num_heads)[:, tf.newaxis, tf.newaxis]  # [H, 1, 1]
        return tf.where(2 * head < num_heads, forward, backward)  # [H, Q, K]
    return forward if direction == "forward" else backward


def check_direction(direction, num_heads):
    """Raises UserError if `one_side` could not be computed."""
    checks.choice("direction", direction, DIRECTIONS)
    if direction == "split" and num_heads < 2:
        raise errors.UserError(
            "`direction` must be forward or backward where there is but "
            f"one head. Received: direction='split', num_heads={num_heads}."
        )


def join(*masks):
    """Returns what all masks allow; None, which allows all, does not count."""
    joined = None
    for mask in masks:
        if mask is not None:
            joined = mask if joined is None else joined & mask
    return joined


def of_queries(mask, start, end):
    """Returns a mask for the queries from `start` to `end` - 1 alone.

    Args:
        mask: None, or a bool tensor that broadcasts to `[B, H, Q, K]`.
        start: int or scalar tensor.
        end: int or scalar tensor.
    """
    if mask is None:
        return None
    mask = tf.convert_to_tensor(mask)
    if mask.shape.rank < 2 or mask.shape[-2] == 1:  # the same for all queries
        return mask
    is_one = tf.shape(mask)[-2] == 1
    start, end = tf.where(is_one, 0, start), tf.where(is_one, 1, end)
    return mask[..., start:end, :]


def number_of_keys(may_attend, key_length):
    """Returns how many keys a mask leaves; without one, all.

    Args:
        may_attend: None, or a bool tensor that broadcasts to `[.., K]`.
        key_length: int or scalar tensor, K.
    """
    if may_attend is None:
        return key_length
    allowed = tf.cast(may_attend, tf.int32)
    if allowed.shape.rank == 0:
        return allowed * key_length
    # Each number of a mask stands for this many keys: 1, or all.
    repeats = key_length // tf.maximum(tf.shape(allowed)[-1], 1)
    return tf.reduce_sum(allowed, -1) * repeats


def to_bias(allowed):
    """Returns 0 where a mask allows attention, -1e9 where not: float32."""
    return tf.where(allowed, 0.0, NEGATIVE)


def softmax(logits, bias, dtype):
    """Returns attention weights; the softmax is in float32, or in float64.

    Args:
        logits: `[B, H, Q, K]` tensor.
        bias: None, or a float tensor that broadcasts to it and is added.
        dtype: of the result.

    Returns:
        A `[B, H, Q, K]` tensor.
    """
    if logits.dtype != tf.float64:
        logits = tf.cast(logits, tf.float32)
    if bias is not None:
        logits += tf.cast(bias, logits.dtype)
    return tf.cast(tf.nn.softmax(logits), dtype)
