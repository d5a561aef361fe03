"""One update of the weights: one or more batches, one or more replicas.

Shapes: B batch, S source length, T target length.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from relpos_tf.layers import dropout
from relpos_tf.layers import losses
from relpos_tf.training import optimizers
from relpos_tf.utils import graphs


def compile_step(
    strategy: tf.distribute.Strategy,
    model: Any,
    optimizer: optimizers.Adam,
    element_spec: Any,
    *,
    random_seed: int = 1,
    jit_compile: bool = False,
    accumulate_steps: int = 0,
) -> Callable:
    """Returns the function that makes one update.

    The loss is a mean over all tokens of the update, on all replicas and in
    all batches. So N replicas, or N accumulated batches, or both, with unequal
    numbers of tokens, make the same update as one replica with one batch.

    If the loss or a gradient is NaN or infinite, on any replica and in any
    batch, the update is skipped: neither the weights nor the optimizer's state
    change on any replica.

    With accumulation, the optimizer and the schedule count updates;
    tensor2tensor counts batches, and averages the means of the batches, so
    that a token has more weight in a batch with few tokens.

    Args:
        strategy: `tf.distribute.Strategy`. The model and the optimizer were
            created in its scope.
        model: a Transformer, or any model with `hparams`, `features` and
            `softmax_table`.
        optimizer: `optimizers.Adam` of the model's trainable variables.
        element_spec: the distributed dataset's, as the function's only
            signature: it is traced once.
        random_seed: int. Dropout masks are a function of this seed, the step,
            the replica and the batch's number in the update.
        jit_compile: bool. Whether XLA compiles the gradients and the update,
            for each replica; every new shape then costs seconds. For GPUs: on
            CPUs a step takes longer.
        accumulate_steps: int. Batches of an update, for each replica; 0 and 1
            are one. More batches take the memory of one, and of a copy of the
            weights for the sum of their gradients.

    Returns:
        A function of `accumulate_steps` elements, each a dict with `inputs`
        `[B, S]` and `targets` `[B, T]`. It returns a dict of float32 scalars,
        sums over replicas and batches: `loss` (nats), `target_tokens` and
        `source_tokens`; and `is_made`, a bool scalar: whether the update was
        made.
    """
    gradients = _gradient_function(model)
    apply: Callable = optimizer.apply
    if jit_compile:
        apply = optimizer.compiled()
        # Not the whole step: XLA refuses variables of another device. Under a
        # strategy a function is traced for each device, and each trace reads
        # the weights of its own replica.
        gradients = graphs.function(gradients, jit_compile=True)
    kind = _AccumulatingStep if accumulate_steps > 1 else _single_step
    parts = gradients, optimizer, apply
    return kind(strategy, *parts, element_spec, random_seed)


def _single_step(
    strategy, gradients, optimizer, apply, element_spec, random_seed
):
    """Returns the function that makes an update of one batch."""

    def replica_step(batch):
        context = tf.distribute.get_replica_context()
        own = _counts(batch)
        tokens = context.all_reduce("SUM", own["target_tokens"])
        total, own_gradients = gradients(
            batch, tokens, _seed(random_seed, optimizer.step)
        )
        *summed, loss = context.all_reduce("SUM", [*own_gradients, total])
        is_made = apply(summed, tf.math.is_finite(loss))
        return {"loss": total, **own}, is_made

    def step(batch):
        return _over_replicas(
            strategy, *strategy.run(replica_step, args=(batch,))
        )

    return graphs.function(step, input_signature=[element_spec])


class _AccumulatingStep:
    """Makes an update of several batches.

    The first call traces two functions, each once: `accumulate`, which adds
    one batch's gradients to each replica's sums, and `update`.

    Args:
        strategy: `tf.distribute.Strategy`.
        gradients: the function that `_gradient_function` returns.
        optimizer: `optimizers.Adam`.
        apply: its `apply`, or `compiled()`.
        element_spec: the distributed dataset's.
        random_seed: int.
    """

    def __init__(
        self, strategy, gradients, optimizer, apply, element_spec, random_seed
    ):
        self._strategy = strategy
        self._optimizer = optimizer
        self._apply = apply
        self._gradients = gradients
        self._random_seed = random_seed
        with strategy.scope():
            self._sums = [
                _own_variable(v.shape, v.dtype)
                for v in optimizer.variables.values()
            ]
            self._totals = {
                name: _own_variable([], tf.float32)
                for name in ("loss", "target_tokens", "source_tokens")
            }
        self.accumulate = graphs.function(
            self._accumulate,
            input_signature=[element_spec, tf.TensorSpec([], tf.int32)],
        )
        self.update = graphs.function(self._update, input_signature=[])

    def __call__(self, *batches):
        for number, batch in enumerate(batches):
            self.accumulate(batch, tf.constant(number))
        return self.update()

    def _accumulate(self, batch, number):
        self._strategy.run(self._accumulate_own, args=(batch, number))

    def _accumulate_own(self, batch, number):
        """Adds a batch to a replica's sums; the first batch replaces them."""
        seed = _seed(self._random_seed, self._optimizer.step)
        # The number of tokens is known only after the last batch.
        total, gradients = self._gradients(
            batch,
            tf.constant(1.0),
            tf.random.experimental.stateless_fold_in(seed, number),
        )
        values = {"loss": total, **_counts(batch)}
        pairs = list(zip(self._sums, gradients, strict=True))
        pairs += [(self._totals[name], values[name]) for name in values]

        def replace():
            for variable, value in pairs:
                variable.assign(value)

        def add():
            for variable, value in pairs:
                variable.assign_add(value)

        tf.cond(tf.equal(number, 0), replace, add)

    def _update(self):
        return _over_replicas(
            self._strategy, *self._strategy.run(self._update_own)
        )

    def _update_own(self):
        context = tf.distribute.get_replica_context()
        own = {name: v.read_value() for name, v in self._totals.items()}
        *summed, loss, tokens = context.all_reduce(
            "SUM",
            [v.read_value() for v in self._sums]
            + [own["loss"], own["target_tokens"]],
        )
        tokens = tf.maximum(tokens, 1.0)
        is_made = self._apply(
            [gradient / tokens for gradient in summed], tf.math.is_finite(loss)
        )
        return own, is_made


def _own_variable(shape, dtype) -> tf.Variable:
    """Creates a variable with an independent value on each replica."""
    return tf.Variable(
        tf.zeros(shape, dtype),
        trainable=False,
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.SUM,
    )


def _over_replicas(strategy, own, is_made) -> dict[str, tf.Tensor]:
    """Returns the sums of the replicas' results, and their common `is_made`."""
    sums = {
        name: strategy.reduce("SUM", value, axis=None)
        for name, value in own.items()
    }
    return sums | {"is_made": strategy.experimental_local_results(is_made)[0]}


def _gradient_function(model):
    """Returns the function of one replica's summed loss and its gradients."""
    variables = [v.value for v in model.trainable_variables]

    def gradients(batch, tokens, seed):
        with tf.GradientTape() as tape, dropout.seed_scope(seed):
            total = _summed_loss(model, batch)
            loss = total / tf.maximum(tokens, 1.0)
        # Dense: sums over replicas, norms and updates would treat duplicate
        # rows of an IndexedSlices as different rows.
        return total, [
            tf.convert_to_tensor(g) for g in tape.gradient(loss, variables)
        ]

    return gradients


def _summed_loss(model, batch) -> tf.Tensor:
    """Returns the sum of the loss over a batch's tokens."""
    if model.hparams.consistency_loss:
        return _simcut_loss(model, batch)
    inputs, targets = batch["inputs"], batch["targets"]
    tags = batch.get("tag_lengths")  # where sources have tags
    kept = {} if tags is None else {"kept": (tags, None)}
    features = model.features(inputs, targets, training=True, **kept)
    return losses.projected_cross_entropy(
        features, model.softmax_table(), targets, model.hparams.label_smoothing
    )[0]


def _simcut_loss(model, batch) -> tf.Tensor:
    """Returns the sum of the loss of SimCut (Gao et al., 2022, section 3).

    One call has every row twice: with all symbols, and with some cut off.
    """
    inputs, targets = batch["inputs"], batch["targets"]
    none = tf.zeros(tf.shape(inputs)[:1], tf.int32)
    every = none + tf.int32.max
    features = model.features(
        tf.concat([inputs, inputs], 0),
        tf.concat([targets, targets], 0),
        training=True,
        kept=(
            tf.concat([every, batch.get("tag_lengths", none)], 0),
            tf.concat([every, none], 0),
        ),
    )  # [2B, T, F]
    rows = tf.reshape(features, [-1, features.shape[-1]])  # [2N, F], N = B*T
    logits = tf.matmul(rows, model.softmax_table(), transpose_b=True)
    logits = tf.cast(logits, tf.float32)[:, tf.newaxis]  # [2N, 1, V]
    whole, cut = tf.split(logits, 2)
    targets = tf.reshape(targets, [-1, 1])
    cross_entropy, _ = losses.padded_cross_entropy(
        whole, targets, model.hparams.label_smoothing
    )
    divergence = losses.padded_divergence(whole, cut, targets)
    return cross_entropy + model.hparams.consistency_loss * divergence


def _seed(random_seed: int, step: tf.Variable) -> tf.Tensor:
    """Returns the seed of this replica's dropout: int32 `[2]`."""
    context = tf.distribute.get_replica_context()
    seed = [random_seed, 0]
    for number in (step, context.replica_id_in_sync_group):
        seed = tf.random.experimental.stateless_fold_in(seed, number)
    return seed


def _counts(batch) -> dict[str, tf.Tensor]:
    """Returns the numbers of ids that are not padding, as float32 scalars."""
    return {
        "target_tokens": _count(batch["targets"]),
        "source_tokens": _count(batch["inputs"]),
    }


def _count(ids):
    return tf.reduce_sum(tf.cast(tf.not_equal(ids, 0), tf.float32))
