"""Filters a warning of Keras where tests run on another backend."""

import os


def pytest_configure(config):
    if os.environ.get("KERAS_BACKEND", "tensorflow") != "tensorflow":
        # Keras turns tensors of PyTorch into arrays as NumPy 1 did.
        config.addinivalue_line(
            "filterwarnings",
            "ignore:__array__ implementation:DeprecationWarning",
        )
