"""Adam and moving averages of plain variables, under any strategy.

Keras 3's optimizers keep the duplicate rows of a sparse gradient apart, sum
over replicas only after clipping, and update by a dozen small operations. This
one takes dense gradients, already summed over replicas, and updates each
variable with TensorFlow's fused kernel.
"""

import contextlib
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping

import tensorflow as tf

from relpos_tf import hparam
from relpos_tf.training import schedules
from relpos_tf.utils import graphs
from relpos_tf.utils import signals


class MovingAverage:
    """Exponential moving averages of variables, under any strategy.

    After update t, counted from 1, an average moves to

        average = d * average + (1 - d) * weight,  d = min(decay, (1+t)/(10+t)).

    The second term of `d` lets early averages follow the weights, as
    TensorFlow's `ExponentialMovingAverage` does with `num_updates`.

    Create it in the strategy's scope: the averages are then placed like the
    variables, whose values they start from.

    Args:
        variables: dict of `tf.Variable` by name.
        decay: float, at least 0 and below 1. 0: there are no averages.

    Attributes:
        variables: dict. The averages by the names of the variables.

    Reference:
        [Polyak and Juditsky, 1992](https://doi.org/10.1137/0330046) average
        the weights of all updates with equal weights.
    """

    def __init__(self, variables: dict[str, tf.Variable], decay: float):
        self._decay = decay
        self._weights = variables if decay else {}
        self.variables = {
            name: tf.Variable(
                variable.read_value(), trainable=False, name="average"
            )
            for name, variable in self._weights.items()
        }
        self._strategy = tf.distribute.get_strategy()

    def update(self, number: tf.Tensor) -> None:
        """Moves the averages towards the weights, in cross-replica context.

        Args:
            number: float32 scalar. The number of updates, this one included.
        """
        if not self.variables:
            return
        self._over_replicas(
            lambda weight, average: average.assign(
                self.moved(average, weight, number)
            )
        )

    def moved(
        self, average: tf.Tensor, weight: tf.Tensor, number: tf.Tensor
    ) -> tf.Tensor:
        """Returns an average after update `number`, to a weight."""
        # 1 - d, without the loss of digits of that difference.
        rate = tf.maximum(1 - self._decay, 9.0 / (10.0 + number))
        return average + rate * (weight - average)

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Exchanges the weights and their averages within the block.

        Signals are held during each exchange. Both get back their values, bit
        for bit, however the block ends.
        """
        is_exchanged = False
        try:
            with signals.held():
                self._over_replicas(_exchange)
                is_exchanged = True
            yield
        finally:
            if is_exchanged:
                with signals.held():
                    self._over_replicas(_exchange)

    def _over_replicas(self, function) -> None:
        """Calls a function with each replica's weights and averages."""
        for name, average in self.variables.items():
            self._strategy.extended.update(
                self._weights[name], function, args=(average,), group=False
            )


def _exchange(weight: tf.Variable, average: tf.Variable) -> None:
    value = weight.read_value()
    weight.assign(average.read_value())
    average.assign(value)


class Adam:
    """Adam with a learning-rate schedule.

    Create it in the strategy's scope: its slots are then placed like the
    variables.

    Args:
        hparams: `hparam.HParams`. Used are `optimizer_adam_beta1` and
            `..._beta2`, decays of the means of the gradients and of their
            squares; `optimizer_adam_epsilon`, added to the root of the latter;
            `clip_grad_norm`, the largest global norm of the gradients, or 0:
            no limit; `weight_decay`: in each update, a variable with two
            dimensions or more (a matrix, an embedding, a table of relative
            positions) also loses this part of itself times the learning rate,
            while biases and the scales of layer norms have one dimension and
            lose nothing; and `moving_average_decay`, see `MovingAverage`.
        variables: dict of trainable `tf.Variable` by name. Also an attribute.

    Attributes:
        averages: `MovingAverage` of the variables. It moves with every update
            made.

    Reference:
        [Kingma and Ba, 2014](https://arxiv.org/abs/1412.6980), in the form
        at the end of its section 2; for `weight_decay`,
        [Loshchilov and Hutter, 2019](https://arxiv.org/abs/1711.05101),
        algorithm 2, where our learning rate is its eta_t alpha, and eta_t
        lambda is our learning rate times `weight_decay`.
    """

    def __init__(
        self, hparams: hparam.HParams, variables: dict[str, tf.Variable]
    ):
        self.variables = variables
        self._hparams = hparams
        self._learning_rate = schedules.learning_rate(hparams)
        self._beta1 = hparams.optimizer_adam_beta1
        self._beta2 = hparams.optimizer_adam_beta2
        self.averages = MovingAverage(variables, hparams.moving_average_decay)
        self.step = tf.Variable(0, dtype=tf.int64, trainable=False, name="step")
        self._means = self._slots("mean")
        self._squares = self._slots("square")

    def _slots(self, kind):
        return {
            name: tf.Variable(
                tf.zeros(variable.shape, variable.dtype),
                trainable=False,
                name=kind,
            )
            for name, variable in self.variables.items()
        }

    @property
    def state(self) -> dict[str, tf.Variable]:
        """The variables of a checkpoint, by name."""
        means = {f"mean/{name}": v for name, v in self._means.items()}
        squares = {f"square/{name}": v for name, v in self._squares.items()}
        return {"step": self.step} | means | squares

    def apply(
        self, gradients: list[tf.Tensor], allowed: tf.Tensor | bool = True
    ) -> tf.Tensor:
        """Makes one update, or skips it.

        If the norm of the gradients is NaN or infinite, nothing changes: no
        variable, no slot, no count of updates. Call it in replica context.

        Args:
            gradients: a dense tensor for each variable, in the same order,
                already summed over the replicas.
            allowed: bool scalar, the same on every replica. False: the update
                is skipped.

        Returns:
            A bool scalar: whether the update was made.
        """
        is_made, gradients, scalars = self._prepared(gradients, allowed)
        context = tf.distribute.get_replica_context()
        return context.merge_call(
            self._update_if, args=(is_made, gradients, scalars)
        )

    def compiled(self) -> Callable[[list[tf.Tensor], tf.Tensor], tf.Tensor]:
        """Returns `apply` as one program of XLA, for each replica.

        On a GPU, the kernels of hundreds of variables would take longer to
        launch than to run, and a branch would wait for the host.
        """
        return graphs.function(self._apply_without_branch, jit_compile=True)

    def _apply_without_branch(self, gradients, allowed=True):
        """Writes the new values to this replica's variables, or the old."""
        is_made, gradients, scalars = self._prepared(gradients, allowed)
        rate = scalars["lr"] * tf.sqrt(1 - scalars["beta2_power"])
        rate /= 1 - scalars["beta1_power"]

        def read(variable):
            kind = variable.dtype
            return tf.raw_ops.ReadVariableOp(
                resource=variable.handle, dtype=kind
            )

        def write(variable, old, new):
            tf.raw_ops.AssignVariableOp(
                resource=variable.handle, value=tf.where(is_made, new, old)
            )

        number = read(self.step)
        write(self.step, number, number + 1)
        for (name, variable), gradient in zip(
            self.variables.items(), gradients, strict=True
        ):
            slots = self._means[name], self._squares[name]
            weight, mean, square = map(read, (variable, *slots))
            new_mean = mean + (1 - self._beta1) * (gradient - mean)
            new_square = square + (1 - self._beta2) * (gradient**2 - square)
            root = tf.sqrt(new_square) + self._hparams.optimizer_adam_epsilon
            new = self._decayed(weight, scalars["lr"]) - rate * new_mean / root
            write(variable, weight, new)
            write(slots[0], mean, new_mean)
            write(slots[1], square, new_square)
            average = self.averages.variables.get(name)
            if average is not None:  # which has no truth value in a graph
                old = read(average)
                updates = tf.cast(number, tf.float32) + 1.0
                write(average, old, self.averages.moved(old, new, updates))
        return is_made

    def _prepared(self, gradients, allowed):
        """Returns whether to update, clipped gradients, and the scalars."""
        norm = tf.linalg.global_norm(gradients)
        is_made = tf.logical_and(allowed, tf.math.is_finite(norm))
        if limit := self._hparams.clip_grad_norm:
            gradients, _ = tf.clip_by_global_norm(
                gradients, limit, use_norm=norm
            )
        number = tf.cast(self.step, tf.float32) + 1.0
        scalars = {
            "lr": self._learning_rate(self.step),
            "beta1_power": tf.pow(self._beta1, number),
            "beta2_power": tf.pow(self._beta2, number),
        }
        return is_made, list(gradients), scalars

    def _update_if(self, strategy, is_made, gradients, scalars):
        """Updates every replica, or none.

        A branch must not contain a merge_call, so the call contains the
        branches. With gradients of zero, Adam would still move the weights.
        """
        return tf.cond(
            strategy.experimental_local_results(is_made)[0],
            lambda: self._update(strategy, gradients, scalars),
            lambda: tf.constant(False),
        )

    def _update(self, strategy, gradients, scalars):
        """Updates each replica's copy with its copy of the gradients."""
        for (name, variable), gradient in zip(
            self.variables.items(), gradients, strict=True
        ):
            strategy.extended.update(
                variable,
                self._update_one,
                args=(self._means[name], self._squares[name], gradient),
                kwargs=scalars,
                group=False,
            )
        strategy.extended.update(self.step, lambda step: step.assign_add(1))
        self.averages.update(tf.cast(self.step, tf.float32))
        return tf.constant(True)

    def _decayed(self, weight, rate):
        """Returns a weight less its decay, at a learning rate."""
        decay = self._hparams.weight_decay
        if not decay or len(weight.shape) < 2:
            return weight
        return weight - rate * decay * weight

    def _update_one(self, variable, mean, square, gradient, **scalars):
        # Adam's step does not depend on the weight, so it may come second.
        decayed = self._decayed(variable, scalars["lr"])
        if decayed is not variable:
            variable.assign(decayed)
        return tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=mean.handle,
            v=square.handle,
            beta1=self._beta1,
            beta2=self._beta2,
            epsilon=self._hparams.optimizer_adam_epsilon,
            grad=gradient,
            **scalars,
        )


# By the choices of hparams: functions of the hparams, and of the variables by
# name.
OPTIMIZERS = {"adam": Adam}


def not_finite(variables: Mapping[str, tf.Variable]) -> list[str]:
    """Returns the names of the variables with a NaN or infinite value."""
    return [
        name
        for name, variable in variables.items()
        if variable.dtype.is_floating
        and not tf.reduce_all(tf.math.is_finite(variable))
    ]
