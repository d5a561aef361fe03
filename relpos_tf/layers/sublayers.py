"""The parts of blocks besides attention.

Shapes: B batch, L length, F features.
"""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from relpos_tf.layers import base
from relpos_tf.layers import checks
from relpos_tf.layers import dropout
from relpos_tf.layers import projections


@keras.saving.register_keras_serializable(package="relpos_tf")
class FeedForward(base.Layer):
    """Two linear maps with a ReLU between them, at each position.

    Args:
        filter_size: int. Size of the inner layer.
        hidden_size: int, F.
        relu_dropout: float. Fraction of the inner layer to drop.
        **kwargs: Passed to `keras.layers.Layer`.

    Call arguments:
        x: `[B, L, F]` tensor.
        training: bool.

    Returns:
        A `[B, L, F]` tensor in the layer's compute dtype.

    Example:
    >>> layer = FeedForward(filter_size=16, hidden_size=4)
    >>> tuple(layer(tf.ones([2, 3, 4])).shape)
    (2, 3, 4)

    Reference:
        [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.3.
    """

    def __init__(
        self,
        filter_size: int,
        hidden_size: int,
        relu_dropout: float = 0.0,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.filter_size = checks.integer("filter_size", filter_size, least=1)
        self.hidden_size = checks.integer("hidden_size", hidden_size, least=1)
        self.relu_dropout = checks.number(
            "relu_dropout", relu_dropout, least=0, below=1
        )
        self.supports_masking = True
        self.conv1 = projections.Projection(
            self.filter_size,
            activation="relu",
            dtype=self.dtype_policy,
            name="conv1",
        )
        self.conv2 = projections.Projection(
            self.hidden_size, dtype=self.dtype_policy, name="conv2"
        )
        self.inner_dropout = dropout.Dropout(
            relu_dropout, dtype=self.dtype_policy, name="relu_dropout"
        )

    def build(self, x_shape: Sequence[int | None]) -> None:
        self.conv1.build(x_shape)
        self.conv2.build((*x_shape[:-1], self.filter_size))

    def call(self, x: tf.Tensor, *, training: bool = False) -> tf.Tensor:
        return self.conv2(self.inner_dropout(self.conv1(x), training=training))


@keras.saving.register_keras_serializable(package="relpos_tf")
class Residual(base.Layer):
    """Normalisation, dropout and addition around a sublayer.

    `before(x)` is the sublayer's input; the call adds its output `y` to `x`.
    Vaswani et al. normalise the sum; tensor2tensor's later sets the input.

    Args:
        norm_before: bool. Whether `before` normalises.
        norm_after: bool. Whether the call normalises.
        rate: float. Fraction of the sublayer's output to drop.
        epsilon: float, added to the variance.
        **kwargs: Passed to `keras.layers.Layer`.

    Call arguments:
        x: `[B, L, F]` tensor, the argument of `before`.
        y: `[B, L, F]` tensor, the sublayer's output.
        training: bool.

    Returns:
        A `[B, L, F]` tensor.

    Example:
    >>> residual = Residual(norm_before=True, norm_after=False)
    >>> residual(tf.ones([1, 1, 2]), tf.ones([1, 1, 2])).numpy().tolist()
    [[[2.0, 2.0]]]

    Reference:
        [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.1.
    """

    def __init__(
        self,
        *,
        norm_before: bool,
        norm_after: bool,
        rate: float = 0.0,
        epsilon: float = 1e-6,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.norm_before = checks.flag("norm_before", norm_before)
        self.norm_after = checks.flag("norm_after", norm_after)
        self.rate = checks.number("rate", rate, least=0, below=1)
        self.epsilon = checks.number("epsilon", epsilon, least=0.0)
        self.supports_masking = True
        self.before_norm = self._norm("before_norm") if norm_before else None
        self.after_norm = self._norm("after_norm") if norm_after else None
        self.drop = dropout.Dropout(rate, dtype=self.dtype_policy, name="drop")

    def _norm(self, name):
        return projections.LayerNorm(
            epsilon=self.epsilon, dtype=self.dtype_policy, name=name
        )

    def build(self, x_shape: Sequence[int | None], y_shape: Any = None) -> None:
        for norm in (self.before_norm, self.after_norm):
            if norm is not None:
                norm.build(x_shape)

    def before(self, x: tf.Tensor) -> tf.Tensor:
        """Returns the sublayer's input."""
        return x if self.before_norm is None else self.before_norm(x)

    def call(
        self, x: tf.Tensor, y: tf.Tensor, *, training: bool = False
    ) -> tf.Tensor:
        checks.sizes("y", y.shape, x.shape)
        x = x + self.drop(y, training=training)
        return x if self.after_norm is None else self.after_norm(x)

    def around(
        self,
        sublayer: Callable[[tf.Tensor], Any],
        x: tf.Tensor,
        training: bool = False,
    ) -> tuple[tf.Tensor, Any]:
        """Adds the output of a sublayer, which may be a pair with more."""
        y, more = sublayer(self.before(x)), None
        if isinstance(y, tuple):
            y, more = y
        return self(x, y, training=training), more
