"""Beam search and sampling with a model, from ids to ids.

Only this module knows both the model and the search.

Shapes: B batch, N beams (`n_best` of them are returned), S source length,
T target length, V vocabulary.
"""

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
    limits = constraints.Limits(tf.shape(inputs)[1] + decode_length)
    return search(
        model, inputs, limits, beam_size=beam_size, alpha=alpha, n_best=n_best
    )


class Context(NamedTuple):
    """The tensors `[B, ...]` that the hypotheses of a sentence share.

    Attributes:
        layers: of `BeamCache`; the only part that changes.
        memory: of `BeamCache`.
        bias: of `BeamCache.source`.
        prefix: of `Limits`; `[B, 0]` if it has none.
    """

    layers: tuple
    memory: tuple
    bias: tf.Tensor
    prefix: tf.Tensor

    @classmethod
    def of(cls, cache, limits):
        """Returns the context of a search with a `BeamCache` and `Limits`."""
        batch_size = tf.shape(cache.source.mask_bias)[0]
        prefix = limits.prefix
        if prefix is None:
            prefix = tf.zeros([batch_size, 0], tf.int32)
        return cls(cache.layers, cache.memory, cache.source.mask_bias, prefix)

    def cache(self, whole):
        """Returns the `BeamCache` of these sentences of a `whole` one."""
        return whole._replace(
            layers=self.layers,
            memory=self.memory,
            source=whole.source._replace(mask_bias=self.bias),
        )


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
        shrink_at: float. See `beam_search.beam_search`.

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
    if not isinstance(limits, constraints.Limits):
        limits = constraints.Limits(tf.convert_to_tensor(limits))
    check_sizes(model, beam_size, n_best)
    whole = model.init_beams(inputs)
    batch_size = tf.shape(inputs)[0]

    def next_logits(ids, i, ancestors, context):
        rows = tf.shape(ids)[0]
        # At the position that it adds, a hypothesis is its own ancestor.
        own = tf.tile(tf.range(beam_size), [rows // beam_size])
        ancestors = tf.concat([ancestors, own[:, None, None]], 1)  # [.., T, 1]
        logits, cache = model.step_beams(
            ids[:, i],
            context.cache(whole),
            tf.reshape(ancestors, [rows // beam_size, beam_size, i + 1]),
        )
        return logits, ancestors, context._replace(layers=cache.layers)

    ids, scores, _ = beam_search.beam_search(
        next_logits,
        tf.zeros([batch_size], tf.int32),
        beam_size,
        limits.lengths,
        model.hparams.vocab_size,
        alpha,
        states=tf.zeros([batch_size, 0, 1], tf.int32),
        # The best hypothesis is certain before the others are.
        stop_early=n_best == 1,
        context=Context.of(whole, limits),
        constrain=limits.constrain if limits.is_constrained else None,
        shrink_at=shrink_at,
    )
    return ids[:, :n_best, 1:], scores[:, :n_best]


def search_fixed(
    model: transformer.Transformer,
    inputs: tf.Tensor,
    lengths: tf.Tensor,
    *,
    max_length: int | None,
    beam_size: int,
    alpha: float,
    n_best: int = 1,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Searches with constant shapes, for XLA.

    Every step attends to `max_length` positions. Without XLA, `search` is
    faster. XLA must know the shape of `inputs`, and all `lengths`.

    Args:
        model: The model.
        inputs: See `search`.
        lengths: int32 `[B]`: the most ids of each translation, at most
            `max_length`.
        max_length: int. The size of the cache; None: it grows, which XLA does
            not compile.
        beam_size: int. See `search`.
        alpha: float. See `search`.
        n_best: int. See `search`.

    Returns:
        See `search`.

    Example:

    >>> from relpos_tf import hparam
    >>> hparams = hparam.HParams(vocab_size=11, hidden_size=16)
    >>> model = transformer.Transformer(hparams.replace(num_hidden_layers=1))
    >>> @tf.function(jit_compile=True)
    ... def translate(inputs):
    ...     return search_fixed(
    ...         model, inputs, [4], max_length=4, beam_size=2, alpha=0.6
    ...     )
    >>> translate(tf.constant([[5, 1]]))[1].shape.as_list()
    [1, 1]
    """
    ids, scores, _ = _search_fixed(
        model, inputs, lengths, max_length, None, beam_size, alpha, n_best
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
    """Searches with constant shapes for translations of at most `max_length`.

    XLA must know the shape of `inputs`, and not `lengths`. So one program
    serves all lines of a size.

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
    """
    return _search_fixed(
        model, inputs, lengths, max_length, max_length, beam_size, alpha, n_best
    )


def _search_fixed(
    model, inputs, lengths, max_length, longest, beam_size, alpha, n_best
):
    """Searches with a cache for each hypothesis, `[B * N, H, T, D]`.

    Args:
        model: The model.
        inputs: See `search`.
        lengths: See `search_fixed`.
        max_length: See `search_fixed`.
        longest: See `beam_search.beam_search`.
        beam_size: See `search`.
        alpha: See `search`.
        n_best: See `search`.

    Returns:
        See `search_within`; the last one is None without `longest`.
    """
    check_sizes(model, beam_size, n_best)
    cache = model.init_cache(inputs, max_length=max_length)

    def next_logits(ids, i, layers):
        # Not ids[:, -1], which XLA misplaces.
        logits, written = model.step(
            ids[:, i, tf.newaxis], cache._replace(layers=layers), i
        )
        return logits[:, 0], written.layers  # [B * N, V], [B * N, H, T, D]

    ids, scores, is_cut = beam_search.beam_search(
        next_logits,
        tf.zeros(tf.shape(inputs)[:1], tf.int32),
        beam_size,
        lengths,
        model.hparams.vocab_size,
        alpha,
        states=cache.layers,
        stop_early=n_best == 1,
        longest=longest,
    )
    return ids[:, :n_best, 1:], scores[:, :n_best], is_cut


def check_sizes(model, beam_size: int, n_best: int) -> None:
    """Raises ValueError unless n_best <= beam_size <= vocab_size."""
    vocab_size = model.hparams.vocab_size
    if not 1 <= n_best <= beam_size <= vocab_size:
        raise ValueError(
            "Expected 1 <= n_best <= beam_size <= vocab_size. Received: "
            f"n_best={n_best}, beam_size={beam_size}, vocab_size={vocab_size}."
        )


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
    if not isinstance(limits, constraints.Limits):
        limits = constraints.Limits(tf.convert_to_tensor(limits))
    whole = model.init_beams(inputs)
    batch_size = tf.shape(inputs)[0]
    # Each translation to draw is a sentence with one hypothesis.
    context = tf.nest.map_structure(
        lambda t: tf.repeat(t, n_best, axis=0), Context.of(whole, limits)
    )

    def next_logits(ids, i, layers):
        logits, cache = model.step_beams(
            ids[:, i],
            context._replace(layers=layers).cache(whole),
            tf.zeros([tf.shape(ids)[0], 1, i + 1], tf.int32),
        )
        return logits, cache.layers

    def constrain(ids, i, log_probs):
        return limits.constrain(ids, i, log_probs, context)

    lengths = tf.repeat(limits.lengths, n_best)  # [B * n_best]
    longest = tf.maximum(tf.reduce_max(lengths), 0)
    ids, log_probs = sampling.sample(
        next_logits,
        tf.zeros([batch_size * n_best], tf.int32),
        lengths,
        sampling.uniforms(how.seed, numbers, n_best, longest),
        temperature=how.temperature,
        top_k=how.top_k,
        top_p=how.top_p,
        states=context.layers,
        constrain=constrain if limits.is_constrained else None,
    )
    # The length is the limit if there is no EOS.
    sizes = tf.math.count_nonzero(ids[:, 1:], axis=1, dtype=tf.int32)
    scores = log_probs / beam_search.length_penalty(sizes, alpha)
    scores = tf.maximum(scores, beam_search.NO_HYPOTHESIS)
    ids = tf.reshape(ids[:, 1:], [batch_size, n_best, tf.shape(ids)[1] - 1])
    scores, order = tf.math.top_k(
        tf.reshape(scores, [batch_size, n_best]), n_best
    )
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
