"""Which keys a query may attend to, by their positions alone.

A mask says True where attention is allowed. Masks are joined by `&`.

Shapes: H heads, Q queries, K keys.
"""

import tensorflow as tf

from relpos_tf import errors
from relpos_tf.layers import checks

DIRECTIONS = ("both", "forward", "backward", "split")


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


def window_mask(query_length, key_length, window, query_start=None):
    """Returns which keys are near a query: at most `window` places away.

    Vaswani et al. (2017), section 4, call it restricted self-attention of
    neighbourhood r.

    Args:
        query_length: int or scalar tensor, Q.
        key_length: int or scalar tensor, K.
        window: int, r.
        query_start: As in `distances`.

    Returns:
        A bool `[1, 1, Q, K]` tensor.

    Example:

    >>> window_mask(3, 3, 1).numpy()[0, 0].astype(int).tolist()
    [[1, 1, 0], [1, 1, 1], [0, 1, 1]]
    """
    distance = distances(query_length, key_length, query_start)
    return (tf.abs(distance) <= window)[tf.newaxis, tf.newaxis]


def direction_mask(
    query_length, key_length, direction, num_heads, query_start=None
):
    """Returns the keys on one side of a query, itself always among them.

    Shen et al. (2018) leave the query itself out; here it stays, so that the
    first and the last token see something.

    Args:
        query_length: int or scalar tensor, Q.
        key_length: int or scalar tensor, K.
        direction: str. "forward": a query sees what comes before it, as a
            reader does; "backward": what comes after it; "split": the first
            half of the heads (of an odd number, the larger half) looks
            forward, the others backward.
        num_heads: int, H.
        query_start: As in `distances`.

    Returns:
        A bool `[1, 1, Q, K]` tensor; `[1, H, Q, K]` for "split".

    Raises:
        UserError: an unknown direction, or one head to split.

    Example:

    >>> direction_mask(2, 2, "backward", 1).numpy()[0, 0].tolist()
    [[True, True], [False, True]]

    Reference:
        [Shen et al., 2018](https://arxiv.org/abs/1709.04696), DiSAN.
    """
    check_direction(direction, num_heads)
    distance = distances(query_length, key_length, query_start)
    forward, backward = distance <= 0, distance >= 0
    if direction == "split":
        head = tf.range(num_heads)[:, tf.newaxis, tf.newaxis]  # [H, 1, 1]
        mask = tf.where(2 * head < num_heads, forward, backward)  # [H, Q, K]
        return mask[tf.newaxis]
    sides = {
        "both": forward | backward,
        "forward": forward,
        "backward": backward,
    }
    return sides[direction][tf.newaxis, tf.newaxis]


def check_direction(direction, num_heads):
    """Raises UserError if `direction_mask` could not be computed."""
    checks.choice("direction", direction, DIRECTIONS)
    if direction == "split" and num_heads < 2:
        raise errors.UserError(
            "`direction` must be both, forward or backward where there is but "
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


def by_position(
    query_length, key_length, window, direction, num_heads, query_start=None
):
    """Returns what a window and a direction allow together.

    Args:
        query_length: int or scalar tensor, Q.
        key_length: int or scalar tensor, K.
        window: int, as in `window_mask`; 0 for no window.
        direction: str, as in `direction_mask`; or "both".
        num_heads: int, H.
        query_start: As in `distances`.

    Returns:
        A bool tensor that broadcasts to `[1, H, Q, K]`; None if all is allowed.
    """
    near = side = None
    if window:
        near = window_mask(query_length, key_length, window, query_start)
    if direction != "both":
        side = direction_mask(
            query_length, key_length, direction, num_heads, query_start
        )
    return join(near, side)


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
