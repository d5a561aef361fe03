"""Search with a model, ids in and ids out.

Here, and only here, the model meets beam search.

Shapes: B batch, N beams (`n_best` of them are returned), S source length,
T target length, V vocabulary, H heads, D depth per head.
"""

import tensorflow as tf

from relpos_tf import beam_search
from relpos_tf.models import transformer


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
    limit = tf.shape(inputs)[1] + decode_length
    return _search(model, inputs, limit, beam_size, alpha, n_best)


def search(
    model: transformer.Transformer,
    inputs: tf.Tensor,
    limits: tf.Tensor,
    *,
    beam_size: int,
    alpha: float | tf.Tensor,
    n_best: int = 1,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Translates sentences that do not know of one another.

    The first translation does not depend on `n_best`.

    Args:
        model: The model.
        inputs: `[B, S]` integer tensor of source ids, ending in EOS, padded
            with 0.
        limits: `[B]` integer tensor. How many ids each translation may have,
            EOS included; 0 gives no ids and the score 0.
        beam_size: int, N. 1 is greedy search.
        alpha: float or scalar tensor. Of the length penalty.
        n_best: int. How many translations of each sentence to return.

    Returns:
        A pair: ids, int32 `[B, n_best, T]`, best first, EOS last and then
        zeros; no EOS where the limit cut a translation off; and scores,
        float32 `[B, n_best]`.

    Raises:
        ValueError: there are not that many beams or pieces.
    """
    return _search(model, inputs, limits, beam_size, alpha, n_best)


def _search(model, inputs, limits, beam_size, alpha, n_best):
    """Runs beam search over the model's cached steps."""
    vocab_size = model.hparams.vocab_size
    if not 1 <= n_best <= beam_size <= vocab_size:
        raise ValueError(
            "Expected 1 <= n_best <= beam_size <= vocab_size. Received: "
            f"n_best={n_best}, beam_size={beam_size}, vocab_size={vocab_size}."
        )
    cache = model.init_cache(inputs)

    def next_logits(ids, i, layers):
        # The source is the same for all beams, so only the targets' part of
        # the cache is a state of the search.
        logits, grown = model.step(
            ids[:, i, tf.newaxis], cache._replace(layers=layers), i
        )
        return logits[:, 0], grown.layers  # [B * N, V], [B * N, H, T, D]

    ids, scores, _ = beam_search.beam_search(
        next_logits,
        tf.zeros([tf.shape(inputs)[0]], tf.int32),
        beam_size,
        limits,
        vocab_size,
        alpha,
        states=cache.layers,
        # The best hypothesis is certain before the others are.
        stop_early=n_best == 1,
    )
    return ids[:, :n_best, 1:], scores[:, :n_best]


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
