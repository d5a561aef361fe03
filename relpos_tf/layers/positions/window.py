"""Attention to near keys only, or to the keys on one side.

Shapes: H heads, Q queries, K keys.
"""

import keras
import tensorflow as tf

from relpos_tf.layers import checks
from relpos_tf.layers import pairs as pairs_lib
from relpos_tf.layers.positions import scheme

DIRECTIONS = ("forward", "backward", "split")


@keras.saving.register_keras_serializable(package="relpos_tf")
class Window(scheme.Scheme):
    """Restricted self-attention: keys at most `window` positions away.

    Args:
        window: int, r, at least 1.

    Example:
    >>> bias = Window(1).bias(None, None, pairs_lib.Pairs(1, 3))
    >>> (bias == 0).numpy().tolist()
    [[False, True, True]]

    Reference:
        [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 4.
    """

    def __init__(self, window: int):
        self.window = checks.integer("window", window, least=1)

    def bias(
        self, x: tf.Tensor, keys: tf.Tensor, pairs: pairs_lib.Pairs
    ) -> tf.Tensor:
        del x, keys
        near = tf.abs(pairs.distances()) <= self.window  # [Q, K]
        return pairs_lib.to_bias(near)

    def summary(self) -> str:
        return f"window {self.window}"


@keras.saving.register_keras_serializable(package="relpos_tf")
class Direction(scheme.Scheme):
    """Attention to the keys on one side of a query, and at its own position.

    Shen et al. (2018) forbid the query's own position. Here it is allowed, so
    that the first and the last token have a key.

    Args:
        direction: str. "forward": a query sees earlier positions, as a reader
            does; "backward": later positions; "split": the first half of the
            heads (of an odd number, the larger half) looks forward, the others
            backward.

    Raises:
        UserError: an unknown direction.

    Example:
    >>> bias = Direction("backward").bias(None, None, pairs_lib.Pairs(2, 2))
    >>> (bias == 0).numpy().tolist()
    [[True, True], [False, True]]

    Reference:
        [Shen et al., 2018](https://arxiv.org/abs/1709.04696), DiSAN.
    """

    def __init__(self, direction: str):
        self.direction = checks.choice("direction", direction, DIRECTIONS)

    def build(self, layer: keras.layers.Layer) -> None:
        self._num_heads = layer.num_heads

    def bias(
        self, x: tf.Tensor, keys: tf.Tensor, pairs: pairs_lib.Pairs
    ) -> tf.Tensor:
        del x, keys
        distance = pairs.distances()  # [Q, K]
        forward, backward = distance <= 0, distance >= 0
        if self.direction == "split":
            head = tf.range(self._num_heads)[:, tf.newaxis, tf.newaxis]
            allowed = tf.where(2 * head < self._num_heads, forward, backward)
        else:
            allowed = forward if self.direction == "forward" else backward
        return pairs_lib.to_bias(allowed)  # [Q, K] or [H, Q, K]

    def summary(self) -> str:
        return f"direction {self.direction}"
