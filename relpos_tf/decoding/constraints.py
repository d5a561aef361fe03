"""What a search must not choose: forced prefixes, least lengths, repetitions.

They act on log-probabilities, after the softmax, so that what is allowed keeps
the probability that the model gives it, and scores stay comparable.

Shapes: R rows (hypotheses), T ids so far (the initial id and one for each
step), V vocabulary, P length of the longest prefix.
"""

from typing import NamedTuple

import tensorflow as tf

_FORBIDDEN = -float("inf")


def force_prefix(log_probs, i, prefix, free=None):
    """Allows only the next id of the prefix, where it is not over.

    Args:
        log_probs: float32 `[R, V]`.
        i: int32 scalar: ids chosen so far.
        prefix: int32 `[R, P]`, padded with 0.
        free: float32 `[R, V]`: what is returned where the prefix is over.
            None: `log_probs`.

    Returns:
        float32 `[R, V]`.
    """
    vocab_size = tf.shape(log_probs)[1]
    # Beyond its end a prefix is padding, which forces nothing.
    padded = tf.pad(prefix, [[0, 0], [0, 1]])  # [R, P + 1]
    wanted = padded[:, tf.minimum(i, tf.shape(prefix)[1])]  # [R]
    is_wanted = tf.range(vocab_size) == wanted[:, tf.newaxis]  # [R, V]
    forced = tf.where(is_wanted, log_probs, _FORBIDDEN)
    is_over = (wanted == 0)[:, tf.newaxis]
    return tf.where(is_over, log_probs if free is None else free, forced)


def forbid_end(log_probs, i, min_length, eos_id=1):
    """Forbids EOS as long as fewer than `min_length` ids are chosen.

    Args:
        log_probs: float32 `[R, V]`.
        i: int32 scalar: ids chosen so far.
        min_length: int.
        eos_id: int.

    Returns:
        float32 `[R, V]`.
    """
    is_eos = tf.range(tf.shape(log_probs)[1]) == eos_id  # [V]
    return tf.where(is_eos & (i < min_length), _FORBIDDEN, log_probs)


def forbid_repetition(log_probs, ids, size):
    """Forbids each id that would complete an n-gram a second time.

    Args:
        log_probs: float32 `[R, V]`.
        ids: int32 `[R, T]`: the initial id, then those chosen so far.
        size: int >= 1, n.

    Returns:
        float32 `[R, V]`.
    """
    rows, length = tf.unstack(tf.shape(ids))
    # What an n-gram begins with, at every place where one has ended, and now:
    # the initial id, at 0, is part of none.
    places = tf.maximum(length - size, 0)
    is_seen = tf.ones([rows, places], tf.bool)
    for offset in range(1, size):
        begun = ids[:, offset : offset + places]  # [R, places]
        # The id that stands in the same place of the n-gram to come.
        now = tf.gather(ids, tf.maximum(length - size + offset, 0), axis=1)
        is_seen &= begun == now[:, tf.newaxis]
    ends = ids[:, size : size + places]  # [R, places]
    where = tf.stack(
        [tf.broadcast_to(tf.range(rows)[:, tf.newaxis], tf.shape(ends)), ends],
        axis=-1,
    )  # [R, places, 2]
    limit = tf.where(is_seen, _FORBIDDEN, float("inf"))
    return tf.tensor_scatter_nd_min(log_probs, where, limit)


class Limits(NamedTuple):
    """What a translation may look like.

    Attributes:
        lengths: int32 `[B]`: how many ids each translation may have, EOS
            included; 0 gives no ids and the score 0.
        prefix: None, or int32 `[B, P]`, padded with 0: the ids that each
            translation begins with, whatever the two below would forbid.
        min_length: int. How many ids must come before EOS.
        no_repeat_ngram_size: int. No n-gram of this size comes twice; 0: any
            may.
    """

    lengths: tf.Tensor
    prefix: tf.Tensor | None = None
    min_length: int = 0
    no_repeat_ngram_size: int = 0

    def constrain(self, ids, i, log_probs, context):
        """Applies all but the lengths, for `beam_search.beam_search`.

        A hypothesis that nothing may follow is lost, see there.
        """
        allowed = log_probs
        if self.no_repeat_ngram_size:
            allowed = forbid_repetition(allowed, ids, self.no_repeat_ngram_size)
        if self.min_length:
            allowed = forbid_end(allowed, i, self.min_length)
        if self.prefix is None:
            return allowed
        prefix = context.prefix
        beams = tf.shape(ids)[0] // tf.maximum(tf.shape(prefix)[0], 1)
        prefix = tf.repeat(prefix, beams, axis=0)  # [B * N, P]
        # What is forced has the last word: it may repeat itself, and end.
        return force_prefix(log_probs, i, prefix, free=allowed)

    @property
    def is_constrained(self) -> bool:
        """Says whether there is more to keep to than lengths."""
        return bool(
            self.prefix is not None
            or self.min_length
            or self.no_repeat_ngram_size
        )
