"""Exponential moving averages of the weights."""

import contextlib
from collections.abc import Iterator

import tensorflow as tf

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
        # 1 - d, without the loss of digits of that difference.
        rate = tf.maximum(1 - self._decay, 9.0 / (10.0 + number))
        self._over_replicas(
            lambda weight, average, rate: average.assign_add(
                rate * (weight - average)
            ),
            rate,
        )

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

    def _over_replicas(self, function, *args) -> None:
        """Calls a function with each replica's weights and averages."""
        for name, average in self.variables.items():
            self._strategy.extended.update(
                self._weights[name],
                function,
                args=(average, *args),
                group=False,
            )


def _exchange(weight: tf.Variable, average: tf.Variable) -> None:
    value = weight.read_value()
    weight.assign(average.read_value())
    average.assign(value)
