"""Evaluation of a model that sees the reference: loss and accuracy.

Shapes: B batch, S source length, T target length, V vocabulary.
"""

import functools
from collections.abc import Callable
from collections.abc import Iterable

import numpy as np
import tensorflow as tf

from relpos_tf.layers import losses
from relpos_tf.models import transformer
from relpos_tf.utils import graphs


def teacher_forced(
    model: transformer.Transformer, dataset: Iterable[dict[str, tf.Tensor]]
) -> dict[str, float]:
    """Scores a model that sees the reference up to each position.

    Every token has the same weight, independent of its batch.

    Args:
        model: The model.
        dataset: Batches of `inputs`, int32 `[B, S]`, and `targets`, int32
            `[B, T]`, both padded with 0.

    Returns:
        dict: `loss`, in nats per target token, with EOS and without label
        smoothing; `teacher_forced_accuracy`, the fraction of target tokens
        that the model finds most probable; and `target_tokens`, their number.
    """
    function = _traced(model)
    sums = np.zeros(3)  # float64: a float32 sum stops growing at some size
    for batch in dataset:
        sums += function(batch["inputs"], batch["targets"])
    loss, correct, count = sums.tolist()
    return {
        "loss": loss / count,
        "teacher_forced_accuracy": correct / count,
        "target_tokens": int(count),
    }


@functools.lru_cache(1)
def _traced(model: transformer.Transformer) -> Callable:
    """Returns a model's traced function, the same one on every call.

    TensorFlow never frees a traced graph: one for each evaluation would fill
    the memory.

    It maps `inputs` and `targets` to three float32 scalars: the sum of the
    losses, the number of correct predictions, and the number of target tokens.
    """

    def sums(inputs, targets):
        loss, best = losses.token_losses(
            model.features(inputs, targets), model.softmax_table(), targets
        )  # [B, T] each
        is_token = targets != 0  # [B, T]
        correct = (best == targets) & is_token
        count = tf.cast(is_token, tf.float32)
        return (
            tf.reduce_sum(loss * count),
            tf.reduce_sum(tf.cast(correct, tf.float32)),
            tf.reduce_sum(count),
        )

    ids = tf.TensorSpec([None, None], tf.int32)
    return graphs.function(sums, input_signature=[ids, ids])
