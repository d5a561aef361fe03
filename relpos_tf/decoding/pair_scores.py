"""Log-probabilities of given translations, in batches of similar lengths."""

import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from relpos_tf.decoding import model_engine
from relpos_tf.decoding import search
from relpos_tf.decoding import translator as translator_lib
from relpos_tf.utils import graphs


def log_probabilities(
    translator: translator_lib.Translator,
    pairs: Sequence[tuple[str, str]],
) -> list[tuple[float, int]]:
    """Computes the log-probabilities of given translations.

    Args:
        translator: A translator with a model, not with an export.
        pairs: Pairs of a line and a translation of it.

    Returns:
        For each pair, the natural logarithm of the translation's probability,
        and its number of tokens, with EOS.
    """
    engine: Any = translator.engine  # of a model
    ids = tf.TensorSpec([None, None], tf.int32)
    function = graphs.function(
        functools.partial(search.log_probabilities, engine.model),
        input_signature=[ids, ids],
    )
    sources, targets = (
        [item.content for item in engine.items(list(lines))]
        for lines in zip(*pairs, strict=True)
    )
    sizes = [max(map(len, pair)) for pair in zip(sources, targets, strict=True)]
    log_probs = [0.0] * len(pairs)
    for batch in translator_lib.make_batches(sizes):
        batch_log_probs = function(
            model_engine.padded([sources[i] for i in batch]),
            model_engine.padded([targets[i] for i in batch]),
        )
        for i, value in zip(batch, batch_log_probs.numpy(), strict=True):
            log_probs[i] = float(value)
    return [(p, len(t)) for p, t in zip(log_probs, targets, strict=True)]
