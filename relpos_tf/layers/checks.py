"""Checks of the arguments of layers, for their constructors.

A wrong argument is refused where it is written, with one sentence, instead of
by an error of TensorFlow when the layer is called.
"""

import math
import numbers

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


def _is_number(value):
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _refuse(name, value, expected):
    raise errors.UserError(
        f"`{name}` must be {expected}. Received: {name}={value!r}."
    )
