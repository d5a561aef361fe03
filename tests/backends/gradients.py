"""Gradients on the backend that Keras runs on, and float64 there."""

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
    """Yields a direction for each array, and the slope of a number along it."""
    random = np.random.default_rng(seed)
    for n, array in enumerate(arrays):
        direction = random.normal(size=array.shape)
        below, above = (
            function(*arrays[:n], array + move * direction, *arrays[n + 1 :])
            for move in (-step, step)
        )
        yield direction, (above - below) / (2 * step)
