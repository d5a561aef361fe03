"""Beam search and sampling with a model, from ids to ids.

Only this module knows both the model and the search.

Shapes: B batch, N beams (`n_best` of them are returned), S source length,
T target length, V vocabulary.
"""

from typing import NamedTuple

import tensorflow as tf

from relpos_tf.decoding import beam_search
from relpos_tf.decoding import constraints
from relpos_tf.decoding import decode_hparam
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
    return search(
        model,
        inputs,
        limit,
        beam_size=beam_size,
        alpha=alpha,
        n_best=n_best,
        shrink_at=0.0,
    )


def search(
    model: transformer.Transformer,
    inputs: tf.Tensor,
    limits: tf.Tensor | constraints.Constraints,
    *,
    beam_size: int,
    alpha: float | tf.Tensor,
    n_best: int = 1,
    shrink_at: float = SHRINK_AT,
    max_length: int | tf.Tensor | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Translates each sentence as if it were alone in its batch.

    The first translation does not depend on `n_best`.

    Args:
        model: The model.
        inputs: `[B, S]` integer tensor of source ids, ending in EOS, padded
            with 0.
        limits: `[B]` integers, the most ids of each translation, EOS
            included; or `Constraints`.
        beam_size: int, N. 1 is greedy search.
        alpha: float or scalar tensor. Of the length penalty.
        n_best: int. How many translations of each sentence to return.
        shrink_at: float. See `beam_search.run`.
        max_length: None, or int or scalar tensor: the ids of a translation
            that there is room for. All shapes are then constant, and every
            step attends to so many positions, as XLA and LiteRT need; XLA must
            know `max_length`, and the shape of `inputs`. Elsewhere, the search
            is slower then. A sentence with a larger limit, whose search is not
            over after `max_length` ids, has no translation.

    Returns:
        A pair: ids, int32 `[B, n_best, T]`, best first, EOS last and then
        zeros; no EOS where the limit cut a translation off; and scores,
        float32 `[B, n_best]`, from the model's probabilities, which `limits`
        do not change. If `limits` or `max_length` allow none: zeros and
        `beam_search.NO_HYPOTHESIS`.

    Raises:
        ValueError: there are fewer beams than `n_best`, or fewer pieces than
            beams.
    """
    vocab_size = model.hparams.vocab_size
    if not 1 <= n_best <= beam_size <= vocab_size:
        raise ValueError(
            "Expected 1 <= n_best <= beam_size <= vocab_size. Received: "
            f"n_best={n_best}, beam_size={beam_size}, vocab_size={vocab_size}."
        )
    limits = _constraints(limits)
    step, states, shared = _decoder(model, inputs, limits, max_length)
    settings = beam_search.Search(
        step,
        limits.limits,
        beam_size,
        vocab_size,
        alpha,
        # The best hypothesis is certain before the others are.
        stop_early=n_best == 1,
        shared=shared,
        constrain=limits.function(),
        max_length=max_length,
    )
    if max_length is not None:
        shrink_at = 0.0
    initial_ids = tf.zeros(tf.shape(inputs)[:1], tf.int32)
    ids, scores, _ = beam_search.run(settings, initial_ids, states, shrink_at)
    return ids[:, :n_best, 1:], scores[:, :n_best]


def _constraints(limits):
    """Returns `Constraints`, also of limits alone."""
    if isinstance(limits, constraints.Constraints):
        return limits
    return constraints.Constraints(tf.cast(limits, tf.int32))


class _Shared(NamedTuple):
    """The tensors `[B, ...]` that the hypotheses of a sentence share."""

    memory: tuple  # of `DecoderCache`
    may_attend: tf.Tensor  # of `DecoderCache`
    prefix: tf.Tensor  # of `Constraints`; `[B, 0]` if it has none


def _decoder(model, inputs, limits, max_length=None):
    """Returns what beam search and sampling need of a model.

    It is a triple: the `step` of `beam_search.Search`; the states `[B, ...]`
    before the first one; and `shared`.
    """
    whole = model.init_cache(inputs, max_length)
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


def sample(
    model: transformer.Transformer,
    inputs: tf.Tensor,
    limits: tf.Tensor | constraints.Constraints,
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
    limits = _constraints(limits)
    step, states, shared = _decoder(model, inputs, limits)
    # Each translation to draw is a sentence with one hypothesis.
    states, prefix = tf.nest.map_structure(
        lambda t: tf.repeat(t, n_best, axis=0), (states, shared.prefix)
    )
    shared = shared._replace(prefix=prefix)

    lengths = tf.repeat(limits.limits, n_best)  # [B * n_best]
    longest = tf.maximum(tf.reduce_max(lengths), 0)
    ids, log_probs = sampling.sample(
        step,
        lengths,
        sampling.uniforms(how.seed, numbers, n_best, longest),
        how,
        states=states,
        shared=shared,
        constrain=limits.function(),
    )
    # The length is the limit if there is no EOS.
    sizes = tf.math.count_nonzero(ids[:, 1:], axis=1, dtype=tf.float32)
    scores = log_probs / decode_hparam.length_penalty(sizes, alpha)
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
