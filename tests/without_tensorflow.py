"""Starts Python in an environment that has no TensorFlow and no Keras.

The environment is a folder of links to the packages that
`pip install 'relpos_tf[ctranslate2,litert]'` would install, as pyproject.toml
and the packages' own metadata say, and to no other. Python runs with `-S`, so
that it knows this folder, the standard library and this project alone.
"""

import atexit
import functools
import importlib.metadata
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from packaging import requirements
from packaging import utils

from tests.conformance import packaging_test

ROOT = pathlib.Path(__file__).resolve().parents[1]
EXTRAS = "ctranslate2", "litert"
# Not regular packages: several distributions share the folder.
_SHARED = "google", "backports"


def run(*words, **kwargs):
    """Runs Python there; returns what `subprocess.run` does, with text."""
    env = os.environ | {"PYTHONPATH": f"{folder()}{os.pathsep}{ROOT}"}
    return subprocess.run(
        [sys.executable, "-S", *map(str, words)],
        capture_output=True,
        check=False,
        env=env,
        text=True,
        **kwargs,
    )


def skip_without_packages(test):
    """Skips a test unless the packages of the extras are installed."""
    try:
        names()
    except importlib.metadata.PackageNotFoundError as error:
        test.skipTest(f"{error} is not installed.")


@functools.cache
def names(*extras: str) -> frozenset[str]:
    """Returns the names of the distributions, with all that they require.

    Args:
        *extras: Of pyproject.toml. Default: `EXTRAS`.
    """
    setup = packaging_test.distribution()
    waiting = [*setup.install_requires]
    for extra in extras or EXTRAS:
        waiting += setup.extras_require[extra]
    found = set()
    while waiting:
        wish = requirements.Requirement(waiting.pop())
        name = utils.canonicalize_name(wish.name)
        is_meant = not wish.marker or wish.marker.evaluate({"extra": ""})
        if is_meant and name not in found:
            found.add(name)
            waiting += importlib.metadata.requires(name) or ()
    return frozenset(found)


@functools.cache
def folder(*extras: str) -> pathlib.Path:
    """Makes the folder of links, once in a process. See `names`."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="without_tensorflow."))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    for name in names(*extras):
        distribution = importlib.metadata.distribution(name)
        for file in distribution.files:
            depth = 2 if file.parts[0] in _SHARED else 1
            link = path.joinpath(*file.parts[:depth])
            is_code = not {"..", "__pycache__"}.intersection(file.parts)
            if not is_code or link.is_symlink():
                continue
            link.parent.mkdir(exist_ok=True)
            link.symlink_to(distribution.locate_file(link.relative_to(path)))
    return path
