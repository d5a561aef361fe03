"""Beam search with GNMT's length penalty, as tensor2tensor runs it.

The score of a finished hypothesis is its log-probability divided by
`((5 + length) / 6) ** alpha`; length counts EOS but not the initial id.

With a limit for each example, every example ends by itself: at its limit, or
when no alive hypothesis can beat the best finished one (`stop_early`) or the
worst finished one (otherwise). Neighbours change only rounding and the number
of zeros behind an example's ids. If the limit ends an example, unfinished
hypotheses follow the finished ones, with the penalty of `limit` ids. Id 0,
padding, follows nothing. One beam is greedy search.

With one limit for all, the results are tensor2tensor's (`beam_search`). The
batch stops as one, by the worst finished hypothesis of all. An example without
a finished hypothesis returns its alive ones, with log-probabilities *not*
divided by the penalty. Id 0 is an id as any other. With one beam, EOS is also
tried where it is second.

Under XLA `max_length` must be constant, `shrink_at` 0, states must keep their
shapes, and the last id is `ids[:, i]`. `max_length` may be below the limit of
an example, which then has no hypothesis unless it ends by itself.

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
from relpos_tf.utils import text

take = functools.partial(tf.gather, batch_dims=1)

NO_HYPOTHESIS = decode_hparam.NO_HYPOTHESIS


class Search(NamedTuple):
    """The arguments of a search.

    `step` maps (ids int32 `[B * N, T]`, i = T - 1, states, shared) to logits
    `[B * N, V]` and the states. `constrain` maps (ids, i, log_probs
    `[B * N, V]`, shared) to log_probs with -inf for ids that must not follow;
    a hypothesis that no id may follow is dropped.
    """

    step: Callable[..., tuple[tf.Tensor, Any]]
    limits: tf.Tensor  # int32 [B]: the most ids to add; or [], for all of them
    beam_size: int  # N >= 1
    vocab_size: int  # V >= 2
    alpha: float | tf.Tensor  # >= 0; 0 ranks by log-probability
    eos_id: int = text.EOS_ID  # the id that ends a hypothesis
    stop_early: bool = True  # whether only the best hypothesis is wanted
    shared: Any = ()  # any structure of [B, ...] that beams share
    constrain: Callable[..., tf.Tensor] | None = None
    max_length: int | tf.Tensor | None = None  # ids there is room for


class Hypotheses(NamedTuple):
    """The hypotheses of each example, best first."""

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


def run(
    search: Search,
    initial_ids: tf.Tensor,
    states: Any = (),
    shrink_at: float = 0.0,
) -> tuple[tf.Tensor, tf.Tensor, BeamState]:
    """Finds the best continuations.

    Args:
        search: `Search`.
        initial_ids: integer `[B]`: the id each example begins with.
        states: Tensors `[B, ...]`, repeated for the beams here. Axes of length
            0, or of unknown length, may grow.
        shrink_at: float in [0, 1). The share of active examples at which the
            others leave the batch; with limits `[B]`.

    Returns:
        ids `[B, N, T]` int32, the initial id first and zeros after EOS; scores
        `[B, N]` float32 (an empty place: `NO_HYPOTHESIS`, and zeros as ids);
        and the last `BeamState`.

    Raises:
        ValueError: an argument is not as described.
    """
    initial_ids = tf.cast(initial_ids, tf.int32)
    _check(search, initial_ids, shrink_at)
    state = _initial_state(search, initial_ids, states)
    if shrink_at:
        state = _run_shrinking(search, state, shrink_at)
    else:
        state = _run_together(search, state)
    return *_best(search, state), state


def beam_search(
    symbols_to_logits_fn: Callable[..., Any],
    initial_ids: tf.Tensor,
    beam_size: int,
    decode_length: int | tf.Tensor,
    vocab_size: int,
    alpha: float,
    states: Any = None,
    eos_id: int = text.EOS_ID,
    stop_early: bool = True,
) -> tuple[tf.Tensor, tf.Tensor, Any]:
    """Finds the best continuations, with tensor2tensor's arguments and results.

    Args:
        symbols_to_logits_fn: With `states`, a function of (ids `[B * N, T]`
            int32, i = T - 1, states `[B * N, ...]`) that returns (logits
            `[B * N, V]`, states); without, of ids, returning logits.
        initial_ids: See `run`.
        beam_size: See `Search`.
        decode_length: integer scalar. The most ids to add.
        vocab_size: See `Search`.
        alpha: See `Search`.
        states: None, or tensors `[B, ...]`, repeated for the beams here. All
            axes but the first and the last may grow.
        eos_id: See `Search`.
        stop_early: See `Search`.

    Returns:
        ids and scores, as of `run`, and states `[B, N, ...]`, or None.
    """

    def step(ids, i, states, shared):
        del shared
        if not tf.nest.flatten(states):
            return symbols_to_logits_fn(ids), states
        return symbols_to_logits_fn(ids, i, states)

    limit = tf.cast(decode_length, tf.int32)
    search = Search(
        step, limit, beam_size, vocab_size, alpha, eos_id, stop_early
    )
    is_stateless = states is None
    states = tf.nest.map_structure(
        _with_open_axes, () if is_stateless else states
    )
    ids, scores, last = run(search, initial_ids, states)
    if is_stateless:
        return ids, scores, None
    beams = [sizes(scores)[0], beam_size]
    last = tf.nest.map_structure(
        lambda t: tf.reshape(t, beams + sizes(t)[1:]), last.states
    )
    return ids, scores, last


def _with_open_axes(tensor):
    """Returns a tensor whose first and last axes alone the graph knows."""
    tensor = tf.convert_to_tensor(tensor)
    axes = tensor.shape.as_list()
    shape = axes[:1] + [None] * len(axes[1:-1]) + axes[1:][-1:]
    return tf.raw_ops.PlaceholderWithDefault(input=tensor, shape=shape)


def _check(search, initial_ids, shrink_at):
    """Raises ValueError for arguments that cannot be searched with."""
    shape, limits = initial_ids.shape, search.limits.shape
    valid = shape.rank == 1 and limits.rank in (0, 1)
    valid &= limits.rank == 0 or limits.is_compatible_with(shape)
    # With a negative alpha the bound on future scores would not hold.
    valid &= tf.is_tensor(search.alpha) or search.alpha >= 0
    least = 1 if limits.rank == 1 else 0  # With own limits, 0 is padding.
    valid &= least <= search.eos_id < search.vocab_size
    valid &= shrink_at == 0 or (limits.rank == 1 and 0 < shrink_at < 1)
    if not valid or search.beam_size < 1 or search.vocab_size < 2:
        raise ValueError(
            "Expected initial_ids [batch], decode_length [] or [batch], "
            "beam_size >= 1, vocab_size >= 2, alpha >= 0, an eos_id below "
            "vocab_size, and shrink_at in [0, 1), or 0 for one length. "
            f"Received: initial_ids {shape}, {shrink_at=} and {search}."
        )


def _initial_state(search, initial_ids, states):
    """Returns the `BeamState` before the first step."""
    (batch_size,), beam_size = sizes(initial_ids), search.beam_size
    states = tf.nest.map_structure(
        lambda part: tf.repeat(part, beam_size, axis=0), states
    )
    longest = search.max_length
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
    return BeamState(tf.constant(0), hypotheses, states)


def _run_together(search, state, least_active=0):
    """Takes steps while more than `least_active` examples are active."""

    def goes_on(state):
        active = is_active(search, state)
        return tf.math.count_nonzero(active, dtype=tf.int32) > least_active

    (state,) = tf.while_loop(
        goes_on,
        lambda state: [advance(search, state)],
        [state],
        [_loop_shapes(state)],
    )
    return state


def _run_shrinking(search, state, shrink_at):
    """Searches to the end; examples that have ended leave the batch."""

    # examples [R]: the indices of those still searched, which have the other
    # arguments; results: the hypotheses of all B examples.
    def search_and_shrink(results, examples, limits, shared, state):
        part = search._replace(limits=limits, shared=shared)
        size = tf.cast(tf.size(examples), tf.float32)
        state = _run_together(part, state, tf.cast(shrink_at * size, tf.int32))
        results = tf.nest.map_structure(
            lambda all_, new: tf.tensor_scatter_nd_update(
                all_, examples[:, tf.newaxis], new
            ),
            results,
            state.hypotheses,
        )
        active = tf.where(is_active(part, state))[:, 0]  # [new R]
        beams = tf.range(search.beam_size, dtype=tf.int64)
        beams += active[:, tf.newaxis] * search.beam_size  # [new R, N]
        examples, limits, shared, hypotheses = _gather_rows(
            (examples, limits, shared, state.hypotheses), active
        )
        states = _gather_rows(state.states, tf.reshape(beams, [-1]))
        state = BeamState(state.step, hypotheses, states)
        return results, examples, limits, shared, state

    examples = tf.range(tf.shape(search.limits)[0])
    loop = state.hypotheses, examples, search.limits, search.shared, state
    shapes = tf.nest.map_structure(lambda t: _any_batch(t.shape), loop[:-1])
    shapes += (tf.nest.map_structure(_any_batch, _loop_shapes(state)),)
    results, *_, state = tf.while_loop(
        lambda results, examples, *_: tf.size(examples) > 0,
        search_and_shrink,
        loop,
        shapes,
    )
    return BeamState(state.step, results, states=())


def _gather_rows(structure, rows):
    """Returns some rows of each tensor of a structure."""
    return tf.nest.map_structure(lambda t: tf.gather(t, rows), structure)


def _penalty(search, length):
    """Returns the penalty of int32 lengths: float32, in their shape."""
    length = tf.cast(length, tf.float32)
    return decode_hparam.length_penalty(length, search.alpha)


def _is_greedy(search):
    """Returns whether each example has one beam and its own end."""
    return search.beam_size == 1 and search.limits.shape.rank == 1


def is_open(search: Search, hypotheses: Hypotheses) -> tf.Tensor:
    """Returns where an alive hypothesis may still improve the result: [B]."""
    if _is_greedy(search):
        return ~hypotheses.finished_flags[:, 0]
    # Log-probabilities only fall, and the limit has the largest penalty.
    bound = hypotheses.alive_log_probs[:, 0]  # [B]
    bound /= _penalty(search, search.limits)
    scores = hypotheses.finished_scores
    if search.stop_early:
        return tf.reduce_max(scores, axis=1) <= bound
    axis = 1 if search.limits.shape.rank else None  # None: of the whole batch
    return tf.reduce_min(scores, axis=axis) <= bound


def is_active(search: Search, state: BeamState) -> tf.Tensor:
    """Returns who takes a further step: bool [B], or [] for all together."""
    limits = search.limits
    if search.max_length is not None:
        limits = tf.minimum(limits, search.max_length)
    active = is_open(search, state.hypotheses) & (state.step < limits)
    return active if search.limits.shape.rank else tf.reduce_any(active)


def advance(search: Search, state: BeamState) -> BeamState:
    """Returns the `BeamState` after one more step of the active examples."""
    ids, log_probs, parents, states = _grow(search, state)
    old = state.hypotheses
    is_eos = ids[:, :, state.step + 1] == search.eos_id  # [B, C]
    # At most N of the 2 N candidates end, so N others can continue.
    going_on = tf.where(is_eos, -float("inf"), log_probs)
    alive_log_probs, alive = tf.math.top_k(going_on, search.beam_size)
    if _is_greedy(search):
        is_eos &= [True, False]  # The second best only replaces an EOS.
    scores = log_probs / _penalty(search, state.step + 1)
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
        _reorder(states, state.states, take(parents, alive)),
    )


def _grow(search, state):
    """Returns ids `[B, C, L + 1]` with one more, log_probs, parents, states."""
    alive_ids = state.hypotheses.alive_ids
    batch_size, beam_size, length = sizes(alive_ids)
    flat_ids = tf.reshape(alive_ids, [batch_size * beam_size, length])
    flat_ids = flat_ids[:, : state.step + 1]  # [B * N, T]
    logits, states = search.step(
        flat_ids, state.step, state.states, search.shared
    )
    if not logits.shape[-1:].is_compatible_with([search.vocab_size]):
        expected = f"Expected logits of shape [..., {search.vocab_size}]."
        raise ValueError(f"{expected} Received: shape {logits.shape}.")
    scores = tf.cast(logits, tf.float32)  # [B * N, V]
    if search.constrain:
        log_probs = tf.nn.log_softmax(scores)
        scores = search.constrain(
            flat_ids, state.step, log_probs, search.shared
        )
    scores = tf.reshape(scores, [batch_size, beam_size, search.vocab_size])
    log_probs, parents, tokens = best_candidates(
        scores,
        state.hypotheses.alive_log_probs,
        None if search.constrain else tf.nn.softmax(scores),
        without_padding=search.limits.shape.rank == 1,
    )
    ids = take(alive_ids, parents)  # [B, C, L + 1]
    ids = tf.where(tf.range(length) == state.step + 1, tokens[..., None], ids)
    return ids, log_probs, parents, states


def best_candidates(
    scores: tf.Tensor,
    log_probs: tf.Tensor,
    probabilities: tf.Tensor | None = None,
    without_padding: bool = False,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Finds the best continuations of all beams of each example.

    Sorting N * V sums would be slow. Each beam's scores are cut into M blocks:
    the C best sums lie in the C blocks with the largest maxima, and only these
    are sorted. Nor are all V log-probabilities computed: that of an id is its
    logit less the largest logit, plus the logarithm of the largest probability,
    differences of the size of log-probabilities, so that no digits are lost.

    Args:
        scores: float32 `[B, N, V]`: log-probabilities, or logits.
        log_probs: float32 `[B, N]`: of the beams.
        probabilities: float32 `[B, N, V]`: the softmax of logits.
        without_padding: bool. Whether id 0 is no candidate.

    Returns:
        Sums, parents (the beam of each) and tokens, all `[B, 2 N]`, best first;
        of equal sums, the first in the order of beams and ids.
    """
    batch_size, beam_size, vocab_size = sizes(scores)
    num_candidates = 2 * beam_size  # C
    if without_padding:  # id 0 may take the place of one in each beam
        num_candidates = min(3 * beam_size, beam_size * vocab_size)
    width = _block_width(vocab_size, num_candidates)  # W
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
    parents = block // per_beam
    if without_padding:
        sums = tf.where(tokens == 0, -float("inf"), sums)
        sums, others = tf.math.top_k(sums, 2 * beam_size)
        parents, tokens = take(parents, others), take(tokens, others)
    return sums, parents, tokens


def _block_width(vocab_size, num_candidates):
    """Returns the number of ids in a block, a divisor of the vocabulary."""
    # All of a small vocabulary; else near 64, which was fastest for 8,000.
    if vocab_size < 16 * num_candidates:
        return vocab_size
    divisors = [n for n in range(1, vocab_size + 1) if vocab_size % n == 0]
    return min(divisors, key=lambda n: abs(math.log(n / 64)))


def _reorder(states, old_states, parents):
    """Gathers the states `[B * N, ...]` of the beams `parents` `[B, N]`."""
    batch_size, beam_size = sizes(parents)
    rows = tf.range(batch_size)[:, tf.newaxis] * beam_size + parents

    def gather(new, old):
        # A part that the loop does not change is equal for all beams of an
        # example. Only in a traced step does "is" mean that for every step.
        constant = new is old and not tf.executing_eagerly()
        return old if constant else tf.gather(new, tf.reshape(rows, [-1]))

    return tf.nest.map_structure(gather, states, old_states)


def _best(search, state):
    """Returns ids `[B, N, T]` and scores `[B, N]` of the best hypotheses."""
    if search.limits.shape.rank:
        ids, scores = _best_of_each(search, state.hypotheses)
    else:
        ids, scores = _best_of_batch(state.hypotheses)
    scores = tf.maximum(scores, NO_HYPOTHESIS)
    ids = tf.where(scores[:, :, tf.newaxis] > NO_HYPOTHESIS, ids, 0)
    return ids[:, :, : state.step + 1], scores


def _best_of_batch(hypotheses):
    """Returns tensor2tensor's ids `[B, N, L + 1]` and scores `[B, N]`."""
    alive_ids, log_probs, finished_ids, scores, flags = hypotheses
    ended = tf.reduce_any(flags, axis=1, keepdims=True)  # [B, 1]
    ids = tf.where(ended[:, :, tf.newaxis], finished_ids, alive_ids)
    return ids, tf.where(ended, scores, log_probs)


def _best_of_each(search, hypotheses):
    """Returns ids `[B, N, L + 1]` and scores `[B, N]`, finished ones first."""
    alive_ids, scores, finished_ids, finished_scores, flags = hypotheses
    penalty = _penalty(search, search.limits)  # [B]
    scores /= penalty[:, tf.newaxis]
    # Only the limit can have ended the search of an example that is open.
    is_cut = is_open(search, hypotheses)
    scores = tf.where(is_cut[:, tf.newaxis], scores, NO_HYPOTHESIS)
    scores = tf.concat([finished_scores, scores], axis=1)  # [B, 2 N]
    if search.max_length is not None:
        # More ids could have improved what was found.
        is_unknown = is_cut & (search.max_length < search.limits)
        scores = tf.where(is_unknown[:, tf.newaxis], NO_HYPOTHESIS, scores)
    ids = tf.concat([finished_ids, alive_ids], axis=1)
    empty = tf.cast(~flags, tf.int32)  # behind the finished ones
    empty = tf.reduce_sum(empty, axis=1, keepdims=True)  # [B, 1]
    best = tf.range(search.beam_size)  # [N]
    best += tf.where(best < search.beam_size - empty, 0, empty)  # [B, N]
    return take(ids, best), take(scores, best)


def _loop_shapes(state):
    """Returns the shapes of a `BeamState` in a loop: some axes may grow."""
    return BeamState(
        state.step.shape,
        tf.nest.map_structure(lambda t: t.shape, state.hypotheses),
        tf.nest.map_structure(growing_shape, state.states),
    )


def growing_shape(tensor: tf.Tensor) -> tf.TensorShape:
    """Returns a tensor's shape, open in axes that are empty so far."""
    return tf.TensorShape([size or None for size in tensor.shape])


def _any_batch(shape):
    """Returns a shape, open in the first axis if there is one."""
    return tf.TensorShape([None] * len(shape[:1])).concatenate(shape[1:])


def sizes(tensor: tf.Tensor) -> list[int | tf.Tensor]:
    """Returns the lengths of a tensor's axes: ints where they are known."""
    shape = tf.shape(tensor)
    return [shape[i] if n is None else n for i, n in enumerate(tensor.shape)]
