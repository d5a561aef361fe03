"""Checks of the arguments of layers, for their constructors.

A wrong argument is refused where it is written, with one sentence, instead of
by an error of TensorFlow when the layer is called.
"""

from collections.abc import Sequence
from typing import Any

import keras

from relpos_tf import errors
from relpos_tf import fields


def integer(name: str, value: Any, least: int | None = None) -> int:
    """Returns an integer of Python or NumPy, of at least `least`, as an int.

    Example:
    >>> integer("num_heads", 0, least=1)
    Traceback (most recent call last):
    ...
    relpos_tf.errors.UserError: `num_heads` must be at least 1. Received: \
num_heads=0.
    """
    fields.check_value(name, value, int, fields.Number(least=least))
    return int(value)


def number(
    name: str, value: Any, least: float, below: float | None = None
) -> float:
    """Returns a finite number from `least` up to `below`, as a float."""
    fields.check_value(name, value, float, fields.Number(least, below=below))
    return float(value)


def choice(name: str, value: Any, choices: Sequence[Any]) -> Any:
    """Returns a value that is among `choices`."""
    if value not in choices:
        fields.refuse(name, value, f"one of {choices}")
    return value


def flag(name: str, value: Any) -> bool:
    """Returns True for True and 1, False for False and 0; no other value."""
    return bool(choice(name, value, (True, False)))


def needs_tensorflow(layer: Any) -> None:
    """Refuses a layer of TensorFlow while Keras runs on another backend.

    Args:
        layer: The layer, or the name of a function.
    """
    backend = keras.backend.backend()
    if backend != "tensorflow":
        name = layer if isinstance(layer, str) else type(layer).__name__
        raise errors.UserError(
            f"`{name}` must run on TensorFlow: set "
            "KERAS_BACKEND=tensorflow, or use `RelativeMultiHeadAttention`, "
            f"which runs on every backend. Received: Keras on {backend}."
        )


def mask_of_pairs(name: str, mask: Any, sizes: Sequence[int | None]) -> None:
    """Refuses a mask that does not broadcast to `[B, H, Q, K]`, or by accident.

    Args:
        name: str.
        mask: bool or integer tensor.
        sizes: B, H, Q and K, each an int, or None if only the graph knows.
    """
    dtype = _dtype(mask)
    if dtype != "bool" and "int" not in dtype:
        raise errors.UserError(
            f"`{name}` must be bool: `bias == 0` of a bias that is added to "
            f"the logits. Received: dtype {dtype}."
        )
    rank = None if (shape := _known(mask.shape)) is None else len(shape)
    # Of rank 3, it has an axis of examples where the heads would be. Of rank 2,
    # [B, K] and [Q, K] are alike where B and Q are.
    is_padding = rank == 2 and 1 != shape[0] == sizes[0]
    if rank in (0, 1, 2, 4) and not is_padding and _fits(shape, sizes):
        return
    queries, keys = ("" if n is None else f"{n} " for n in sizes[2:])
    raise errors.UserError(
        f"`{name}` must have the axes [batch, heads, {queries}queries, "
        f"{keys}keys], each of its size or 1: mask[:, None] of [batch, "
        "queries, keys], mask[:, None, None] of [batch, keys], mask[None, "
        f"None] of [queries, keys]. Received: a shape of {shape}."
    )


def sizes(name: str, shape: Sequence, expected: Sequence) -> None:
    """Refuses a shape that does not have the `expected` sizes.

    Args:
        name: str, of the tensor.
        shape: Its shape. TensorFlow's unknown one passes.
        expected: Sequence of int; None, or a str that names the axis, for
            any size.
    """
    shape, expected = _known(shape), _known(expected)
    if None in (shape, expected):
        return
    if len(shape) != len(expected) or not _fits(shape, expected, ones=False):
        axes = ", ".join("any" if n is None else str(n) for n in expected)
        raise errors.UserError(
            f"`{name}` must have the shape [{axes}]. "
            f"Received: a shape of {shape}."
        )


def ids(name: str, tensor: Any) -> None:
    """Refuses a tensor that does not hold integers."""
    if "int" not in _dtype(tensor):
        raise errors.UserError(
            f"`{name}` must be integers, such as int32. "
            f"Received: dtype {_dtype(tensor)}."
        )


def _dtype(tensor):
    """Returns the name of a tensor's dtype on any backend."""
    return keras.backend.standardize_dtype(tensor.dtype)


def _known(shape):
    """Returns a shape as a tuple, or None if only the graph knows its rank."""
    return None if getattr(shape, "rank", 0) is None else tuple(shape)


def _fits(shape, sizes, ones=True):
    """Returns whether the last axes have these sizes, or 1 if `ones`."""
    return all(
        n is None or not isinstance(size, int) or n == size or (ones and n == 1)
        for n, size in zip(reversed(shape), reversed(sizes), strict=False)
    )
