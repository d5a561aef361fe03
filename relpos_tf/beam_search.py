"""Beam search with GNMT's length penalty, as tensor2tensor runs it.

Shapes: B batch, N beams, V vocabulary, L longest limit, T ids so far (the
initial id and one for each step), C candidates (2 N).
"""

import functools
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


class BeamState(typing.NamedTuple):
    """What one step hands to the next: hypotheses sorted, best first."""

    step: tf.Tensor  # int32 [], steps taken
    alive_ids: tf.Tensor  # int32 [B, N, L + 1], zeros behind the last id
    alive_log_probs: tf.Tensor  # float32 [B, N], -inf: not a hypothesis
    finished_ids: tf.Tensor  # int32 [B, N, L + 1], zeros behind the last id
    finished_scores: tf.Tensor  # float32 [B, N], NO_HYPOTHESIS where empty
    finished_flags: tf.Tensor  # bool [B, N], False where empty
    states: typing.Any  # structure of [B * N, ...], () if there are none


def beam_search(
    symbols_to_logits_fn,
    initial_ids,
    beam_size,
    decode_length,
    vocab_size,
    alpha,
    states=None,
    eos_id=1,
    stop_early=True,
):
    """Finds the continuations of `initial_ids` with the best scores.

    The score of a finished hypothesis is its log-probability divided by
    `((5 + length) / 6) ** alpha`; length counts EOS but not the initial id.

    A scalar `decode_length` gives tensor2tensor's results. The batch stops as
    one: at the limit, or when for every example no alive hypothesis can beat
    the best finished one (`stop_early`) or the worst finished one of the whole
    batch (otherwise). An example in which nothing finished returns its alive
    hypotheses with log-probabilities *not* divided by the penalty.

    A `[B]` `decode_length` gives each example its own limit and its own end,
    by the same bounds over that example only; then it is frozen, so neighbours
    change only the zeros behind its ids, and rounding. If its limit cuts it
    off, unfinished hypotheses fill the places behind finished ones, with the
    penalty of `limit` ids. One beam is greedy search; with a scalar it also
    tries EOS where that comes second. Under XLA `decode_length` must be
    constant, states must keep their shapes, and the last id is `ids[:, i]`.

    Args:
        symbols_to_logits_fn: With `states`, a function of (ids `[B * N, T]`
            int32, i int32 scalar = T - 1, states `[B * N, ...]`) that returns
            (logits `[B * N, V]`, states); without, of ids, returning logits.
        initial_ids: `[B]` integer tensor: the id each example begins with.
        beam_size: int, N >= 1.
        decode_length: Largest number of ids to add: integer scalar or `[B]`.
        vocab_size: int, V >= 2.
        alpha: float >= 0. 0 ranks by log-probability.
        states: None, or any structure of tensors `[B, ...]`, repeated for the
            beams here. All axes but the first and the last may grow.
        eos_id: int. The id that ends a hypothesis.
        stop_early: bool. Whether to stop once the best hypothesis is certain.

    Returns:
        ids `[B, N, T]` int32, the initial id first and zeros after EOS; scores
        `[B, N]` float32 (an empty place: `NO_HYPOTHESIS`, and zeros as ids);
        states `[B, N, ...]` (of no use where an example was frozen) or None.

    Raises:
        ValueError: an argument is not as described.

    Reference:
        Wu et al. (2016), section 7; tensor2tensor, `utils/beam_search.py`.
    """
    initial_ids = tf.cast(initial_ids, tf.int32)
    limits = tf.cast(decode_length, tf.int32)
    settings = (beam_size, limits, vocab_size, alpha, eos_id, stop_early)
    search = Search(symbols_to_logits_fn, *settings)
    check(search, initial_ids)
    state = run(search, initial_ids, () if states is None else states)
    ranking = best_of_each if limits.shape.rank else best_of_batch
    ids, scores = ranking(search, state)  # [B, N, L + 1], [B, N]
    scores = tf.maximum(scores, NO_HYPOTHESIS)
    ids = tf.where(scores[:, :, tf.newaxis] > NO_HYPOTHESIS, ids, 0)
    ids = ids[:, :, : state.step + 1]  # [B, N, T]
    if states is not None:
        states = by_beam(state.states, [*sizes(initial_ids), beam_size])
    return ids, scores, states


def by_beam(states, beams):
    """Reshapes states from `[B * N, ...]` to `[B, N, ...]`."""
    return tf.nest.map_structure(
        lambda t: tf.reshape(t, beams + sizes(t)[1:]), states
    )


def check(search, initial_ids):
    """Raises ValueError for what cannot be searched."""
    shape, limits = initial_ids.shape, search.limits.shape
    is_each = limits.rank == 1 and limits.is_compatible_with(shape)
    valid = shape.rank == 1 and (limits.rank == 0 or is_each)
    # With a negative alpha the bound on future scores would not hold.
    valid &= tf.is_tensor(search.alpha) or search.alpha >= 0
    if not valid or search.beam_size < 1 or search.vocab_size < 2:
        raise ValueError(
            "Expected initial_ids [batch], decode_length [] or [batch], "
            "beam_size >= 1, vocab_size >= 2 and alpha >= 0. Received: "
            f"initial_ids {shape} and {search}."
        )


def run(search, initial_ids, states):
    """Searches to the end. Returns the last `BeamState`."""
    state = initial_state(search, initial_ids, states)
    shapes = [part.shape for part in state[:-1]]
    shapes.append(tf.nest.map_structure(growing_shape, state.states))
    return tf.while_loop(
        lambda *state: tf.reduce_any(is_active(search, BeamState(*state))),
        lambda *state: advance(search, BeamState(*state)),
        state,
        BeamState(*shapes),
    )


def initial_state(search, initial_ids, states):
    """Returns the `BeamState` before the first step."""
    batch_size, beam_size = *sizes(initial_ids), search.beam_size
    states = tf.nest.map_structure(
        lambda part: tf.repeat(part, beam_size, axis=0), states
    )
    # An empty batch has no longest limit, hence the 0.
    longest = tf.maximum(tf.reduce_max(search.limits), 0)
    ids = tf.zeros([batch_size, beam_size, longest + 1], tf.int32)
    is_first = tf.range(longest + 1) == 0  # [L + 1]
    # All beams are equal at first, so all but one must not count.
    log_probs = tf.constant([[0.0] + [-float("inf")] * (beam_size - 1)])
    return BeamState(
        step=tf.constant(0),
        alive_ids=tf.where(is_first, initial_ids[:, None, None], ids),
        alive_log_probs=tf.tile(log_probs, [batch_size, 1]),
        finished_ids=ids,
        finished_scores=tf.fill([batch_size, beam_size], NO_HYPOTHESIS),
        finished_flags=tf.fill([batch_size, beam_size], False),
        states=states,
    )


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
    ids, log_probs, parents, states = grow(search, state)
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
    )


def grow(search, state):
    """Continues the alive hypotheses by one id.

    Returns:
        ids `[B, C, L + 1]`, log_probs and parents (the beam that each
        continues) `[B, C]`, best first; and the states `[B * N, ...]`.
    """
    batch_size, beam_size, length = sizes(state.alive_ids)
    flat_ids = tf.reshape(state.alive_ids, [batch_size * beam_size, length])
    flat_ids = flat_ids[:, : state.step + 1]  # [B * N, T]
    logits_fn, states = search.symbols_to_logits_fn, state.states
    if tf.nest.flatten(states):
        logits, states = logits_fn(flat_ids, state.step, states)
    else:
        logits = logits_fn(flat_ids)
    if not logits.shape[-1:].is_compatible_with([search.vocab_size]):
        expected = f"Expected logits of shape [..., {search.vocab_size}]."
        raise ValueError(f"{expected} Received: shape {logits.shape}.")
    log_probs = tf.nn.log_softmax(tf.cast(logits, tf.float32))  # [B * N, V]
    log_probs += tf.reshape(state.alive_log_probs, [-1, 1])
    log_probs = tf.reshape(log_probs, [batch_size, -1])  # [B, N * V]
    log_probs, best = tf.math.top_k(log_probs, 2 * beam_size)  # [B, C]
    parents, tokens = best // search.vocab_size, best % search.vocab_size
    ids = take(state.alive_ids, parents)  # [B, C, L + 1]
    ids = tf.where(tf.range(length) == state.step + 1, tokens[..., None], ids)
    return ids, log_probs, parents, states


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


def best_of_batch(_, state):
    """Returns tensor2tensor's ids `[B, N, L + 1]` and scores `[B, N]`."""
    ended = tf.reduce_any(state.finished_flags, axis=1, keepdims=True)
    ids = tf.where(ended[..., None], state.finished_ids, state.alive_ids)
    return ids, tf.where(ended, state.finished_scores, state.alive_log_probs)


def best_of_each(search, state):
    """Returns ids `[B, N, L + 1]` and scores `[B, N]`, finished ones first."""
    scores = state.alive_log_probs
    scores /= length_penalty(search.limits, search.alpha)[:, tf.newaxis]
    # Only the limit can have ended the search of an example that is open.
    is_cut = is_open(search, state)
    scores = tf.where(is_cut[:, tf.newaxis], scores, NO_HYPOTHESIS)
    scores = tf.concat([state.finished_scores, scores], axis=1)  # [B, 2 N]
    ids = tf.concat([state.finished_ids, state.alive_ids], axis=1)
    empty = tf.cast(~state.finished_flags, tf.int32)  # behind the finished
    empty = tf.reduce_sum(empty, axis=1, keepdims=True)  # [B, 1]
    best = tf.range(search.beam_size)  # [N]
    best += tf.where(best < search.beam_size - empty, 0, empty)  # [B, N]
    return take(ids, best), take(scores, best)


def sizes(tensor):
    """Returns the lengths of a tensor's axes: ints where they are known."""
    shape = tf.shape(tensor)
    return [shape[i] if n is None else n for i, n in enumerate(tensor.shape)]


def growing_shape(tensor):
    """Returns a tensor's shape, open in all axes but the first and last."""
    axes = tensor.shape.as_list()
    return tf.TensorShape(axes[:1] + [None] * len(axes[1:-1]) + axes[1:][-1:])
