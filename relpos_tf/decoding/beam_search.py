"""Beam search with GNMT's length penalty, as tensor2tensor runs it.

The score of a finished hypothesis is its log-probability divided by
`((5 + length) / 6) ** alpha`; length counts EOS but not the initial id.

A scalar `decode_length` gives tensor2tensor's results. The batch stops as one:
at the limit, or when for every example no alive hypothesis can beat the best
finished one (`stop_early`) or the worst finished one of the whole batch
(otherwise). An example without a finished hypothesis returns its alive ones,
with log-probabilities *not* divided by the penalty.

A `[B]` `decode_length` gives each example its own limit and its own end, by the
same bounds over that example only. Examples that have ended do not change any
more, and may leave the batch (`shrink_at`). Neighbours change only rounding and
the number of zeros behind an example's ids. If the limit ends an example,
unfinished hypotheses follow the finished ones, with the penalty of `limit` ids.
One beam is greedy search; with a scalar limit, EOS is also tried where it is
second.

Under XLA `decode_length` must be constant, `shrink_at` 0, states must keep
their shapes, and the last id is `ids[:, i]`.

Shapes: B batch, R examples that are still searched, N beams, V vocabulary,
L longest limit, T ids so far (the initial id and one for each step),
C candidates (2 N), M blocks of the vocabulary, W ids in a block (V = M W).

Reference: Wu et al. (2016), section 7; tensor2tensor, `utils/beam_search.py`.
"""

import functools
import math
from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import tensorflow as tf

from relpos_tf.decoding import decode_hparam

take = functools.partial(tf.gather, batch_dims=1)

NO_HYPOTHESIS = decode_hparam.NO_HYPOTHESIS


class Search(NamedTuple):
    """The arguments of `beam_search` that do not change from step to step."""

    symbols_to_logits_fn: Callable
    beam_size: int
    limits: tf.Tensor  # int32 []: all stop together; [B]: each on its own
    vocab_size: int
    alpha: float
    eos_id: int
    stop_early: bool
    constrain: Callable | None = None
    longest: int | None = None  # L; None: the largest limit


class Hypotheses(NamedTuple):
    """The hypotheses of each example, sorted, best first."""

    alive_ids: tf.Tensor  # int32 [B, N, L + 1], zeros behind the last id
    alive_log_probs: tf.Tensor  # float32 [B, N], -inf: not a hypothesis
    finished_ids: tf.Tensor  # int32 [B, N, L + 1], zeros behind the last id
    finished_scores: tf.Tensor  # float32 [B, N], NO_HYPOTHESIS if empty
    finished_flags: tf.Tensor  # bool [B, N], False if empty


class BeamState(NamedTuple):
    """The state between two steps."""

    step: tf.Tensor  # int32 [], steps taken
    hypotheses: Hypotheses
    states: Any  # structure of [B * N, ...], () if there are none
    context: Any = ()  # structure of [B, ...], () if there is none


class ShrinkingState(NamedTuple):
    """The state between two batches of `run_shrinking`."""

    results: Hypotheses  # of all B examples
    examples: tf.Tensor  # int32 [R], the indices of those still searched
    limits: tf.Tensor  # int32 [R]
    state: BeamState  # of the R examples


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
    longest=None,
):
    """Finds the best continuations; the module says when a search ends.

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
            `[B * N, V]`, context) that returns log_probs with -inf for each id
            that must not follow. A hypothesis that no id may follow is dropped.
        shrink_at: float in [0, 1). With a `[B]` `decode_length`, the share of
            examples still active at which the others leave the batch.
        longest: None or int: room for ids, if `decode_length` is `[B]`.

    Returns:
        ids `[B, N, T]` int32, the initial id first and zeros after EOS; scores
        `[B, N]` float32 (an empty place: `NO_HYPOTHESIS`, and zeros as ids);
        states `[B, N, ...]`, or None; for a `[B]` limit, `needs_room`.

    Raises:
        ValueError: an argument is not as described.
    """
    initial_ids = tf.cast(initial_ids, tf.int32)
    limits = tf.cast(decode_length, tf.int32)
    search = Search(
        symbols_to_logits_fn,
        beam_size,
        limits,
        vocab_size,
        alpha,
        eos_id,
        stop_early,
        constrain,
        longest,
    )
    check(search, initial_ids)
    state = initial_state(search, initial_ids, states, context)
    if limits.shape.rank:
        state = run_shrinking(search, state, shrink_at)
        return *best(search, state), needs_room(search, state)
    state = run(search, state)
    last = None if states is None else by_beam(state, beam_size)
    return *best(search, state), last


def check(search, initial_ids):
    """Raises ValueError for arguments that cannot be searched with."""
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


def initial_state(search, initial_ids, states, context=()):
    """Returns the `BeamState` before the first step."""
    batch_size, beam_size = *sizes(initial_ids), search.beam_size
    states = tf.nest.map_structure(
        lambda part: tf.repeat(part, beam_size, axis=0),
        () if states is None else states,
    )
    longest = search.longest
    if longest is None:
        # An empty batch has no longest limit, hence the 0.
        longest = tf.maximum(tf.reduce_max(search.limits), 0)
    ids = tf.zeros([batch_size, beam_size, longest + 1], tf.int32)
    is_first = tf.range(longest + 1) == 0  # [L + 1]
    # All beams are equal at first, so only one may count.
    log_probs = tf.constant([[0.0] + [-float("inf")] * (beam_size - 1)])
    hypotheses = Hypotheses(
        alive_ids=tf.where(is_first, initial_ids[:, None, None], ids),
        alive_log_probs=tf.tile(log_probs, [batch_size, 1]),
        finished_ids=ids,
        finished_scores=tf.fill([batch_size, beam_size], NO_HYPOTHESIS),
        finished_flags=tf.fill([batch_size, beam_size], False),
    )
    return BeamState(tf.constant(0), hypotheses, states, context)


def run(search, state, least_active=0):
    """Takes steps while more than `least_active` examples are active.

    Args:
        search: `Search`.
        state: `BeamState` to begin with.
        least_active: int or int32 scalar.

    Returns:
        The last `BeamState`.
    """

    def goes_on(state):
        active = is_active(search, state)
        return tf.math.count_nonzero(active, dtype=tf.int32) > least_active

    (state,) = tf.while_loop(
        goes_on,
        lambda state: [advance(search, state)],
        [state],
        [loop_shapes(state)],
    )
    return state


def run_shrinking(search, state, shrink_at):
    """Searches to the end, in ever smaller batches.

    Whenever no more than the share `shrink_at` of the examples is active, the
    hypotheses of all are stored, and the search goes on with the active ones.

    Returns:
        The last `BeamState` of every example; its states are ().
    """
    if not shrink_at:
        return run(search, state)._replace(states=(), context=())

    def search_and_shrink(loop):
        part = search._replace(limits=loop.limits)
        size = tf.cast(tf.size(loop.examples), tf.float32)
        state = run(part, loop.state, tf.cast(shrink_at * size, tf.int32))
        rows = loop.examples[:, tf.newaxis]
        results = tf.nest.map_structure(
            lambda all_, new: tf.tensor_scatter_nd_update(all_, rows, new),
            loop.results,
            state.hypotheses,
        )
        active = tf.where(is_active(part, state))[:, 0]  # [new R]
        beams = tf.range(search.beam_size, dtype=tf.int64)
        beams += active[:, tf.newaxis] * search.beam_size  # [new R, N]
        beams = tf.reshape(beams, [-1])
        keep = functools.partial(gather_rows, rows=active)
        return [
            ShrinkingState(
                results,
                keep(loop.examples),
                keep(loop.limits),
                BeamState(
                    state.step,
                    keep(state.hypotheses),
                    gather_rows(state.states, beams),
                    keep(state.context),
                ),
            )
        ]

    batch_size = tf.shape(search.limits)[0]
    loop = ShrinkingState(
        state.hypotheses, tf.range(batch_size), search.limits, state
    )
    any_size = tf.TensorShape([None])
    (loop,) = tf.while_loop(
        lambda loop: tf.size(loop.examples) > 0,
        search_and_shrink,
        [loop],
        [
            ShrinkingState(
                tf.nest.map_structure(any_batch, shapes_of(loop.results)),
                any_size,
                any_size,
                tf.nest.map_structure(any_batch, loop_shapes(state)),
            )
        ],
    )
    return BeamState(loop.state.step, loop.results, states=())


def gather_rows(structure, rows):
    """Returns some rows of each tensor of a structure."""
    return tf.nest.map_structure(lambda t: tf.gather(t, rows), structure)


def length_penalty(length, alpha):
    """Returns GNMT's penalty of lengths: float32, in their shape."""
    return ((5.0 + tf.cast(length, tf.float32)) / 6.0) ** alpha


def is_greedy(search):
    """Returns whether each example has one beam and its own end."""
    return search.beam_size == 1 and search.limits.shape.rank == 1


def is_open(search, hypotheses):
    """Returns where an alive hypothesis may still improve the result: [B]."""
    if is_greedy(search):
        return ~hypotheses.finished_flags[:, 0]
    # Log-probabilities only fall, and the limit has the largest penalty.
    bound = hypotheses.alive_log_probs[:, 0]  # [B]
    bound /= length_penalty(search.limits, search.alpha)
    scores = hypotheses.finished_scores
    if search.stop_early:
        return tf.reduce_max(scores, axis=1) <= bound
    axis = 1 if search.limits.shape.rank else None  # None: of the whole batch
    return tf.reduce_min(scores, axis=axis) <= bound


def is_active(search, state):
    """Returns who takes a further step: bool [B], or [] for all together."""
    active = is_open(search, state.hypotheses)  # [B]
    active &= state.step < search.limits
    if search.longest is not None:
        active &= state.step < search.longest
    return active if search.limits.shape.rank else tf.reduce_any(active)


def needs_room(search, state):
    """Returns where more room might change the result: [B], None: nowhere."""
    if search.longest is None:
        return None
    return is_active(search._replace(longest=None), state)


def advance(search, state):
    """Returns the `BeamState` after one more step of the active examples."""
    ids, log_probs, parents, states, context = grow(search, state)
    old = state.hypotheses
    is_eos = ids[:, :, state.step + 1] == search.eos_id  # [B, C]
    # At most N of the 2 N candidates end, so N others can go on.
    going_on = tf.where(is_eos, -float("inf"), log_probs)
    alive_log_probs, alive = tf.math.top_k(going_on, search.beam_size)
    if is_greedy(search):
        is_eos &= [True, False]  # The second best only replaces an EOS.
    scores = log_probs / length_penalty(state.step + 1, search.alpha)
    scores = tf.where(is_eos, scores, -float("inf"))
    scores = tf.concat([old.finished_scores, scores], axis=1)  # [B, N + C]
    finished_scores, finished = tf.math.top_k(scores, search.beam_size)
    flags = tf.concat([old.finished_flags, is_eos], axis=1)
    finished_ids = tf.concat([old.finished_ids, ids], axis=1)
    new = Hypotheses(
        take(ids, alive),
        alive_log_probs,
        take(finished_ids, finished),
        finished_scores,
        take(flags, finished),
    )
    active = tf.reshape(is_active(search, state), [-1, 1])  # [B or 1, 1]

    def update(new, old):
        is_new = active if new.shape.rank == 2 else active[:, :, tf.newaxis]
        return tf.where(is_new, new, old)

    return BeamState(
        state.step + 1,
        tf.nest.map_structure(update, new, old),
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
    alive_ids = state.hypotheses.alive_ids
    batch_size, beam_size, length = sizes(alive_ids)
    flat_ids = tf.reshape(alive_ids, [batch_size * beam_size, length])
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
    if search.constrain:
        scores = search.constrain(
            flat_ids, state.step, tf.nn.log_softmax(scores), context
        )
    scores = tf.reshape(scores, [batch_size, beam_size, search.vocab_size])
    log_probs, parents, tokens = best_candidates(
        scores,
        state.hypotheses.alive_log_probs,
        None if search.constrain else tf.nn.softmax(scores),
    )
    ids = take(alive_ids, parents)  # [B, C, L + 1]
    ids = tf.where(tf.range(length) == state.step + 1, tokens[..., None], ids)
    return ids, log_probs, parents, states, context


def best_candidates(scores, log_probs, probabilities=None):
    """Finds the best continuations of all beams of each example.

    Sorting N * V sums would be slow. Each beam's scores are therefore cut into
    M blocks: the C best sums lie in the C blocks with the largest maxima, and
    only these are sorted. Nor are all V log-probabilities computed: that of an
    id is its logit less the largest logit, plus the logarithm of the largest
    probability. The differences are of the size of log-probabilities, so the
    sums lose no digits.

    Args:
        scores: float32 `[B, N, V]`: log-probabilities, or logits if there are
            `probabilities`.
        log_probs: float32 `[B, N]`: of the beams.
        probabilities: float32 `[B, N, V]`: the softmax of `scores`.

    Returns:
        Sums, parents (the beam of each) and tokens, all `[B, C]`, best first;
        of equal sums, the first in the order of beams and ids.
    """
    batch_size, beam_size, vocab_size = sizes(scores)
    num_candidates = 2 * beam_size  # C
    width = block_width(vocab_size, num_candidates)  # W
    per_beam = vocab_size // width  # M
    blocks = tf.reshape(scores, [batch_size, beam_size, per_beam, width])
    maxima = tf.reduce_max(blocks, axis=3)  # [B, N, M]
    largest = tf.zeros([batch_size, beam_size])
    if probabilities is not None:
        largest = tf.reduce_max(maxima, axis=2)
        # The largest probability is in the same block as the largest logit.
        best_block = tf.argmax(maxima, axis=2, output_type=tf.int32)
        highest = tf.gather(
            tf.reshape(probabilities, tf.shape(blocks)),
            best_block,
            batch_dims=2,
        )  # [B, N, W]
        log_probs += tf.math.log(tf.reduce_max(highest, axis=2))
    maxima -= largest[:, :, tf.newaxis]
    maxima += log_probs[:, :, tf.newaxis]
    num_blocks = min(num_candidates, beam_size * per_beam)  # K
    maxima = tf.reshape(maxima, [batch_size, beam_size * per_beam])
    # Sorted by index, so that of equal sums the first is taken.
    chosen = tf.sort(tf.math.top_k(maxima, num_blocks).indices)  # [B, K]
    beams = chosen // per_beam
    blocks = tf.reshape(blocks, [batch_size, beam_size * per_beam, width])
    sums = take(blocks, chosen)  # [B, K, W]
    sums -= take(largest, beams)[:, :, tf.newaxis]
    sums += take(log_probs, beams)[:, :, tf.newaxis]
    sums = tf.reshape(sums, [batch_size, num_blocks * width])
    sums, indices = tf.math.top_k(sums, num_candidates)  # [B, C]
    block = take(chosen, indices // width)
    tokens = block % per_beam * width + indices % width
    return sums, block // per_beam, tokens


def block_width(vocab_size, num_candidates):
    """Returns the number of ids in a block, a divisor of the vocabulary."""
    # All of a small vocabulary; else near 64, which was fastest for 8,000.
    if vocab_size < 16 * num_candidates:
        return vocab_size
    divisors = [n for n in range(1, vocab_size + 1) if vocab_size % n == 0]
    return min(divisors, key=lambda n: abs(math.log(n / 64)))


def reorder(states, old_states, parents):
    """Gathers the states `[B * N, ...]` of the beams `parents` `[B, N]`."""
    batch_size, beam_size = sizes(parents)
    rows = tf.range(batch_size)[:, tf.newaxis] * beam_size + parents

    def gather(new, old):
        # A part that the loop does not change is equal for all beams of an
        # example. Only in a traced step does "is" mean that for every step.
        constant = new is old and not tf.executing_eagerly()
        return old if constant else tf.gather(new, tf.reshape(rows, [-1]))

    return tf.nest.map_structure(gather, states, old_states)


def best(search, state):
    """Returns ids `[B, N, T]` and scores `[B, N]` of the best hypotheses."""
    if search.limits.shape.rank:
        ids, scores = best_of_each(search, state.hypotheses)
    else:
        ids, scores = best_of_batch(state.hypotheses)
    scores = tf.maximum(scores, NO_HYPOTHESIS)
    ids = tf.where(scores[:, :, tf.newaxis] > NO_HYPOTHESIS, ids, 0)
    return ids[:, :, : state.step + 1], scores


def best_of_batch(hypotheses):
    """Returns tensor2tensor's ids `[B, N, L + 1]` and scores `[B, N]`."""
    alive_ids, log_probs, finished_ids, scores, flags = hypotheses
    ended = tf.reduce_any(flags, axis=1, keepdims=True)  # [B, 1]
    ids = tf.where(ended[:, :, tf.newaxis], finished_ids, alive_ids)
    return ids, tf.where(ended, scores, log_probs)


def best_of_each(search, hypotheses):
    """Returns ids `[B, N, L + 1]` and scores `[B, N]`, finished ones first."""
    alive_ids, scores, finished_ids, finished_scores, flags = hypotheses
    penalty = length_penalty(search.limits, search.alpha)  # [B]
    scores /= penalty[:, tf.newaxis]
    # Only the limit can have ended the search of an example that is open.
    is_cut = is_open(search, hypotheses)
    scores = tf.where(is_cut[:, tf.newaxis], scores, NO_HYPOTHESIS)
    scores = tf.concat([finished_scores, scores], axis=1)  # [B, 2 N]
    ids = tf.concat([finished_ids, alive_ids], axis=1)
    empty = tf.cast(~flags, tf.int32)  # behind the finished ones
    empty = tf.reduce_sum(empty, axis=1, keepdims=True)  # [B, 1]
    best = tf.range(search.beam_size)  # [N]
    best += tf.where(best < search.beam_size - empty, 0, empty)  # [B, N]
    return take(ids, best), take(scores, best)


def by_beam(state, beam_size):
    """Returns the states, reshaped from `[B * N, ...]` to `[B, N, ...]`."""
    batch_size = sizes(state.hypotheses.alive_log_probs)[0]
    beams = [batch_size, beam_size]
    return tf.nest.map_structure(
        lambda t: tf.reshape(t, beams + sizes(t)[1:]), state.states
    )


def loop_shapes(state):
    """Returns the shapes of a `BeamState` in a loop: some axes may grow."""
    return BeamState(
        state.step.shape,
        shapes_of(state.hypotheses),
        tf.nest.map_structure(growing_shape, state.states),
        tf.nest.map_structure(filling_shape, state.context),
    )


def shapes_of(structure):
    """Returns the shape of each tensor of a structure."""
    return tf.nest.map_structure(lambda tensor: tensor.shape, structure)


def growing_shape(tensor):
    """Returns a tensor's shape, open in all axes but the first and last."""
    axes = tensor.shape.as_list()
    return tf.TensorShape(axes[:1] + [None] * len(axes[1:-1]) + axes[1:][-1:])


def filling_shape(tensor):
    """Returns a tensor's shape, open in axes that are empty so far."""
    return tf.TensorShape([size or None for size in tensor.shape])


def any_batch(shape):
    """Returns a shape, open in the first axis if there is one."""
    return tf.TensorShape([None] * len(shape[:1])).concatenate(shape[1:])


def sizes(tensor):
    """Returns the lengths of a tensor's axes: ints where they are known."""
    shape = tf.shape(tensor)
    return [shape[i] if n is None else n for i, n in enumerate(tensor.shape)]
