"""Constraints of a search: forced prefixes, least lengths, no repetition.

They set log-probabilities to -inf after the softmax, so the ids that are
allowed keep the model's probabilities, and scores stay comparable.

Shapes: R rows (hypotheses), T ids so far (the initial id and one for each
step), V vocabulary, P length of the longest prefix, G n-grams in T ids.
"""

from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import tensorflow as tf

from relpos_tf.utils import text

_FORBIDDEN = -float("inf")


def force_prefix(
    log_probs: tf.Tensor, i: tf.Tensor, prefix: tf.Tensor, free: tf.Tensor
) -> tf.Tensor:
    """Allows only the next id of the prefix, until the prefix ends.

    Args:
        log_probs: float32 `[R, V]`.
        i: int32 scalar: ids chosen so far.
        prefix: int32 `[R, P]`, padded with 0.
        free: float32 `[R, V]`: returned for rows whose prefix has ended.

    Returns:
        float32 `[R, V]`.
    """
    vocab_size = tf.shape(log_probs)[1]
    # Padding, behind the end of a prefix, forces nothing.
    padded = tf.pad(prefix, [[0, 0], [0, 1]])  # [R, P + 1]
    wanted = padded[:, tf.minimum(i, tf.shape(prefix)[1])]  # [R]
    is_wanted = tf.range(vocab_size) == wanted[:, tf.newaxis]  # [R, V]
    forced = tf.where(is_wanted, log_probs, _FORBIDDEN)
    has_ended = (wanted == 0)[:, tf.newaxis]
    return tf.where(has_ended, free, forced)


def forbid_repetition(
    log_probs: tf.Tensor, ids: tf.Tensor, size: int
) -> tf.Tensor:
    """Forbids each id that would complete an n-gram a second time.

    Args:
        log_probs: float32 `[R, V]`.
        ids: int32 `[R, T]`: the initial id, then the ids chosen so far.
        size: int >= 1, n.

    Returns:
        float32 `[R, V]`.
    """
    num_rows, length = tf.unstack(tf.shape(ids))
    # Compare the first n - 1 ids of every earlier n-gram with the last n - 1
    # ids. The initial id is part of no n-gram.
    count = tf.maximum(length - size, 0)  # of earlier n-grams, G
    is_equal = tf.ones([num_rows, count], tf.bool)
    for offset in range(1, size):
        earlier = ids[:, offset : offset + count]  # [R, G]
        now = tf.gather(ids, tf.maximum(length - size + offset, 0), axis=1)
        is_equal &= earlier == now[:, tf.newaxis]
    last = ids[:, size : size + count]  # [R, G], of the n-grams
    rows = tf.broadcast_to(tf.range(num_rows)[:, tf.newaxis], tf.shape(last))
    limit = tf.where(is_equal, _FORBIDDEN, float("inf"))
    return tf.tensor_scatter_nd_min(
        log_probs, tf.stack([rows, last], axis=-1), limit
    )


class Constraints(NamedTuple):
    """The constraints of each translation.

    Attributes:
        limits: int32 `[B]`: the most ids of each translation, EOS included;
            0 gives no ids and the score 0.
        prefix: None, or int32 `[B, P]`, padded with 0: the first ids of each
            translation, even if `min_length` or `no_repeat_ngram_size`
            forbid them.
        min_length: int. The least number of ids before EOS.
        no_repeat_ngram_size: int. No n-gram of this size comes twice; 0: no
            such constraint.
    """

    limits: tf.Tensor
    prefix: tf.Tensor | None = None
    min_length: int = 0
    no_repeat_ngram_size: int = 0

    def constrain(
        self, ids: tf.Tensor, i: tf.Tensor, log_probs: tf.Tensor, shared: Any
    ) -> tf.Tensor:
        """Applies all but the limits, for `beam_search.Search`.

        `shared.prefix` are the prefixes of the sentences that are searched.
        """
        allowed = log_probs
        if self.no_repeat_ngram_size:
            allowed = forbid_repetition(allowed, ids, self.no_repeat_ngram_size)
        if self.min_length:
            is_end = tf.range(tf.shape(log_probs)[1]) == text.EOS_ID  # [V]
            is_early = is_end & (i < self.min_length)
            allowed = tf.where(is_early, _FORBIDDEN, allowed)
        if self.prefix is None:
            return allowed
        prefix = shared.prefix
        beams = tf.shape(ids)[0] // tf.maximum(tf.shape(prefix)[0], 1)
        prefix = tf.repeat(prefix, beams, axis=0)  # [B * N, P]
        # Last, because the prefix overrides the other constraints.
        return force_prefix(log_probs, i, prefix, free=allowed)

    def function(self) -> Callable[..., tf.Tensor] | None:
        """Returns `constrain`; None if there are only limits."""
        has_others = self.min_length or self.no_repeat_ngram_size
        return self.constrain if has_others or self.prefix is not None else None
