"""Gradients on the backend that Keras runs on, and float64 there."""

import contextlib

import keras
import numpy as np

BACKEND = keras.backend.backend()
if BACKEND == "jax":
    import jax

    jax.config.update("jax_enable_x64", True)
elif BACKEND == "torch":
    import torch
else:
    import tensorflow as tf


@contextlib.contextmanager
def float64():
    """Computes in float64, which Keras does on PyTorch if it is the default."""
    before = keras.config.floatx()
    keras.config.set_floatx("float64")
    try:
        yield
    finally:
        keras.config.set_floatx(before)


def gradients(function, arrays):
    """Returns the gradients of a number, `function(*tensors)`, by arrays."""
    if BACKEND == "jax":
        tensors = [jax.numpy.asarray(array) for array in arrays]
        found = jax.grad(function, range(len(tensors)))(*tensors)
    elif BACKEND == "torch":
        tensors = [torch.tensor(array, requires_grad=True) for array in arrays]
        found = torch.autograd.grad(
            function(*tensors), tensors, allow_unused=True
        )
    else:
        tensors = [tf.constant(array) for array in arrays]
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            number = function(*tensors)
        found = tape.gradient(number, tensors)
    return [
        np.zeros_like(array) if one is None else keras.ops.convert_to_numpy(one)
        for one, array in zip(found, arrays, strict=True)
    ]


def slopes(function, arrays, seed=17, step=1e-6):
    """Returns pairs for each array: a direction, and the slope along it."""
    random = np.random.default_rng(seed)
    pairs = []
    for n, array in enumerate(arrays):
        direction = random.normal(size=array.shape).astype(array.dtype)
        values = []
        for sign in (-1, 1):
            moved = list(arrays)
            moved[n] = array + sign * step * direction
            number = function(*map(keras.ops.convert_to_tensor, moved))
            values.append(float(keras.ops.convert_to_numpy(number)))
        pairs.append((direction, (values[1] - values[0]) / (2 * step)))
    return pairs
