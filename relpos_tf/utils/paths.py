"""Checks of the names of files and folders before slow work begins.

Whether a file can be written, and whether TensorFlow accepts its name, can be
known before a model is trained or a text is translated. No TensorFlow.
"""

import atexit
import functools
import os
import pathlib
import shutil
import tempfile

from relpos_tf import errors
from relpos_tf.utils import system_errors

# In the name of a checkpoint, TensorFlow takes these for a pattern.
_WILD = frozenset("*?[\\") - {os.sep}


def check_folder(path: str | pathlib.Path) -> None:
    """Checks that a folder can be made and written in. Makes nothing.

    Args:
        path: A folder, or one to be made.

    Raises:
        UserError: it cannot, or TensorFlow cannot write there.
    """
    check_name(path)
    ancestor = pathlib.Path(path).absolute()
    with system_errors.writing(path):
        while not _exists(ancestor):
            ancestor = ancestor.parent
    if not ancestor.is_dir():
        raise errors.UserError(
            f"Expected a folder. Received: {path}, where {ancestor} is a file."
        )
    _check_writable(path, ancestor)


def check_file(path: str | pathlib.Path) -> None:
    """Checks that a file can be written or replaced. Makes nothing.

    Args:
        path: A file, there or not. Devices and pipes pass.

    Raises:
        UserError: it cannot be written, or its folder is missing.
    """
    path = pathlib.Path(path)
    with system_errors.writing(path):
        if _exists(path):
            if path.is_dir():
                raise errors.UserError(
                    f"Expected a file to write. Received: {path}, a folder."
                )
            if not path.is_file():
                return
    if not path.parent.is_dir():
        raise errors.UserError(
            f"Cannot write {path}: the folder {path.parent} does not exist. "
            "Make it."
        )
    _check_writable(path, path.parent)


def check_name(path: str | pathlib.Path) -> None:
    """Checks that TensorFlow can write to a name.

    Raises:
        UserError: it is not in UTF-8.
    """
    if not _is_utf8(os.fspath(path)):
        raise errors.UserError(
            f"Expected a name in UTF-8. Received: {os.fspath(path)!r}. Rename "
            "the folder."
        )


def listed(text: str | None) -> list[str]:
    """Returns the paths in a text, which has commas between them.

    The name of a file that exists may have commas itself.

    Example:

    >>> listed("a.de,b.de"), listed("")
    (['a.de', 'b.de'], [])
    """
    if text and os.path.exists(text):
        return [text]
    return [path for path in (text or "").split(",") if path]


def is_plain(path: str | pathlib.Path) -> bool:
    """Returns whether TensorFlow accepts a name, and not as a pattern."""
    path = os.fspath(path)
    return _is_utf8(path) and not _WILD.intersection(path)


def plain(path: str | pathlib.Path) -> str:
    """Returns a name for the same file that TensorFlow accepts.

    TensorFlow takes the name of a checkpoint for a pattern, and so does not
    find `model[v2]/ckpt-7`. The folder of such a name gets a link with a plain
    name, which stays until the process ends, since files may be read late.

    Args:
        path: A folder, or the prefix of a checkpoint.

    Raises:
        UserError: the name of the checkpoint itself has one of these
            characters, or no link can be made.
    """
    path = os.fspath(path)
    if is_plain(path):
        return path
    folder, name = path, ""
    if not os.path.isdir(path):
        folder, name = os.path.split(path)
    if not is_plain(name):
        raise errors.UserError(
            f"Expected a checkpoint without any of * ? [ \\ in its own name. "
            f"Received: {path!r}. Rename its files."
        )
    return os.path.join(_link(os.path.join(os.getcwd(), folder)), name)


@functools.cache
def _link(folder: str) -> str:
    """Returns a link to a folder, made once in a process."""
    links = _folder_of_links()
    link = os.path.join(links, str(len(os.listdir(links))))
    if not is_plain(link):
        raise errors.UserError(
            "Expected a folder for temporary files without any of * ? [ \\ in "
            f"its name. Received: {links}. Set TMPDIR to another."
        )
    try:
        os.symlink(folder, link)
    except OSError as error:  # as on a system without links
        raise errors.UserError(
            f"Expected a name without any of * ? [ \\, by which TensorFlow "
            f"takes it for a pattern. Received: {folder!r}. Rename the folder."
        ) from error
    return link


@functools.cache
def _folder_of_links() -> str:
    folder = tempfile.mkdtemp(prefix="relpos_tf.")
    # `rmtree` removes the links, not their targets.
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _exists(path: pathlib.Path) -> bool:
    """Returns whether a path exists; raises OSError if it cannot exist."""
    try:
        path.stat()
    except FileNotFoundError:
        return False
    return True


def _check_writable(path, folder: pathlib.Path) -> None:
    if not os.access(folder, os.W_OK | os.X_OK):
        raise errors.UserError(
            f"Cannot write {path}: the folder {folder} may not be written in. "
            "Name another, or change its permissions."
        )


def _is_utf8(path: str) -> bool:
    """Returns whether a name is UTF-8; Python keeps other bytes escaped."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
