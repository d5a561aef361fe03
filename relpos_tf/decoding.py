"""Search with a model, ids in and ids out.

Here, and only here, the model meets beam search.

Shapes: B batch, N beams (`n_best` of them are returned), S source length,
T target length, V vocabulary.
"""

from typing import NamedTuple

import tensorflow as tf

from relpos_tf import beam_search
from relpos_tf import beam_step
from relpos_tf import constraints
from relpos_tf import sampling
from relpos_tf.models import transformer

# Once half of the sentences of a batch have ended, the others go on alone.
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

    All sentences may grow by the same number of ids, `S + decode_length`, and
    the search ends for all at once. So the padding of a batch counts; `search`
    is for those who want a sentence's translation to be its own affair.

    Args:
        model: The model.
        inputs: `[B, S]` integer tensor of source ids, ending in EOS, padded
            with 0.
        beam_size: int, N. 1 is greedy search.
        alpha: float. Of the length penalty.
        decode_length: int. How many ids more than S a translation may have.
        n_best: int. How many translations of each sentence to return.

    Returns:
        A pair: ids, int32 `[B, n_best, T]`, best first, EOS last and then
        zeros; and scores, float32 `[B, n_best]`.

    Raises:
        ValueError: there are not that many beams or pieces.
    """
    limits = Limits(tf.shape(inputs)[1] + decode_length)
    return _search(model, inputs, limits, beam_size, alpha, n_best)


class Limits(NamedTuple):
    """What a translation may look like.

    Attributes:
        lengths: int32 `[B]`: how many ids each translation may have, EOS
            included; 0 gives no ids and the score 0.
        prefix: None, or int32 `[B, P]`, padded with 0: the ids that each
            translation begins with.
        min_length: int. How many ids must come before EOS.
        no_repeat_ngram_size: int. No n-gram of this size comes twice; 0: any
            may.
    """

    lengths: tf.Tensor
    prefix: tf.Tensor | None = None
    min_length: int = 0
    no_repeat_ngram_size: int = 0

    def constrain(self, ids, i, log_probs, context):
        """Applies all but the lengths, for `beam_search.beam_search`."""
        rows = tf.shape(ids)[0]
        if self.no_repeat_ngram_size:
            log_probs = constraints.forbid_repetition(
                log_probs, ids, self.no_repeat_ngram_size
            )
        if self.min_length:
            log_probs = constraints.forbid_end(log_probs, i, self.min_length)
        if self.prefix is not None:
            prefix = context.prefix
            beams = rows // tf.maximum(tf.shape(prefix)[0], 1)
            prefix = tf.repeat(prefix, beams, axis=0)  # [B * N, P]
            log_probs = constraints.force_prefix(log_probs, i, prefix)
        return log_probs


class Context(NamedTuple):
    """What belongs to a sentence and not to one of its hypotheses, `[B, ...]`.

    Attributes:
        layers: of `BeamCache`; the only part that changes.
        memory: of `BeamCache`.
        bias: of `BeamCache.source`.
        prefix: of `Limits`; `[B, 0]` without.
    """

    layers: tuple
    memory: tuple
    bias: tf.Tensor
    prefix: tf.Tensor

    @classmethod
    def of(cls, cache, limits):
        """Returns the context of a search with a `BeamCache` and `Limits`."""
        batch_size = tf.shape(cache.source.bias)[0]
        prefix = limits.prefix
        if prefix is None:
            prefix = tf.zeros([batch_size, 0], tf.int32)
        return cls(cache.layers, cache.memory, cache.source.bias, prefix)

    def cache(self, whole):
        """Returns a `BeamCache`, with what all sentences share from `whole`."""
        return whole._replace(
            layers=self.layers,
            memory=self.memory,
            source=whole.source._replace(bias=self.bias),
        )


def search(
    model: transformer.Transformer,
    inputs: tf.Tensor,
    limits: tf.Tensor | Limits,
    *,
    beam_size: int,
    alpha: float | tf.Tensor,
    n_best: int = 1,
    shrink_at: float = SHRINK_AT,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Translates sentences that do not know of one another.

    The first translation does not depend on `n_best`.

    Args:
        model: The model.
        inputs: `[B, S]` integer tensor of source ids, ending in EOS, padded
            with 0.
        limits: `Limits`, or their `lengths` alone.
        beam_size: int, N. 1 is greedy search.
        alpha: float or scalar tensor. Of the length penalty.
        n_best: int. How many translations of each sentence to return.
        shrink_at: float. See `beam_search.beam_search`; 0 for XLA.

    Returns:
        A pair: ids, int32 `[B, n_best, T]`, best first, EOS last and then
        zeros; no EOS where the limit cut a translation off; and scores,
        float32 `[B, n_best]`, from the probabilities that the model gives
        whether or not something was forced or forbidden.

    Raises:
        ValueError: there are not that many beams or pieces.
    """
    if not isinstance(limits, Limits):
        limits = Limits(tf.convert_to_tensor(limits))
    return _search(model, inputs, limits, beam_size, alpha, n_best, shrink_at)


def _search(model, inputs, limits, beam_size, alpha, n_best, shrink_at=0.0):
    """Runs beam search over the model's cached steps."""
    vocab_size = model.hparams.vocab_size
    if not 1 <= n_best <= beam_size <= vocab_size:
        raise ValueError(
            "Expected 1 <= n_best <= beam_size <= vocab_size. Received: "
            f"n_best={n_best}, beam_size={beam_size}, vocab_size={vocab_size}."
        )
    whole = model.init_beams(inputs)
    batch_size = tf.shape(inputs)[0]

    def next_logits(ids, i, ancestors, context):
        rows = tf.shape(ids)[0]
        # A hypothesis goes back to itself at the position that it adds.
        own = tf.tile(tf.range(beam_size), [rows // beam_size])
        own = own[:, tf.newaxis, tf.newaxis]
        ancestors = tf.concat([ancestors, own], 1)  # [B * N, T, 1]
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
        vocab_size,
        alpha,
        states=tf.zeros([batch_size, 0, 1], tf.int32),
        # The best hypothesis is certain before the others are.
        stop_early=n_best == 1,
        context=Context.of(whole, limits),
        constrain=limits.constrain if is_constrained(limits) else None,
        shrink_at=shrink_at,
    )
    return ids[:, :n_best, 1:], scores[:, :n_best]


class Sampling(NamedTuple):
    """How to draw translations at random; see `sampling.draw`."""

    temperature: float | tf.Tensor = 1.0
    top_k: int = 0
    top_p: float | tf.Tensor = 1.0
    seed: int | tf.Tensor = 1


def sample(
    model: transformer.Transformer,
    inputs: tf.Tensor,
    limits: tf.Tensor | Limits,
    numbers: tf.Tensor,
    *,
    how: Sampling,
    alpha: float | tf.Tensor,
    n_best: int = 1,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Draws translations of sentences that do not know of one another.

    Args:
        model: The model.
        inputs: See `search`.
        limits: See `search`.
        numbers: int32 `[B]`: with the seed and the place among the drawn ones,
            they decide what is drawn.
        how: `Sampling`.
        alpha: float or scalar tensor. Of the length penalty.
        n_best: int. How many translations of each sentence to draw.

    Returns:
        As `search`: ids `[B, n_best, T]`, the best scores first, and scores
        `[B, n_best]`.
    """
    if not isinstance(limits, Limits):
        limits = Limits(tf.convert_to_tensor(limits))
    whole = model.init_beams(inputs)
    batch_size = tf.shape(inputs)[0]
    # Nothing is shared by those drawn: each is a source with one hypothesis.
    context = tf.nest.map_structure(
        lambda tensor: tf.repeat(tensor, n_best, axis=0),
        Context.of(whole, limits),
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
        constrain=constrain if is_constrained(limits) else None,
    )
    # Without an end, the length is the limit.
    sizes = tf.math.count_nonzero(ids[:, 1:], axis=1, dtype=tf.int32)
    scores = log_probs / beam_step.length_penalty(sizes, alpha)
    ids = tf.reshape(ids[:, 1:], [batch_size, n_best, tf.shape(ids)[1] - 1])
    scores, order = tf.math.top_k(
        tf.reshape(scores, [batch_size, n_best]), n_best
    )
    return beam_step.take(ids, order), scores


def is_constrained(limits: Limits) -> bool:
    """Says whether there is more to keep to than lengths."""
    return bool(
        limits.prefix is not None
        or limits.min_length
        or limits.no_repeat_ngram_size
    )


def log_probabilities(
    model: transformer.Transformer, inputs: tf.Tensor, targets: tf.Tensor
) -> tf.Tensor:
    """Returns how probable the model finds given translations.

    Args:
        model: The model.
        inputs: `[B, S]` integer tensor of source ids, padded with 0.
        targets: `[B, T]` integer tensor of target ids, padded with 0.

    Returns:
        float32 `[B]`: the natural logarithm of each translation's
        probability, not divided by a length penalty.
    """
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=targets, logits=model(inputs, targets)
    )  # [B, T]
    return -tf.reduce_sum(tf.where(targets == 0, 0.0, losses), axis=1)
