"""Tests of the scripts in examples/."""

import importlib
import pathlib
import sys

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "examples"


def load(name):
    """Imports an example as its neighbours do: from its own folder."""
    sys.path.insert(0, str(FOLDER))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(FOLDER))
