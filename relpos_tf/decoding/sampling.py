"""Random sampling of translations.

Every row has its own random numbers, so its neighbours do not matter.

Shapes: R rows, V vocabulary, K ids that may be drawn, L longest limit, T ids
so far (the initial id and one for each step).
"""

from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import tensorflow as tf

from relpos_tf.decoding import beam_search
from relpos_tf.utils import text

_FORBIDDEN = -float("inf")


class Sampling(NamedTuple):
    """The settings of `draw`, and the seed."""

    temperature: float | tf.Tensor = 1.0
    top_k: int = 0
    top_p: float | tf.Tensor = 1.0
    seed: int | tf.Tensor = 1


def uniforms(
    seed: int | tf.Tensor,
    numbers: tf.Tensor,
    samples: int,
    length: int | tf.Tensor,
) -> tf.Tensor:
    """Returns the random numbers of every row.

    Args:
        seed: int32 scalar.
        numbers: int32 `[B]`: a number of its own for each example.
        samples: int. Rows of each example.
        length: int32 scalar, L. A longer row begins with the shorter one.

    Returns:
        float32 `[B * samples, L]` in [0, 1).
    """

    def row(pair):
        example = tf.stack([seed, pair[0]])
        own = tf.random.experimental.stateless_fold_in(example, pair[1])
        return tf.random.stateless_uniform([length], own)

    count = tf.size(numbers)
    pairs = tf.stack(
        [tf.repeat(numbers, samples), tf.tile(tf.range(samples), [count])], 1
    )
    # One row more: without any row, map_fn would not know the length.
    pairs = tf.pad(pairs, [[0, 1], [0, 0]])
    shape = tf.TensorSpec([None], tf.float32)
    return tf.reshape(
        tf.map_fn(row, pairs, fn_output_signature=shape)[:-1],
        [count * samples, length],
    )


def draw(
    log_probs: tf.Tensor,
    uniform: tf.Tensor,
    temperature: float | tf.Tensor,
    top_k: int = 0,
    top_p: float | tf.Tensor = 1.0,
) -> tf.Tensor:
    """Draws one id for each row.

    Args:
        log_probs: float32 `[R, V]`, -inf for ids that must not be drawn.
        uniform: float32 `[R]` in [0, 1): random numbers.
        temperature: float > 0, finite. Divides log-probabilities: below 1,
            probable ids become more probable.
        top_k: int. Draws from this many of the most probable ids; 0: from all.
        top_p: float in (0, 1]. Draws from the fewest ids whose probabilities,
            the largest first, add up to it.

    Returns:
        int32 `[R]`; any id for a row without an id to draw.

    Reference:
        [Holtzman et al., 2020](https://arxiv.org/abs/1904.09751), section 3.1
        (top_p).
    """
    vocab_size = log_probs.shape[-1]
    values, ids = tf.math.top_k(
        log_probs, min(top_k, vocab_size) or vocab_size
    )  # [R, K]
    # Less the largest: a temperature close to 0 would overflow float32.
    probs = tf.nn.softmax((values - values[:, :1]) / temperature)
    # In float32, the sums would lose many improbable ids.
    sums = tf.cumsum(tf.cast(probs, tf.float64), axis=1)
    # The whole sum differs from 1 by rounding, which must not exclude any id.
    most = tf.cast(top_p, tf.float64)
    most = tf.where(most < 1.0, most, sums[:, -1:])
    # The first id whose sum reaches `most` is the last that may be drawn.
    last = tf.searchsorted(sums, most)  # [R, 1]
    last = tf.minimum(last, tf.shape(sums)[1] - 1)
    drawn = tf.cast(uniform[:, tf.newaxis], tf.float64)
    drawn *= beam_search.take(sums, last)
    index = tf.searchsorted(sums, drawn, side="right")  # [R, 1]
    index = tf.minimum(index, last)  # in spite of rounding
    return beam_search.take(ids, index)[:, 0]


def sample(
    step: Callable[..., tuple[tf.Tensor, Any]],
    limits: tf.Tensor,
    random_numbers: tf.Tensor,
    how: Sampling,
    *,
    states: Any = (),
    shared: Any = (),
    constrain: Callable[..., tf.Tensor] | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Draws ids one after another, from those but padding, id 0.

    Args:
        step: A function of (ids int32 `[R, T]`, 0 first, i = T - 1, states
            `[R, ...]`, shared) that returns (logits `[R, V]`, states).
        limits: int32 `[R]`: the most ids to add.
        random_numbers: float32 `[R, L]`: see `uniforms`.
        how: `Sampling`; its seed is in the random numbers.
        states: Any structure of `[R, ...]`; axes of length 0 may grow.
        shared: What `step` and `constrain` get besides.
        constrain: None, or a function of (ids, i, log_probs `[R, V]`, shared)
            that returns log_probs with -inf for ids that must not follow.

    Returns:
        A pair: ids int32 `[R, T]`, 0 first and zeros behind the last;
        and the model's log-probabilities of these, float32 `[R]`,
        without temperature and constraints. Zeros and -inf for a row that had
        no id left to draw.
    """
    longest = tf.maximum(tf.reduce_max(limits), 0)
    indices = tf.range(longest + 1)
    ids = tf.zeros([tf.size(limits), longest + 1], tf.int32)  # [R, L + 1]

    def draw_next(i, ids, scores, is_active, states):
        so_far = ids[:, : i + 1]
        logits, states = step(so_far, i, states, shared)
        allowed = log_probs = tf.nn.log_softmax(tf.cast(logits, tf.float32))
        if constrain:
            allowed = constrain(so_far, i, log_probs, shared)
        # Id 0 has a small probability from label smoothing.
        is_pad = tf.range(tf.shape(allowed)[1]) == 0
        allowed = tf.where(is_pad, _FORBIDDEN, allowed)
        chosen = draw(allowed, random_numbers[:, i], *how[:3])  # [R]
        is_allowed = beam_search.take(allowed, chosen) > _FORBIDDEN
        score = beam_search.take(log_probs, chosen)
        score = tf.where(is_allowed, score, _FORBIDDEN)
        scores += tf.where(is_active, score, 0.0)
        is_active &= score > _FORBIDDEN
        chosen = tf.where(is_active, chosen, 0)
        ids = tf.where(indices == i + 1, chosen[:, tf.newaxis], ids)
        is_active &= (chosen != text.EOS_ID) & (i + 1 < limits)
        return i + 1, ids, scores, is_active, states

    scores = tf.zeros(tf.shape(limits))
    loop = tf.constant(0), ids, scores, limits > 0, states
    shapes = [part.shape for part in loop[:-1]]
    shapes.append(tf.nest.map_structure(beam_search.growing_shape, states))
    steps, ids, scores, _, _ = tf.while_loop(
        lambda i, ids, scores, is_active, states: tf.reduce_any(is_active),
        draw_next,
        loop,
        tuple(shapes),
    )
    ids = tf.where((scores > _FORBIDDEN)[:, tf.newaxis], ids, 0)
    return ids[:, : steps + 1], scores
