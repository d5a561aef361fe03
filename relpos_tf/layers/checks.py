"""Checks of the arguments of layers, for their constructors.

A wrong argument is refused where it is written, with one sentence, instead of
by an error of TensorFlow when the layer is called.
"""

import math
import numbers

import keras

from relpos_tf import errors


def integer(name, value, least=None):
    """Refuses a value that is no integer, or one below `least`.

    Example:

    >>> integer("num_heads", 0, least=1)
    Traceback (most recent call last):
    ...
    relpos_tf.errors.UserError: `num_heads` must be an integer of at least 1. \
Received: num_heads=0.
    """
    good = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not good or (least is not None and value < least):
        limit = "" if least is None else f" of at least {least}"
        _refuse(name, value, f"an integer{limit}")


def number(name, value, least):
    """Refuses a value that is no finite number of at least `least`."""
    if not _is_number(value) or not least <= value < math.inf:
        _refuse(name, value, f"a finite number of at least {least:g}")


def fraction(name, value):
    """Refuses a value that is no number in [0, 1)."""
    if not _is_number(value) or not 0.0 <= value < 1.0:
        _refuse(name, value, "in the range [0, 1)")


def choice(name, value, choices):
    """Refuses a value that is not among `choices`."""
    if value not in choices:
        _refuse(name, value, f"one of {choices}")


def heads(hidden_size, num_heads):
    """Refuses sizes below 1, and a hidden size that heads do not divide."""
    integer("hidden_size", hidden_size, least=1)
    integer("num_heads", num_heads, least=1)
    if hidden_size % num_heads:
        raise errors.UserError(
            "`hidden_size` must be a multiple of `num_heads`. Received: "
            f"hidden_size={hidden_size!r}, num_heads={num_heads!r}."
        )


def needs_tensorflow(layer):
    """Refuses a layer of TensorFlow while Keras runs on another backend."""
    backend = keras.backend.backend()
    if backend != "tensorflow":
        raise errors.UserError(
            f"`{type(layer).__name__}` must run on TensorFlow: set "
            "KERAS_BACKEND=tensorflow, or use `RelativeMultiHeadAttention`, "
            f"which runs on every backend. Received: Keras on {backend}."
        )


def mask_of_pairs(name, mask, queries, keys):
    """Refuses a mask that does not broadcast to `[B, H, Q, K]`, or by accident.

    Args:
        name: str.
        mask: The mask.
        queries: int, Q, or None if only the graph knows.
        keys: int, K, or None.
    """
    shape = tuple(mask.shape)
    sizes = zip(reversed(shape), (keys, queries), strict=False)
    fits = all(n == 1 or None in (n, m) or n == m for n, m in sizes)
    # Of rank 3, it has an axis of examples where the heads would be.
    if len(shape) in (0, 1, 2, 4) and fits:
        return
    raise errors.UserError(
        f"`{name}` must have the axes [batch, heads, {queries or ''} queries, "
        f"{keys or ''} keys]: mask[:, None] of [batch, queries, keys], "
        f"mask[:, None, None] of [batch, keys]. Received: a shape of {shape}."
    )


def _is_number(value):
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _refuse(name, value, expected):
    raise errors.UserError(
        f"`{name}` must be {expected}. Received: {name}={value!r}."
    )
