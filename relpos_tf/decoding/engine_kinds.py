"""Chooses the engine for a path: one kind of engine, one module.

The module of a kind is imported when a folder of that kind is loaded, because
TensorFlow takes seconds and hundreds of megabytes, and may not be installed
where CTranslate2 or LiteRT translates.
"""

import importlib
import pathlib
from typing import Any
from typing import NamedTuple

from relpos_tf import errors
from relpos_tf.decoding import engines
from relpos_tf.decoding import export_files
from relpos_tf.utils import extras


class Kind(NamedTuple):
    """A kind of engine."""

    module: str  # in this room
    loader: str  # a class or function in it: path -> engine
    folder: str  # the word for its folders, in messages
    needs_tensorflow: bool

    def load(self, path: str | pathlib.Path, **options: Any) -> engines.Engine:
        """Imports the engine and loads it.

        Args:
            path: The run, the checkpoint or the export.
            **options: Other arguments of the loader.

        Raises:
            UserError: the folder is damaged, or a package is not installed.
        """
        with extras.imports("translate", self.folder):
            module = importlib.import_module(f"{__package__}.{self.module}")
        return getattr(module, self.loader)(path, **options)


RUN = Kind("model_engine", "load", "a run", True)
# By the field `format` of `export_info.json`.
_EXPORTS = {
    "saved_model": Kind(
        "saved_model_engine", "SavedModelEngine", "a SavedModel", True
    ),
    "ctranslate2": Kind(
        "ctranslate2_engine",
        "CTranslate2Engine",
        "an export for CTranslate2",
        False,
    ),
    "litert": Kind(
        "litert_engine", "LiteRTEngine", "an export for LiteRT", False
    ),
}


def of(path: str | pathlib.Path) -> Kind:
    """Returns the kind of a run, a checkpoint or an export.

    A run is a run, whatever other files its directory has.

    Raises:
        UserError: the folder is an export of an unknown format, or damaged.
    """
    if not export_files.is_export(path):
        return RUN
    name = export_files.read_info(path)["format"]
    if name not in _EXPORTS:
        raise errors.UserError(
            f"Expected an export of the format {', '.join(_EXPORTS)}. "
            f"Received: {path}, of the format {name!r}."
        )
    return _EXPORTS[name]
