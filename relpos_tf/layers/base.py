"""Bases of layers, which write the config of a layer from its arguments."""

import inspect
from typing import Any

import keras

from relpos_tf.layers import checks


class Config(keras.layers.Layer):
    """Base of layers that keep their constructor's arguments as attributes.

    The config holds each argument whose attribute has its name, besides what
    Keras' own config has.
    """

    def get_config(self) -> dict[str, Any]:
        kinds = type(self).__mro__
        own = {
            name: getattr(self, name)
            for kind in kinds[: kinds.index(Config)]
            if "__init__" in vars(kind)
            for name in inspect.signature(vars(kind)["__init__"]).parameters
            if hasattr(self, name)
        }
        return own | super().get_config()


class Layer(Config):
    """Base of the layers that run on TensorFlow alone."""

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        checks.needs_tensorflow(self)
