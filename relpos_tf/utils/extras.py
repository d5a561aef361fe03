"""The optional parts of the package, and how to install them.

pyproject.toml has an extra for each part. Every installation has NumPy and
absl-py; TensorFlow and Keras come with the extras `layers` and `translate`.
"""

import contextlib
import importlib.util
from collections.abc import Iterator

from relpos_tf import errors


class MissingPackageError(ImportError, errors.UserError):
    """A package of an extra is not installed.

    Commands print it as one line; in Python, `except ImportError` catches it.
    """


def how_to_install(extra: str) -> str:
    """Returns the commands that install an extra."""
    return f"pip install 'relpos_tf[{extra}]' (in a clone: '.[{extra}]')"


@contextlib.contextmanager
def imports(extra: str, task: str) -> Iterator[None]:
    """Explains imports that fail in the block.

    Args:
        extra: str. The extra of pyproject.toml with the imported packages.
        task: str. What needs them, for the message.

    Raises:
        MissingPackageError: a package is not installed.

    Example:
    >>> try:
    ...     with imports("translate", "translation"):
    ...         import no_such_package
    ... except ImportError as error:
    ...     print(f"{error.name}: {error}")
    no_such_package: Expected the package no_such_package, which translation \
needs. Received: none. Install it: ...
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        raise MissingPackageError(
            f"Expected the package {package}, which {task} needs. "
            f"Received: none. Install it: {how_to_install(extra)}",
            name=package,
        ) from error


def check(extra: str, task: str, *packages: str) -> None:
    """Raises MissingPackageError, see `imports`, without importing anything."""
    with imports(extra, task):
        for name in packages:
            if importlib.util.find_spec(name) is None:
                raise ModuleNotFoundError(name=name)
