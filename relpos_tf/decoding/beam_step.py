"""One step of beam search, and when there is none to take.

Shapes: B batch, N beams, V vocabulary, L longest limit, T ids so far (the
initial id and one for each step), C candidates (2 N).
"""

import functools
import math
import typing

import tensorflow as tf

take = functools.partial(tf.gather, batch_dims=1)

# The score of a place in the result that no hypothesis fills.
NO_HYPOTHESIS = -1e7


class Search(typing.NamedTuple):
    """What is searched, and when to stop; the arguments of `beam_search`."""

    symbols_to_logits_fn: typing.Any
    beam_size: int
    limits: tf.Tensor  # int32 []: all stop together; [B]: each on its own
    vocab_size: int
    alpha: float
    eos_id: int
    stop_early: bool
    constrain: typing.Any = None  # or a function of log-probabilities


class BeamState(typing.NamedTuple):
    """What one step hands to the next: hypotheses sorted, best first."""

    step: tf.Tensor  # int32 [], steps taken
    alive_ids: tf.Tensor  # int32 [B, N, L + 1], zeros behind the last id
    alive_log_probs: tf.Tensor  # float32 [B, N], -inf: not a hypothesis
    finished_ids: tf.Tensor  # int32 [B, N, L + 1], zeros behind the last id
    finished_scores: tf.Tensor  # float32 [B, N], NO_HYPOTHESIS where empty
    finished_flags: tf.Tensor  # bool [B, N], False where empty
    states: typing.Any  # structure of [B * N, ...], () if there are none
    context: typing.Any = ()  # structure of [B, ...], () if there is none


def length_penalty(length, alpha):
    """Returns GNMT's penalty of lengths: float32, in their shape."""
    return ((5.0 + tf.cast(length, tf.float32)) / 6.0) ** alpha


def is_open(search, state):
    """Returns where an alive hypothesis may still improve the result: [B]."""
    # Log-probabilities only fall, and the limit has the largest penalty.
    if is_greedy(search):
        return ~state.finished_flags[:, 0]
    bound = state.alive_log_probs[:, 0]  # [B]
    bound /= length_penalty(search.limits, search.alpha)
    if search.stop_early:
        return tf.reduce_max(state.finished_scores, axis=1) <= bound
    axis = 1 if search.limits.shape.rank else None  # None: of all together
    return tf.reduce_min(state.finished_scores, axis=axis) <= bound


def is_greedy(search):
    """Returns whether each example has one beam and its own end."""
    return search.beam_size == 1 and search.limits.shape.rank == 1


def is_active(search, state):
    """Returns who takes a further step: bool [B], or [] for all together."""
    active = (state.step < search.limits) & is_open(search, state)  # [B]
    return active if search.limits.shape.rank else tf.reduce_any(active)


def advance(search, state):
    """Returns the `BeamState` after one more step of the active examples."""
    ids, log_probs, parents, states, context = grow(search, state)
    is_eos = ids[:, :, state.step + 1] == search.eos_id  # [B, C]
    # At most N of the candidates end, so N others are there to go on.
    going_on = tf.where(is_eos, -float("inf"), log_probs)
    alive_log_probs, alive = tf.math.top_k(going_on, search.beam_size)
    if is_greedy(search):
        is_eos &= [True, False]  # The second best only replaces an EOS.
    scores = log_probs / length_penalty(state.step + 1, search.alpha)
    scores = tf.where(is_eos, scores, -float("inf"))
    scores = tf.concat([state.finished_scores, scores], axis=1)  # [B, N + C]
    finished_scores, finished = tf.math.top_k(scores, search.beam_size)
    flags = tf.concat([state.finished_flags, is_eos], axis=1)
    finished_ids = tf.concat([state.finished_ids, ids], axis=1)
    active = tf.reshape(is_active(search, state), [-1, 1])  # [B or 1, 1]
    wide = active[:, :, tf.newaxis]
    return BeamState(
        state.step + 1,
        tf.where(wide, take(ids, alive), state.alive_ids),
        tf.where(active, alive_log_probs, state.alive_log_probs),
        tf.where(wide, take(finished_ids, finished), state.finished_ids),
        tf.where(active, finished_scores, state.finished_scores),
        tf.where(active, take(flags, finished), state.finished_flags),
        reorder(states, state.states, take(parents, alive)),
        context,
    )


def grow(search, state):
    """Continues the alive hypotheses by one id.

    Returns:
        ids `[B, C, L + 1]`, log_probs and parents (the beam that each
        continues) `[B, C]`, best first; the states `[B * N, ...]` and the
        context `[B, ...]`.
    """
    batch_size, beam_size, length = sizes(state.alive_ids)
    flat_ids = tf.reshape(state.alive_ids, [batch_size * beam_size, length])
    flat_ids = flat_ids[:, : state.step + 1]  # [B * N, T]
    logits_fn = search.symbols_to_logits_fn
    states, context = state.states, state.context
    if tf.nest.flatten(context):
        logits, states, context = logits_fn(
            flat_ids, state.step, states, context
        )
    elif tf.nest.flatten(states):
        logits, states = logits_fn(flat_ids, state.step, states)
    else:
        logits = logits_fn(flat_ids)
    if not logits.shape[-1:].is_compatible_with([search.vocab_size]):
        expected = f"Expected logits of shape [..., {search.vocab_size}]."
        raise ValueError(f"{expected} Received: shape {logits.shape}.")
    scores = tf.cast(logits, tf.float32)  # [B * N, V]
    probabilities = None
    if search.constrain:
        scores = search.constrain(
            flat_ids, state.step, tf.nn.log_softmax(scores), context
        )
    else:
        # Of the V log-probabilities of a beam, no more than C are needed.
        probabilities = tf.nn.softmax(scores)
    log_probs, parents, tokens = best_candidates(
        scores, state.alive_log_probs, search.vocab_size, probabilities
    )
    ids = take(state.alive_ids, parents)  # [B, C, L + 1]
    ids = tf.where(tf.range(length) == state.step + 1, tokens[..., None], ids)
    return ids, log_probs, parents, states, context


def best_candidates(scores, log_probs, vocab_size, probabilities=None):
    """Finds the best continuations of all beams of each example.

    Args:
        scores: float32 `[B * N, V]`: log-probabilities, or logits if there are
            `probabilities`.
        log_probs: float32 `[B, N]`: of the beams.
        vocab_size: int, V.
        probabilities: float32 `[B * N, V]`: the softmax of `scores`.

    Returns:
        Sums, parents (the beam of each) and tokens, all `[B, C]`, best first.
    """
    batch_size, beam_size = sizes(log_probs)
    wanted = 2 * beam_size  # C
    width = block_width(vocab_size, wanted)
    row = vocab_size // width  # blocks of a beam
    blocks = beam_size * row  # of all beams
    scores = tf.reshape(scores, [-1, width])
    largest = tf.reshape(tf.reduce_max(scores, axis=1), [-1, row])
    shift, offsets = tf.zeros([batch_size, beam_size]), log_probs
    if probabilities is not None:
        # Logits less the largest are of the size of log-probabilities, and
        # lose no more digits than these in the sums.
        shift = tf.reshape(tf.reduce_max(largest, axis=1), tf.shape(log_probs))
        first = tf.argmax(largest, axis=1, output_type=tf.int32)  # [B * N]
        first += tf.range(batch_size * beam_size) * row
        highest = tf.gather(tf.reshape(probabilities, [-1, width]), first)
        highest = tf.math.log(tf.reduce_max(highest, axis=1))
        offsets += tf.reshape(highest, tf.shape(log_probs))
    # The best C lie in the C blocks with the largest scores; in their order,
    # so that of equal scores the first is taken.
    largest -= tf.reshape(shift, [-1, 1])
    largest += tf.reshape(offsets, [-1, 1])
    largest = tf.reshape(largest, [batch_size, blocks])
    best = tf.sort(tf.math.top_k(largest, min(wanted, blocks)).indices)
    rows = tf.range(batch_size)[:, tf.newaxis] * blocks + best
    parents = best // row  # [B, C]
    found = tf.gather(scores, rows)  # [B, C, width]
    found -= take(shift, parents)[..., tf.newaxis]
    found += take(offsets, parents)[..., tf.newaxis]
    sums, places = tf.math.top_k(
        tf.reshape(found, [batch_size, min(wanted, blocks) * width]), wanted
    )  # [B, C]
    which = places // width
    tokens = take(best, which) * width + places % width
    return sums, take(parents, which), tokens % vocab_size


def block_width(vocab_size, wanted):
    """Returns how many scores to look at together: a divisor of V.

    Args:
        vocab_size: int, V.
        wanted: int, C.
    """
    divisors = [n for n in range(1, vocab_size + 1) if vocab_size % n == 0]
    # All of a small vocabulary; else near 64, which was quickest for 8,000.
    if vocab_size < 16 * wanted:
        return vocab_size
    return min(divisors, key=lambda n: abs(math.log(n / 64)))


def reorder(states, old_states, parents):
    """Gathers the states `[B * N, ...]` of the beams `parents` `[B, N]`."""
    batch_size, beam_size = sizes(parents)
    rows = tf.range(batch_size)[:, tf.newaxis] * beam_size + parents

    def gather(new, old):
        # A part that the loop never changes is the same for all beams of an
        # example. Only a traced step is the same for every turn of the loop.
        constant = new is old and not tf.executing_eagerly()
        return old if constant else tf.gather(new, tf.reshape(rows, [-1]))

    return tf.nest.map_structure(gather, states, old_states)


def filling_shape(tensor):
    """Returns a tensor's shape, open in axes that are empty so far."""
    return tf.TensorShape([size or None for size in tensor.shape])


def sizes(tensor):
    """Returns the lengths of a tensor's axes: ints where they are known."""
    shape = tf.shape(tensor)
    return [shape[i] if n is None else n for i, n in enumerate(tensor.shape)]
