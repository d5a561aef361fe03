"""Configs from the arguments of constructors, and bases of layers."""

import inspect
from typing import Any

import keras

from relpos_tf.layers import checks


def arguments(one: Any, base: type) -> dict[str, Any]:
    """Returns the arguments of constructors that an object keeps.

    Args:
        one: The object. Attributes keep arguments of their names.
        base: A class. Only the constructors of classes below it count.
    """
    kinds = type(one).__mro__
    return {
        name: getattr(one, name)
        for kind in kinds[: kinds.index(base)]
        if "__init__" in vars(kind)
        for name in inspect.signature(vars(kind)["__init__"]).parameters
        if hasattr(one, name)
    }


class Config(keras.layers.Layer):
    """Base of layers whose config holds `arguments`, besides Keras' own."""

    def get_config(self) -> dict[str, Any]:
        return arguments(self, Config) | super().get_config()


class Layer(Config):
    """Base of the layers that run on TensorFlow alone."""

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        checks.needs_tensorflow(self)

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        # Keras' own would ask the next method, which knows no options.
        return keras.Operation.compute_output_spec(self, *args, **kwargs)

    def compute_output_shape(self, *shapes: Any) -> Any:
        # For keras.layers.TimeDistributed.
        inputs = [keras.KerasTensor(one, self.input_dtype) for one in shapes]
        return self.compute_output_spec(*inputs).shape
