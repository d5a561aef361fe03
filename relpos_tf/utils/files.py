"""Files that are written whole or not at all. No TensorFlow.

Two rules hold for every file that is written under its final name:

* What is not yet whole has a random name beside it, `NAME.1a2b3c4d.part`,
  which is created and never opened: no link of that name can lead elsewhere.
* A link is never written through. `replacing` puts the file in place of the
  link, and leaves alone what the link points to; `open_appending` refuses it.
"""

import contextlib
import errno
import os
import pathlib
import re
import secrets
import stat
from collections.abc import Iterator
from typing import BinaryIO

from relpos_tf import errors

# What stands between the name of a file and the end of its temporary name, as
# a pattern of `glob`.
PART = f".{'[0-9a-f]' * 8}.part"
# 255 bytes are the longest name on most file systems.
_LONGEST_STEM = 200
# Links that the system makes to the open files of a process.
_STREAM = re.compile(r"/dev/(stdin|stdout|stderr|fd/\d+)|/proc/.*")
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)  # Windows has none


@contextlib.contextmanager
def replacing(path: str | pathlib.Path) -> Iterator[BinaryIO]:
    """Yields a file that takes the place of `path` once the block is over.

    Until then, and if the block raises, `path` stays as it is. The new file
    has the permissions of the old one, or those of any new file. A device, a
    pipe or `/dev/stdout` cannot be replaced, and is written to directly.

    Args:
        path: The file.

    Yields:
        A binary file, open for writing and reading, whose `name` is its
        temporary one. A caller that renames it keeps it also if the block
        raises.

    Raises:
        OSError: it cannot be written; at once if its folder does not let us.
    """
    path = os.fspath(path)
    mode = _mode(path)
    if _STREAM.fullmatch(path) or (mode and not _is_replaceable(mode)):
        with open(path, "ab") as file:
            yield file
        return
    if mode and stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    file = _create_beside(path)
    try:
        yield file
        file.flush()
        if mode and stat.S_ISREG(mode):
            _set_mode(file, mode)
        os.fsync(file.fileno())
        file.close()
        os.replace(file.name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            file.close()  # On a full disk this fails once more.
        pathlib.Path(file.name).unlink(missing_ok=True)
        raise


def write(path: str | pathlib.Path, content: str | bytes) -> None:
    """Writes a file, text in UTF-8, as `replacing` does."""
    if isinstance(content, str):
        content = content.encode()
    with replacing(path) as file:
        file.write(content)


def open_appending(path: str | pathlib.Path) -> BinaryIO:
    """Opens a file to read it and to add to its end.

    Raises:
        UserError: it is a link.
        OSError: it cannot be opened.
    """
    try:
        return open(path, "ab+", opener=_open_no_link)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise errors.UserError(
            f"Expected a file to write to. Received: {path}, a link to "
            f"{os.path.realpath(path)}. Remove the link, or put the file in "
            "its place."
        ) from error


def _open_no_link(path, flags):
    return os.open(path, flags | _NO_LINK, 0o666)


def _mode(path):
    """Returns the kind and permissions of what is at a path, or 0."""
    try:
        return os.lstat(path).st_mode
    except FileNotFoundError:
        return 0


def _is_replaceable(mode):
    return any(
        is_kind(mode) for is_kind in (stat.S_ISREG, stat.S_ISLNK, stat.S_ISDIR)
    )


def _create_beside(path):
    """Creates and opens a file with a random name in the same folder."""
    folder, name = os.path.split(path)
    # In bytes, and back in a way that any bytes survive.
    stem = os.fsdecode(os.fsencode(name)[:_LONGEST_STEM])
    while True:
        partial = os.path.join(folder, f"{stem}.{secrets.token_hex(4)}.part")
        try:
            return open(partial, "xb+")
        except FileExistsError:
            continue
        except OSError as error:
            # The message names what the user knows.
            raise OSError(error.errno, error.strerror, path) from error


def _set_mode(file, mode):
    """Gives an open file the permissions of another."""
    target = file.fileno() if os.chmod in os.supports_fd else file.name
    os.chmod(target, stat.S_IMODE(mode) & 0o777)
