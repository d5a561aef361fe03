"""One training step, on one device or on many.

Shapes: B batch, S source length, T target length.
"""

from collections.abc import Callable

import tensorflow as tf

from relpos_tf import losses
from relpos_tf.layers import dropout


def compile_step(
    strategy,
    model,
    optimizer,
    element_spec,
    *,
    random_seed: int = 1,
    jit_compile: bool = False,
) -> Callable:
    """Returns the function that trains on one batch of every replica.

    The loss is the sum over all tokens of all replicas over their number, so
    that N replicas with unequal batches make the very update that one replica
    makes with all of them.

    Args:
        strategy: `tf.distribute.Strategy`. The model and the optimizer were
            made in its scope.
        model: a Transformer, or any model called with inputs and targets
            that has `hparams`.
        optimizer: `optimizers.Adam` of the model's trainable variables.
        element_spec: of the distributed dataset. The one signature of the
            function, so that it is traced once.
        random_seed: int. Dropout masks follow from it, from the step and
            from the replica.
        jit_compile: bool. Whether XLA compiles the gradients; every new shape
            then costs seconds.

    Returns:
        A function of one element, a dict with `inputs` `[B, S]` and `targets`
        `[B, T]`, that returns a dict of float32 scalars summed over replicas:
        `loss` (nats), `target_tokens` and `source_tokens`.
    """
    gradients = _gradient_function(model, model.hparams.label_smoothing)
    if jit_compile:
        gradients = tf.function(gradients, jit_compile=True)

    def replica_step(batch):
        context = tf.distribute.get_replica_context()
        inputs, targets = batch["inputs"], batch["targets"]
        own = _count(targets)
        tokens = context.all_reduce("SUM", own)
        seed = [random_seed, 0]
        for number in (optimizer.step, context.replica_id_in_sync_group):
            seed = tf.random.experimental.stateless_fold_in(seed, number)
        total, own_gradients = gradients(inputs, targets, tokens, seed)
        optimizer.apply(context.all_reduce("SUM", own_gradients))
        return {
            "loss": total,
            "target_tokens": own,
            "source_tokens": _count(inputs),
        }

    def step(batch):
        results = strategy.run(replica_step, args=(batch,))
        return {
            name: strategy.reduce("SUM", value, axis=None)
            for name, value in results.items()
        }

    return tf.function(step, input_signature=[element_spec])


def _gradient_function(model, label_smoothing):
    """Returns the function that computes one replica's share of a step."""
    variables = [v.value for v in model.trainable_variables]

    def gradients(inputs, targets, tokens, seed):
        with tf.GradientTape() as tape, dropout.seed_scope(seed):
            logits = model(inputs, targets, training=True)
            total, _ = losses.padded_cross_entropy(
                logits, targets, label_smoothing
            )
            loss = total / tf.maximum(tokens, 1.0)
        # Dense, because sums over replicas, norms and updates would count the
        # duplicate rows of an IndexedSlices apart.
        return total, [
            tf.convert_to_tensor(g) for g in tape.gradient(loss, variables)
        ]

    return gradients


def _count(ids):
    return tf.reduce_sum(tf.cast(tf.not_equal(ids, 0), tf.float32))
