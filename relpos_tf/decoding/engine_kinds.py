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
from relpos_tf.models import checkpoints
from relpos_tf.models import run_dir
from relpos_tf.utils import extras
from relpos_tf.utils import locks


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
        if self.needs_tensorflow:  # and tensorflow-text, not for Windows
            locks.check_system(self.folder)
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
    """Returns the kind of a run, a checkpoint, an average or an export.

    A run is a run, whatever other files its directory has.

    Raises:
        UserError: the path is none of them, or a damaged export or one of an
            unknown format.
    """
    if export_files.is_export(path):
        name = export_files.read_info(path)["format"]
        if name in _EXPORTS:
            return _EXPORTS[name]
        raise errors.UserError(
            f"Expected an export of the format {', '.join(_EXPORTS)}. "
            f"Received: {path}, of the format {name!r}."
        )
    checkpoints.candidates(path)  # raises if there is none
    return RUN


def languages(path: str | pathlib.Path) -> dict[str, str]:
    """Returns `source_language` and `target_language` of a model.

    They are codes such as "de", or "" where unknown.
    """
    if export_files.is_export(path):
        info = export_files.read_info(path)
    else:
        info = run_dir.run_of(path).read_problem()
    names = "source_language", "target_language"
    return {name: info.get(name) or "" for name in names}
