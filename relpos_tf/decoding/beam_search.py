"""Beam search with GNMT's length penalty, as tensor2tensor runs it.

The score of a finished hypothesis is its log-probability divided by
`((5 + length) / 6) ** alpha`; length counts EOS but not the initial id.

A scalar `decode_length` gives tensor2tensor's results. The batch stops as one:
at the limit, or when for every example no alive hypothesis can beat the best
finished one (`stop_early`) or the worst finished one of the whole batch
(otherwise). An example in which nothing finished returns its alive hypotheses
with log-probabilities *not* divided by the penalty.

A `[B]` `decode_length` gives each example its own limit and its own end, by the
same bounds over that example only. Examples that have ended are frozen, and may
leave the batch (`shrink_at`); neighbours change only the zeros behind an
example's ids, and rounding. If its limit cuts it off, unfinished hypotheses
fill the places behind finished ones, with the penalty of `limit` ids. One beam
is greedy search; with a scalar it also tries EOS where that comes second.

Under XLA `decode_length` must be constant, `shrink_at` 0, states must keep
their shapes, and the last id is `ids[:, i]`.

Shapes: B batch, R examples of it that are still in the search, N beams,
V vocabulary, L longest limit, T ids so far (the initial id and one for each
step).

Reference: Wu et al. (2016), section 7; tensor2tensor, `utils/beam_search.py`.
"""

import tensorflow as tf

from relpos_tf.decoding import beam_step

NO_HYPOTHESIS = beam_step.NO_HYPOTHESIS


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
    *,
    context=(),
    constrain=None,
    shrink_at=0.0,
):
    """Finds the continuations of `initial_ids` with the best scores.

    See the module's docstring for when a search ends.

    Args:
        symbols_to_logits_fn: With `states`, a function of (ids `[B * N, T]`
            int32, i int32 scalar = T - 1, states `[B * N, ...]`) that returns
            (logits `[B * N, V]`, states); without, of ids, returning logits;
            with `context`, of (ids, i, states, context), returning all three.
        initial_ids: `[B]` integer tensor: the id each example begins with.
        beam_size: int, N >= 1.
        decode_length: Largest number of ids to add: integer scalar or `[B]`.
        vocab_size: int, V >= 2.
        alpha: float >= 0. 0 ranks by log-probability.
        states: None, or any structure of tensors `[B, ...]`, repeated for the
            beams here. All axes but the first and the last may grow.
        eos_id: int. The id that ends a hypothesis.
        stop_early: bool. Whether to stop once the best hypothesis is certain.
        context: Any structure of tensors `[B, ...]` that beams share; axes of
            length 0 may grow.
        constrain: None, or a function of (ids `[B * N, T]`, i, log_probs
            `[B * N, V]`, context) that returns log_probs with -inf where an id
            must not follow. A hypothesis that nothing may follow is lost.
        shrink_at: float in [0, 1). With a `[B]` `decode_length`, the share of
            examples still active at which the others leave the batch.

    Returns:
        ids `[B, N, T]` int32, the initial id first and zeros after EOS; scores
        `[B, N]` float32 (an empty place: `NO_HYPOTHESIS`, and zeros as ids);
        states `[B, N, ...]`; None without, and for a `[B]` `decode_length`.

    Raises:
        ValueError: an argument is not as described.
    """
    initial_ids = tf.cast(initial_ids, tf.int32)
    limits = tf.cast(decode_length, tf.int32)
    search = beam_step.Search(
        symbols_to_logits_fn,
        beam_size,
        limits,
        vocab_size,
        alpha,
        eos_id,
        stop_early,
        constrain,
    )
    check(search, initial_ids)
    beginning = () if states is None else states
    state = initial_state(search, initial_ids, beginning, context)
    if limits.shape.rank:
        state = run_shrinking(search, state, shrink_at)
        return *results(search, state, best_of_each), None
    state = run(search, state)
    last = None if states is None else by_beam(state, beam_size)
    return *results(search, state, best_of_batch), last


def results(search, state, ranking):
    """Returns ids `[B, N, T]` and scores `[B, N]` of the best hypotheses."""
    ids, scores = ranking(search, state)  # [B, N, L + 1], [B, N]
    scores = tf.maximum(scores, NO_HYPOTHESIS)
    ids = tf.where(scores[:, :, tf.newaxis] > NO_HYPOTHESIS, ids, 0)
    return ids[:, :, : state.step + 1], scores


def by_beam(state, beam_size):
    """Returns the states, reshaped from `[B * N, ...]` to `[B, N, ...]`."""
    batch_size = beam_step.sizes(state.alive_log_probs)[0]
    beams = [batch_size, beam_size]
    return tf.nest.map_structure(
        lambda t: tf.reshape(t, beams + beam_step.sizes(t)[1:]), state.states
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


def run(search, state, least_active=0):
    """Takes steps while more than `least_active` examples are active.

    Args:
        search: `beam_step.Search`.
        state: `beam_step.BeamState` to begin with.
        least_active: int or int32 scalar.

    Returns:
        The last `BeamState`.
    """

    def goes_on(*state):
        active = beam_step.is_active(search, beam_step.BeamState(*state))
        return tf.math.count_nonzero(active, dtype=tf.int32) > least_active

    shapes = [part.shape for part in state[:-2]]
    shapes.append(tf.nest.map_structure(growing_shape, state.states))
    shapes.append(tf.nest.map_structure(beam_step.filling_shape, state.context))
    return tf.while_loop(
        goes_on,
        lambda *state: beam_step.advance(search, beam_step.BeamState(*state)),
        state,
        beam_step.BeamState(*shapes),
    )


def run_shrinking(search, state, shrink_at):
    """Searches to the end, in ever smaller batches.

    Returns:
        The last `BeamState` of every example; its states are ().
    """
    if not shrink_at:
        return run(search, state)._replace(states=(), context=())
    fixed = list(state[1:-2])  # the hypotheses
    examples = tf.range(tf.shape(search.limits)[0])  # [R]
    loop = [state.step, fixed, fixed, state.states]
    loop += [examples, search.limits, state.context]

    def turn(step, results, current, states, examples, limits, context):
        part = search._replace(limits=limits)
        size = tf.cast(tf.shape(examples)[0], tf.float32)
        state = run(
            part,
            beam_step.BeamState(step, *current, states, context),
            tf.cast(shrink_at * size, tf.int32),
        )
        places = examples[:, tf.newaxis]
        results = [
            tf.tensor_scatter_nd_update(all_, places, some)
            for all_, some in zip(results, state[1:-2], strict=True)
        ]
        left = tf.where(beam_step.is_active(part, state))[:, 0]  # [new R]
        beams = tf.range(search.beam_size, dtype=tf.int64)
        rows = left[:, tf.newaxis] * search.beam_size + beams
        rows = tf.reshape(rows, [-1])  # [new R * N]

        def keep(tensor):
            return tf.gather(tensor, left)

        return (
            state.step,
            results,
            [keep(tensor) for tensor in state[1:-2]],
            tf.nest.map_structure(lambda t: tf.gather(t, rows), state.states),
            keep(examples),
            keep(limits),
            tf.nest.map_structure(keep, state.context),
        )

    step, results, *_ = tf.while_loop(
        lambda *loop: tf.size(loop[4]) > 0,
        turn,
        loop,
        [
            tf.TensorShape([]),
            *tf.nest.map_structure(any_rows, [fixed, fixed]),
            tf.nest.map_structure(
                lambda t: any_rows(t, growing_shape(t)), state.states
            ),
            *tf.nest.map_structure(any_rows, loop[4:-1]),
            tf.nest.map_structure(
                lambda t: any_rows(t, beam_step.filling_shape(t)), state.context
            ),
        ],
    )
    return beam_step.BeamState(step, *results, ())


def initial_state(search, initial_ids, states, context=()):
    """Returns the `BeamState` before the first step."""
    batch_size, beam_size = *beam_step.sizes(initial_ids), search.beam_size
    states = tf.nest.map_structure(
        lambda part: tf.repeat(part, beam_size, axis=0), states
    )
    # An empty batch has no longest limit, hence the 0.
    longest = tf.maximum(tf.reduce_max(search.limits), 0)
    ids = tf.zeros([batch_size, beam_size, longest + 1], tf.int32)
    is_first = tf.range(longest + 1) == 0  # [L + 1]
    # All beams are equal at first, so all but one must not count.
    log_probs = tf.constant([[0.0] + [-float("inf")] * (beam_size - 1)])
    return beam_step.BeamState(
        step=tf.constant(0),
        alive_ids=tf.where(is_first, initial_ids[:, None, None], ids),
        alive_log_probs=tf.tile(log_probs, [batch_size, 1]),
        finished_ids=ids,
        finished_scores=tf.fill([batch_size, beam_size], NO_HYPOTHESIS),
        finished_flags=tf.fill([batch_size, beam_size], False),
        states=states,
        context=context,
    )


def best_of_batch(_, state):
    """Returns tensor2tensor's ids `[B, N, L + 1]` and scores `[B, N]`."""
    ended = tf.reduce_any(state.finished_flags, axis=1, keepdims=True)
    ids = tf.where(ended[..., None], state.finished_ids, state.alive_ids)
    return ids, tf.where(ended, state.finished_scores, state.alive_log_probs)


def best_of_each(search, state):
    """Returns ids `[B, N, L + 1]` and scores `[B, N]`, finished ones first."""
    scores = state.alive_log_probs
    scores /= beam_step.length_penalty(search.limits, search.alpha)[
        :, tf.newaxis
    ]
    # Only the limit can have ended the search of an example that is open.
    is_cut = beam_step.is_open(search, state)
    scores = tf.where(is_cut[:, tf.newaxis], scores, NO_HYPOTHESIS)
    scores = tf.concat([state.finished_scores, scores], axis=1)  # [B, 2 N]
    ids = tf.concat([state.finished_ids, state.alive_ids], axis=1)
    empty = tf.cast(~state.finished_flags, tf.int32)  # behind the finished
    empty = tf.reduce_sum(empty, axis=1, keepdims=True)  # [B, 1]
    best = tf.range(search.beam_size)  # [N]
    best += tf.where(best < search.beam_size - empty, 0, empty)  # [B, N]
    return beam_step.take(ids, best), beam_step.take(scores, best)


def growing_shape(tensor):
    """Returns a tensor's shape, open in all axes but the first and last."""
    axes = tensor.shape.as_list()
    return tf.TensorShape(axes[:1] + [None] * len(axes[1:-1]) + axes[1:][-1:])


def any_rows(tensor, shape=None):
    """Returns a tensor's shape, or one of its rank, open in the first axis."""
    return tf.TensorShape([None]).concatenate((shape or tensor.shape)[1:])
