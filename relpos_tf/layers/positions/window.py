"""Attention to near keys only, or to those on one side.

Shapes: H heads, Q queries, K keys.
"""

import keras
import tensorflow as tf

from relpos_tf.layers import checks
from relpos_tf.layers import masks
from relpos_tf.layers.positions import scheme


@keras.saving.register_keras_serializable(package="relpos_tf")
class Window(scheme.Scheme):
    """Restricted self-attention: keys at most `window` positions away.

    Args:
        window: int, r, at least 1.

    Example:

    >>> from relpos_tf.layers import pairs
    >>> Window(1).allowed(pairs.Sequence(1, 3)).numpy().tolist()
    [[False, True, True]]

    Reference:
        [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 4.
    """

    name = "window of self-attention"

    def __init__(self, window: int):
        checks.integer("window", window, least=1)
        self.window = window

    def allowed(self, pairs):
        return tf.abs(pairs.distances()) <= self.window  # [Q or 1, K]

    def summary(self):
        return f"window {self.window}"

    def get_config(self):
        return {"window": self.window}


@keras.saving.register_keras_serializable(package="relpos_tf")
class Direction(scheme.Scheme):
    """Attention to one side; see `masks.direction_mask`.

    Args:
        direction: str. "forward", "backward", or "split" between the heads.
        num_heads: int, H.

    Example:

    >>> from relpos_tf.layers import pairs
    >>> Direction("backward", 1).allowed(pairs.Sequence(2, 2)).numpy().tolist()
    [[True, True], [False, True]]

    Reference:
        [Shen et al., 2018](https://arxiv.org/abs/1709.04696), DiSAN.
    """

    name = "direction of self-attention"

    def __init__(self, direction: str, num_heads: int):
        masks.check_direction(direction, num_heads)
        self.direction = direction
        self.num_heads = num_heads

    def allowed(self, pairs):
        return masks.one_side(pairs.distances(), self.direction, self.num_heads)

    def summary(self):
        return f"direction {self.direction}"

    def get_config(self):
        return {"direction": self.direction, "num_heads": self.num_heads}
