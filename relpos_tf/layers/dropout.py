"""Dropout with masks that are a function of a seed.

Keras' dropout draws the same mask on every replica, and its state is in no
checkpoint. Here a training step opens a `seed_scope` with a seed made of (run,
step, replica), and each dropout in the scope folds in its own number. So the
masks differ between steps, replicas and layers, and a resumed run draws the
masks of an uninterrupted run.

Shapes: B batch, L length, F features.
"""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from relpos_tf.layers import base
from relpos_tf.layers import checks

_scopes = threading.local()  # MirroredStrategy traces a thread per replica


@contextlib.contextmanager
def seed_scope(seed: tf.Tensor) -> Iterator[None]:
    """Has every site in the context draw its random numbers from `seed`.

    Args:
        seed: int32 `[2]` tensor.
    """
    outer = getattr(_scopes, "current", None)
    _scopes.current = {"seed": seed, "sites": 0}
    try:
        yield
    finally:
        _scopes.current = outer


def next_seed() -> tf.Tensor:
    """Returns the seed of the next site that draws at random: int32 `[2]`."""
    scope = getattr(_scopes, "current", None)
    if scope is None:  # a layer outside of the training step
        return tf.random.uniform([2], maxval=tf.int32.max, dtype=tf.int32)
    scope["sites"] += 1
    return tf.random.experimental.stateless_fold_in(
        scope["seed"], scope["sites"]
    )


def _draw_kept(shape, threshold):
    """Draws a mask: False for `threshold` / 65,536 of its elements."""
    # Two uniform uint16 from each 32-bit number, to halve the cost.
    size = tf.reduce_prod(shape)
    words = tf.random.stateless_uniform(
        [(size + 1) // 2], next_seed(), None, None, tf.uint32
    )
    halves = tf.reshape(tf.bitcast(words, tf.uint16), [-1])  # [size or + 1]
    numbers = tf.reshape(halves[:size], shape)
    return numbers >= tf.constant(threshold, tf.uint16)


@keras.saving.register_keras_serializable(package="relpos_tf")
class Dropout(base.Layer):
    """Sets a fraction of its input to zero in training.

    The other numbers are divided by `1 - rate`. The rate is rounded to
    1/65,536; at least one number in 32,768 is kept.

    Args:
        rate: float in [0, 1). The fraction to drop.
        **kwargs: Passed to `keras.layers.Layer`.

    Call arguments:
        inputs: Floating-point tensor of any shape.
        training: bool. Without it nothing is dropped.

    Returns:
        A tensor like `inputs`.

    Example:
    >>> x = tf.ones([2, 3])
    >>> bool(tf.reduce_all(Dropout(0.5)(x, training=False) == x))
    True
    """

    def __init__(self, rate: float, **kwargs: Any):
        super().__init__(**kwargs)
        self.rate = checks.number("rate", rate, least=0, below=1)
        self.supports_masking = True
        self.built = True

    def call(self, inputs: tf.Tensor, *, training: bool = False) -> tf.Tensor:
        if not training or self.rate == 0.0:
            return inputs
        # At most 65,534: float16 has no 65,536 to multiply with.
        threshold = min(round(self.rate * 65536), 65534)
        kept = _draw_kept(tf.shape(inputs), threshold)
        scale = tf.cast(65536 / (65536 - threshold), inputs.dtype)
        return tf.where(kept, inputs * scale, tf.zeros([], inputs.dtype))


@keras.saving.register_keras_serializable(package="relpos_tf")
class SymbolDropout(Dropout):
    """Sets a fraction of the symbols' whole vectors to zero in training.

    The other vectors are not scaled. The rate is rounded to 1/65,536; at least
    one symbol in 65,536 is kept.

    Args:
        rate: float in [0, 1). The fraction to drop.
        **kwargs: Passed to `keras.layers.Layer`.

    Call arguments:
        inputs: `[B, L, F]` floating-point tensor.
        training: bool. Without it nothing is dropped.
        kept: `[B]` integer tensor or None. The number of symbols at the
            beginning of each row that are never dropped.

    Returns:
        A tensor like `inputs`.

    Example:
    >>> x = tf.ones([2, 3, 5])
    >>> y = SymbolDropout(0.5)(x, training=True)
    >>> bool(tf.reduce_all(y == y[..., :1]))
    True

    Reference:
        [Shen et al., 2020](https://arxiv.org/abs/2009.13818), token cutoff;
        tensor2tensor's `symbol_dropout`. The word dropout of
        [Gal and Ghahramani, 2016](https://arxiv.org/abs/1512.05287) drops all
        tokens of a word; here each token is drawn by itself.
    """

    def call(
        self,
        inputs: tf.Tensor,
        *,
        training: bool = False,
        kept: tf.Tensor | None = None,
    ) -> tf.Tensor:
        if not training or self.rate == 0.0:
            return inputs
        threshold = min(round(self.rate * 65536), 65535)
        is_kept = _draw_kept(tf.shape(inputs)[:-1], threshold)  # [B, L]
        if kept is not None:
            is_kept |= tf.sequence_mask(kept, tf.shape(inputs)[1])
        zero = tf.zeros([], inputs.dtype)
        return tf.where(is_kept[..., tf.newaxis], inputs, zero)
