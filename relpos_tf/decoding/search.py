"""Beam search and sampling with a model, from ids to ids.

Only this module knows both the model and the search.

Shapes: B batch, N beams (`n_best` of them are returned), S source length,
T target length, V vocabulary.
"""

from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import tensorflow as tf

from relpos_tf.decoding import beam_search
from relpos_tf.decoding import constraints
from relpos_tf.decoding import sampling
from relpos_tf.layers import losses
from relpos_tf.models import transformer

# Once half of the sentences have ended, they leave the batch.
SHRINK_AT = 0.5


def translate_ids(
    model: transformer.Transformer,
    inputs: tf.Tensor,
    *,
    beam_size: int,
    alpha: float,
    decode_length: int,
    n_best: int = 1,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Translates a batch as tensor2tensor does.

    All sentences may grow to `S + decode_length` ids, and the search ends for
    all at once. So the padding of a batch matters; in `search`, it does not.

    Args:
        model: The model.
        inputs: `[B, S]` integer tensor of source ids, ending in EOS, padded
            with 0.
        beam_size: int, N. With 1, EOS is also tried where it is second.
        alpha: float. Of the length penalty.
        decode_length: int. How many ids more than S a translation may have.
        n_best: int. How many translations of each sentence to return.

    Returns:
        A pair: ids, int32 `[B, n_best, T]`, best first, EOS last and then
        zeros; and scores, float32 `[B, n_best]`.

    Raises:
        ValueError: there are fewer beams than `n_best`, or fewer pieces than
            beams.
    """
    limit = tf.shape(inputs)[1] + decode_length
    ids, scores, _ = _search(
        model, inputs, constraints.Limits(limit), beam_size, alpha, n_best
    )
    return ids, scores


def search(
    model: transformer.Transformer,
    inputs: tf.Tensor,
    limits: tf.Tensor | constraints.Limits,
    *,
    beam_size: int,
    alpha: float | tf.Tensor,
    n_best: int = 1,
    shrink_at: float = SHRINK_AT,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Translates each sentence as if it were alone in its batch.

    The first translation does not depend on `n_best`.

    Args:
        model: The model.
        inputs: `[B, S]` integer tensor of source ids, ending in EOS, padded
            with 0.
        limits: `Limits`, or their `lengths` alone.
        beam_size: int, N. 1 is greedy search.
        alpha: float or scalar tensor. Of the length penalty.
        n_best: int. How many translations of each sentence to return.
        shrink_at: float. See `beam_search.run`.

    Returns:
        A pair: ids, int32 `[B, n_best, T]`, best first, EOS last and then
        zeros; no EOS where the limit cut a translation off; and scores,
        float32 `[B, n_best]`, from the model's probabilities, which `limits`
        do not change. If `limits` allow no translation: zeros, and
        `beam_search.NO_HYPOTHESIS`.

    Raises:
        ValueError: there are fewer beams than `n_best`, or fewer pieces than
            beams.
    """
    ids, scores, _ = _search(
        model, inputs, _limits(limits), beam_size, alpha, n_best, shrink_at
    )
    return ids, scores


def search_within(
    model: transformer.Transformer,
    inputs: tf.Tensor,
    lengths: tf.Tensor,
    *,
    max_length: int | tf.Tensor,
    beam_size: int,
    alpha: float | tf.Tensor,
    n_best: int = 1,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Searches with constant shapes, for XLA and LiteRT.

    Every step attends to `max_length` positions. XLA must know the shape of
    `inputs` and `max_length`, but not `lengths`, so one program serves all
    lines of a size. Elsewhere, `search` is faster.

    Args:
        model: The model.
        inputs: See `search`.
        lengths: int32 `[B]`: the most ids of each translation.
        max_length: int or scalar tensor. The size of the cache, perhaps less
            than `lengths`.
        beam_size: int. See `search`.
        alpha: float or scalar tensor. See `search`.
        n_best: int. See `search`.

    Returns:
        A triple: ids, int32 `[B, n_best, T]`, and scores, as from `search`;
        and bool `[B]`: True where `search` might find something else, because
        there was no room for longer translations.

    Example:

    >>> from relpos_tf import hparam
    >>> hparams = hparam.HParams(vocab_size=11, hidden_size=16)
    >>> model = transformer.Transformer(hparams.replace(num_hidden_layers=1))
    >>> @tf.function(jit_compile=True)
    ... def translate(inputs):
    ...     return search_within(
    ...         model, inputs, [4], max_length=4, beam_size=2, alpha=0.6
    ...     )
    >>> translate(tf.constant([[5, 1]]))[1].shape.as_list()
    [1, 1]
    """
    return _search(
        model,
        inputs,
        _limits(lengths),
        beam_size,
        alpha,
        n_best,
        max_length=max_length,
    )


def _limits(limits):
    """Returns `Limits` of these, or of lengths alone."""
    if isinstance(limits, constraints.Limits):
        return limits
    return constraints.Limits(tf.convert_to_tensor(limits))


class _Shared(NamedTuple):
    """The tensors `[B, ...]` that the hypotheses of a sentence share."""

    memory: tuple  # of `DecoderCache`
    may_attend: tf.Tensor  # of `DecoderCache`
    prefix: tf.Tensor  # of `Limits`; `[B, 0]` if it has none


def _decoder(
    model: transformer.Transformer,
    inputs: tf.Tensor,
    limits: constraints.Limits,
    max_length: int | tf.Tensor | None = None,
) -> tuple[Callable[..., tuple[tf.Tensor, Any]], Any, _Shared]:
    """Returns what beam search and sampling need of a model.

    Returns:
        A triple: the `step` of `beam_search.Search`; the states `[B, ...]`
        before the first one; and `shared`.
    """
    whole = model.init_cache(inputs, max_length=max_length)
    prefix = limits.prefix
    if prefix is None:
        prefix = tf.zeros([tf.shape(inputs)[0], 0], tf.int32)

    def step(ids, i, states, shared):
        cache = whole._replace(
            layers=states, memory=shared.memory, may_attend=shared.may_attend
        )
        # Not ids[:, -1], which XLA misplaces.
        logits, cache = model.step(ids[:, i, tf.newaxis], cache, i)
        return logits[:, 0], cache.layers  # [B * N, V]

    shared = _Shared(whole.memory, whole.may_attend, prefix)
    return step, whole.layers, shared


def _search(
    model,
    inputs,
    limits,
    beam_size,
    alpha,
    n_best,
    shrink_at=0.0,
    max_length=None,
):
    """Searches; `search_within` describes the result."""
    vocab_size = model.hparams.vocab_size
    if not 1 <= n_best <= beam_size <= vocab_size:
        raise ValueError(
            "Expected 1 <= n_best <= beam_size <= vocab_size. Received: "
            f"n_best={n_best}, beam_size={beam_size}, vocab_size={vocab_size}."
        )
    step, states, shared = _decoder(model, inputs, limits, max_length)
    search = beam_search.Search(
        step,
        limits.lengths,
        beam_size,
        vocab_size,
        alpha,
        # The best hypothesis is certain before the others are.
        stop_early=n_best == 1,
        shared=shared,
        constrain=limits.constrain if limits.is_constrained else None,
        room=max_length,
    )
    ids, scores, state = beam_search.run(
        search,
        tf.zeros(tf.shape(inputs)[:1], tf.int32),
        states,
        shrink_at,
    )
    is_cut = beam_search.needs_room(search, state)
    return ids[:, :n_best, 1:], scores[:, :n_best], is_cut


def sample(
    model: transformer.Transformer,
    inputs: tf.Tensor,
    limits: tf.Tensor | constraints.Limits,
    numbers: tf.Tensor,
    *,
    how: sampling.Sampling,
    alpha: float | tf.Tensor,
    n_best: int = 1,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Draws translations of each sentence as if it were alone.

    Args:
        model: The model.
        inputs: See `search`.
        limits: See `search`.
        numbers: int32 `[B]`: a number of its own for each sentence. With the
            seed it decides what is drawn.
        how: `sampling.Sampling`.
        alpha: float or scalar tensor. Of the length penalty.
        n_best: int. How many translations of each sentence to draw.

    Returns:
        See `search`.
    """
    limits = _limits(limits)
    step, states, shared = _decoder(model, inputs, limits)
    # Each translation to draw is a sentence with one hypothesis.
    states, prefix = tf.nest.map_structure(
        lambda t: tf.repeat(t, n_best, axis=0), (states, shared.prefix)
    )
    shared = shared._replace(prefix=prefix)

    def constrain(ids, i, log_probs):
        return limits.constrain(ids, i, log_probs, shared)

    lengths = tf.repeat(limits.lengths, n_best)  # [B * n_best]
    longest = tf.maximum(tf.reduce_max(lengths), 0)
    ids, log_probs = sampling.sample(
        lambda ids, i, states: step(ids, i, states, shared),
        tf.zeros_like(lengths),
        lengths,
        sampling.uniforms(how.seed, numbers, n_best, longest),
        how,
        states=states,
        constrain=constrain if limits.is_constrained else None,
    )
    # The length is the limit if there is no EOS.
    sizes = tf.math.count_nonzero(ids[:, 1:], axis=1, dtype=tf.int32)
    scores = log_probs / beam_search.length_penalty(sizes, alpha)
    scores = tf.maximum(scores, beam_search.NO_HYPOTHESIS)
    scores, order = tf.math.top_k(tf.reshape(scores, [-1, n_best]), n_best)
    ids = tf.reshape(ids[:, 1:], [-1, n_best, tf.shape(ids)[1] - 1])
    return beam_search.take(ids, order), scores


def log_probabilities(
    model: transformer.Transformer, inputs: tf.Tensor, targets: tf.Tensor
) -> tf.Tensor:
    """Returns the log-probabilities of given translations.

    Args:
        model: The model.
        inputs: `[B, S]` integer tensor of source ids, padded with 0.
        targets: `[B, T]` integer tensor of target ids, padded with 0.

    Returns:
        float32 `[B]`: natural logarithms, not divided by a length penalty.
    """
    token_losses, _ = losses.token_losses(
        model.features(inputs, targets), model.softmax_table(), targets
    )  # [B, T]
    return -tf.reduce_sum(tf.where(targets == 0, 0.0, token_losses), axis=1)
