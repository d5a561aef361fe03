"""Checks of the names of files and folders before slow work begins.

Whether a file can be written, and whether TensorFlow accepts its name, can be
known before a model is trained or a text is translated. No TensorFlow.
"""

import os
import pathlib
import re
from collections.abc import Collection
from typing import Any

from relpos_tf import errors

# pathlib makes one slash of two. One letter is a drive of Windows.
_ADDRESS = re.compile(r"(?<![\w.+/-])[A-Za-z][\w.+-]+:/[^\s,'\"\]]*")


def check_folder(path: str | pathlib.Path) -> None:
    """Checks that a folder can be made and written in. Makes nothing.

    Args:
        path: A folder, or one to be made.

    Raises:
        UserError: it cannot, or TensorFlow cannot write there.
    """
    check_name(path)
    folder = pathlib.Path(path).absolute()
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir():
        raise errors.UserError(
            f"Expected a folder. Received: {path}, where {folder} is a file."
        )
    _check_writable(path, folder)


def check_replaceable(
    folder: pathlib.Path, known: Collection[str], kind: str
) -> None:
    """Refuses a folder that cannot be written, or holds something else.

    Args:
        folder: The folder to write. It may be missing or empty.
        known: Names in the folder of the files that may be replaced.
        kind: str. What these are, for the message.

    Raises:
        UserError: the folder holds another file, or cannot be written, or has
            no name, as ".".
    """
    if folder.name in ("", ".."):
        text = f"Expected a folder by its name. Received: {str(folder)!r}."
        raise errors.UserError(text)
    check_folder(folder)
    check_folder(folder.parent)  # a temporary folder is renamed there
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if name not in known and (path.is_symlink() or not path.is_dir()):
            raise errors.UserError(
                f"Expected a new folder, or {kind} alone to replace. Received: "
                f"{folder}, which has something else: {name}. Move it "
                "elsewhere, or name another folder."
            )


def check_file(path: str | pathlib.Path) -> None:
    """Checks that a file can be written or replaced. Makes nothing.

    Args:
        path: A file, there or not. Devices and pipes pass.

    Raises:
        UserError: it cannot be written, or its folder is missing.
    """
    path = pathlib.Path(path)
    if path.is_dir():
        raise errors.UserError(
            f"Expected a file to write. Received: {path}, a folder."
        )
    if path.exists() and not path.is_file():
        return
    _check_writable(path, path.parent)


def listed(text: str) -> list[str]:
    """Returns the names of files that have commas between.

    Args:
        text: str. The names, perhaps with blanks around; or the name of a file
            that is there, whatever characters it has.

    Raises:
        UserError: a name is empty.
    """
    if not text:
        return []
    if os.path.exists(text):
        return [text]
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise errors.UserError(
            "Expected names of files with one comma between two of them. "
            f"Received: {text!r}."
        )
    return names


def check_local(what: str, path: Any) -> None:
    """Refuses addresses such as gs://bucket/run: we read and write files here.

    Args:
        what: str. What the message calls it.
        path: A path, or any value whose text may hold some.

    Raises:
        UserError: there is an address in it.
    """
    if found := _ADDRESS.search(str(path)):
        raise errors.UserError(
            f"{what} must be local. Received: {found[0]}. Mount it as a "
            "folder, or copy it to this machine."
        )


def check_name(path: str | pathlib.Path) -> None:
    """Checks that TensorFlow can read and write a name.

    Raises:
        UserError: it is an address, or not in UTF-8, or TensorFlow takes it
            for a pattern.
    """
    check_local("A path", path)
    name = os.fspath(path)
    is_utf8 = name == name.encode(errors="ignore").decode()
    if not is_utf8 or (set("*?[\\") - {os.sep}) & set(name):
        raise errors.UserError(
            "Expected a name in UTF-8, without * ? [ and \\, which are a "
            f"pattern for TensorFlow. Received: {name!r}. Rename it."
        )


def _check_writable(path, folder: pathlib.Path) -> None:
    if not os.access(folder, os.W_OK | os.X_OK):
        raise errors.UserError(
            f"Cannot write {path}: there is no folder {folder} to write in. "
            "Make it, change its permissions, or name another."
        )
