"""The positions of queries and keys, and the masks of their pairs.

Shapes: B batch, H heads, Q queries, K keys, n hypotheses of one source,
T positions so far.
"""

from typing import Any
from typing import NamedTuple

import tensorflow as tf

from relpos_tf.layers import masks


class Sequence(NamedTuple):
    """Queries at consecutive positions, keys at the positions 0 to K - 1.

    Attributes:
        queries: int or int32 scalar, Q.
        keys: int or int32 scalar, K.
        start: int or int32 scalar: the position of the first query. None: the
            queries are the last Q keys.
        causal: bool. Promises that every query may attend to at least one
            key, and to none right of it.
        may_attend: None or a bool tensor that broadcasts to `[B, H, Q, K]`:
            the mask of the caller.
        use_causal_mask: bool. Whether a causal mask joins `may_attend`.
    """

    queries: Any
    keys: Any
    start: Any = None
    causal: bool = False
    may_attend: tf.Tensor | None = None
    use_causal_mask: bool = False

    def first(self):
        """Returns the position of the first query."""
        return self.keys - self.queries if self.start is None else self.start

    def of_queries(self, start, end):
        """Returns the pairs of the queries `start` to `end` - 1, from 0."""
        return self._replace(
            queries=end - start,
            start=self.first() + start,
            may_attend=masks.of_queries(self.may_attend, start, end),
        )

    def mask(self):
        """Returns the mask of the caller, joined with the causal one."""
        if not self.use_causal_mask:
            return self.may_attend
        causal = masks.causal_mask(self.queries, self.keys, self.start)
        return masks.join(self.may_attend, causal)

    def distances(self):
        """Returns key positions minus query positions: int32 `[Q, K]`."""
        return masks.distances(self.queries, self.keys, self.start)

    def key_positions(self):
        """Returns the positions of the keys: int32 `[K]`."""
        return tf.range(self.keys)

    def first_key(self):
        """Returns the first key that the caller's mask allows each query."""
        return masks.first_key(self.may_attend)

    def number_of_keys(self):
        """Returns how many keys the caller's mask allows each query."""
        return masks.number_of_keys(self.mask(), self.keys)

    def allowed(self, by_position):
        """Returns the masks of the caller and the schemes, joined, or None."""
        return masks.join(self.mask(), by_position)

    def bias(self, by_position):
        """Returns `allowed` as a summand of the logits, or None."""
        allowed = self.allowed(by_position)
        return None if allowed is None else masks.to_bias(allowed)


class OnePosition(NamedTuple):
    """Queries that all have one position: hypotheses of a beam search.

    Attributes:
        mask_bias: float32, broadcasts to `[B, H, n, K]`: 0 where a hypothesis
            may attend, -1e9 where not.
        key_distances: int32 `[K]`: key positions minus the position of the
            queries; the first key is at position 0. None if there are no
            schemes.
        number: int, n, the number of queries of a source; None if only the
            graph knows.
    """

    mask_bias: tf.Tensor
    key_distances: tf.Tensor | None = None
    number: int | None = None

    def distances(self):
        """Returns key positions minus the query position: int32 `[1, K]`."""
        return self.key_distances[tf.newaxis]

    def key_positions(self):
        """Returns the positions of the keys: int32 `[K]`."""
        return self.key_distances - self.key_distances[0]

    def first_key(self):
        """Returns the first position."""
        return 0

    def number_of_keys(self):
        """Returns the number of positions, with that of the queries."""
        return 1 - self.key_distances[0]

    def allowed(self, by_position):
        """Returns the masks of the caller and the schemes, joined."""
        return masks.join(self.mask_bias == 0.0, by_position)

    def bias(self, by_position):
        """Returns `allowed` as a summand of the logits."""
        if by_position is None:
            return self.mask_bias
        return self.mask_bias + masks.to_bias(by_position)


def of_hypotheses(ancestors) -> OnePosition:
    """Returns the pairs of hypotheses with their past.

    Hypotheses that continue the same one share its past. So the keys and
    values of a step are never moved: `ancestors` tells which of them belong to
    a hypothesis. Reordering a search moves one number for each position.

    Args:
        ancestors: int32 `[B, n, T]`: the ancestor of each hypothesis at
            position t, one of n; at the last position, the hypothesis itself.

    Returns:
        `OnePosition` of K = T * n keys, position by position.

    Example:

    >>> pairs = of_hypotheses(tf.constant([[[0, 0], [0, 1]]]))  # both from 0
    >>> (pairs.mask_bias[0, 0] == 0).numpy().astype(int).tolist()
    [[1, 0, 1, 0], [1, 0, 0, 1]]
    >>> pairs.key_distances.numpy().tolist()
    [-1, -1, 0, 0]
    """
    batch, n, length = tf.unstack(tf.shape(ancestors))
    n = n if ancestors.shape[1] is None else ancestors.shape[1]
    is_own = ancestors[..., tf.newaxis] == tf.range(n)  # [B, n, T, n]
    is_own = tf.reshape(is_own, [batch, 1, n, length * n])
    distances = tf.range(length) - (length - 1)  # [T]
    return OnePosition(
        masks.to_bias(is_own), tf.repeat(distances, n), ancestors.shape[1]
    )
