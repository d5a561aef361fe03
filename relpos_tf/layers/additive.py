"""Additive compatibility of a query and a key (Bahdanau et al., 2014).

Shapes: B batch, H heads, Q queries, K keys, D depth per head.
"""

import tensorflow as tf


def logits(q, k, score_vectors, pair_vectors=None):
    """Computes e[i, j] = u . tanh(q[i] + k[j] + a[i, j]) for each head.

    Nothing is scaled: tanh is bounded. Unlike a dot product this builds a
    `[B, H, Q, K, D]` tensor, for which long sentences are expensive.

    Args:
        q: `[B, H, Q, D]` queries.
        k: `[B, H, K, D]` keys.
        score_vectors: `[H, D]`, u.
        pair_vectors: None, or vectors a of the pairs: `[Q, K, D]`, or
            `[H, Q, K, D]` if each head has its own; Q may be 1 for all.

    Returns:
        `[B, H, Q, K]`.

    Example:

    >>> q, k = tf.constant([[[[1.0]]]]), tf.constant([[[[-1.0], [99.0]]]])
    >>> logits(q, k, tf.constant([[3.0]])).numpy().tolist()
    [[[[0.0, 3.0]]]]

    Reference:
        [Bahdanau et al., 2014](https://arxiv.org/abs/1409.0473), appendix A.
    """
    both = q[:, :, :, tf.newaxis] + k[:, :, tf.newaxis]  # [B, H, Q, K, D]
    if pair_vectors is not None:
        both += pair_vectors
    u = score_vectors[:, tf.newaxis, tf.newaxis]  # [H, 1, 1, D]
    return tf.reduce_sum(tf.tanh(both) * u, -1)
