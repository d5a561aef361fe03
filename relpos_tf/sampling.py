"""Ids drawn at random, instead of searched for.

Every row draws from random numbers of its own, so that neighbours do not
matter here either.

Shapes: R rows, V vocabulary, K ids that may be drawn, L longest limit, T ids
so far (the initial id and one for each step).
"""

from typing import NamedTuple

import tensorflow as tf

from relpos_tf import beam_step


class Sampling(NamedTuple):
    """How to draw translations at random; see `draw`."""

    temperature: float | tf.Tensor = 1.0
    top_k: int = 0
    top_p: float | tf.Tensor = 1.0
    seed: int | tf.Tensor = 1


def uniforms(seed, numbers, samples, length):
    """Returns the random numbers of every row.

    Args:
        seed: int32 scalar.
        numbers: int32 `[B]`: what tells the examples apart.
        samples: int. Rows for each example.
        length: int32 scalar, L. A longer row begins like a shorter one.

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
    shape = tf.TensorSpec([None], tf.float32)
    return tf.reshape(
        tf.map_fn(row, pairs, fn_output_signature=shape),
        [count * samples, length],
    )


def draw(log_probs, uniform, temperature, top_k=0, top_p=1.0):
    """Draws one id a row.

    Args:
        log_probs: float32 `[R, V]`, -inf where an id must not be drawn.
        uniform: float32 `[R]` in [0, 1). Decides.
        temperature: float > 0. Divides log-probabilities: below 1 the
            probable ids become more probable.
        top_k: int. Draws from this many of the most probable ids; 0: from all.
        top_p: float in (0, 1]. Draws from the fewest ids whose probabilities,
            the largest first, add up to it.

    Returns:
        int32 `[R]`.

    Reference:
        [Holtzman et al., 2020](https://arxiv.org/abs/1904.09751), section 3.1
        (top_p).
    """
    vocab_size = log_probs.shape[-1]
    values, ids = tf.math.top_k(
        log_probs / temperature, min(top_k, vocab_size) or vocab_size
    )  # [R, K]
    probs = tf.nn.softmax(values)
    before = tf.cumsum(probs, axis=1, exclusive=True)
    # The first one is always among them.
    probs = tf.where(before < top_p, probs, 0.0)
    sums = tf.cumsum(probs, axis=1)
    wanted = uniform[:, tf.newaxis] * sums[:, -1:]
    place = tf.math.count_nonzero(sums <= wanted, axis=1, dtype=tf.int32)
    # Rounding must not lead to one that cannot be drawn.
    last = tf.math.count_nonzero(probs > 0, axis=1, dtype=tf.int32) - 1
    # Where nothing can, something is: rows that have ended are of no account.
    place = tf.maximum(tf.minimum(place, last), 0)
    return tf.gather(ids, place, batch_dims=1)


def sample(
    symbols_to_logits_fn,
    initial_ids,
    limits,
    random_numbers,
    *,
    temperature=1.0,
    top_k=0,
    top_p=1.0,
    states=(),
    constrain=None,
    eos_id=1,
):
    """Continues `initial_ids` at random; never by padding, id 0.

    Args:
        symbols_to_logits_fn: A function of (ids int32 `[R, T]`, i int32
            scalar = T - 1, states `[R, ...]`) that returns (logits `[R, V]`,
            states).
        initial_ids: `[R]` integer tensor.
        limits: int32 `[R]`: largest numbers of ids to add.
        random_numbers: float32 `[R, L]`: see `uniforms`.
        temperature: float. See `draw`, as for the next two.
        top_k: int.
        top_p: float.
        states: Any structure of tensors `[R, ...]`; axes of length 0 may
            grow.
        constrain: None, or a function of (ids, i, log_probs `[R, V]`) that
            returns log_probs with -inf where an id must not follow.
        eos_id: int.

    Returns:
        A pair: ids int32 `[R, T]`, the initial id first and zeros behind the
        last; and the logarithms of the probabilities that the model gives
        them, float32 `[R]`, whatever temperature and limits to the choice.
    """
    initial_ids = tf.cast(initial_ids, tf.int32)
    longest = tf.maximum(tf.reduce_max(limits), 0)
    places = tf.range(longest + 1)
    ids = tf.where(places == 0, initial_ids[:, tf.newaxis], 0)  # [R, L + 1]

    def step(i, ids, scores, is_active, states):
        so_far = ids[:, : i + 1]
        logits, states = symbols_to_logits_fn(so_far, i, states)
        log_probs = tf.nn.log_softmax(tf.cast(logits, tf.float32))
        allowed = constrain(so_far, i, log_probs) if constrain else log_probs
        # Label smoothing leaves padding a little of the probability.
        is_pad = tf.range(tf.shape(allowed)[1]) == 0
        allowed = tf.where(is_pad, -float("inf"), allowed)
        chosen = draw(
            allowed, random_numbers[:, i], temperature, top_k, top_p
        )  # [R]
        score = tf.gather(log_probs, chosen, batch_dims=1)
        scores += tf.where(is_active, score, 0.0)
        chosen = tf.where(is_active, chosen, 0)
        ids = tf.where(places == i + 1, chosen[:, tf.newaxis], ids)
        is_active &= (chosen != eos_id) & (i + 1 < limits)
        return i + 1, ids, scores, is_active, states

    scores = tf.zeros(tf.shape(initial_ids))
    loop = tf.constant(0), ids, scores, limits > 0, states
    shapes = [part.shape for part in loop[:-1]]
    shapes.append(tf.nest.map_structure(beam_step.filling_shape, states))
    steps, ids, scores, _, _ = tf.while_loop(
        lambda i, ids, scores, is_active, states: tf.reduce_any(is_active),
        step,
        loop,
        tuple(shapes),
    )
    return ids[:, : steps + 1], scores
