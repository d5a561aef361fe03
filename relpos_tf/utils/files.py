"""Files and folders that are written whole or not at all; checksums.

Two rules hold for every file that is written under its final name:

* An incomplete file has a random name beside the final one,
  `NAME.1a2b3c4d.part`. It is created exclusively, so that no link of that name
  can be written through, and is locked while its process lives.
* A link is never written through. `replacing` puts the file in place of the
  link and leaves the target of the link alone; `open_appending` refuses links.
"""

import contextlib
import glob
import hashlib
import os
import pathlib
import re
import secrets
import shutil
import stat
from collections.abc import Callable
from collections.abc import Iterator
from typing import BinaryIO

from relpos_tf import errors
from relpos_tf.utils import locks
from relpos_tf.utils import signals

# The end of a temporary name, after the final name, as a pattern of `glob`.
PART = f".{'[0-9a-f]' * 8}.part"
OLD = ".old"  # the end of the name of a folder that is being replaced
# Links that the system makes to the open files of a process.
_STREAM = re.compile(r"/dev/(stdin|stdout|stderr|fd/\d+)|/proc/.*")
_BLOCK = 1 << 20


@contextlib.contextmanager
def replacing(
    path: str | pathlib.Path, keep: Callable[[str], None] = os.unlink
) -> Iterator[BinaryIO]:
    """Yields a file that replaces `path` at the end of the block.

    Until then, and if the block raises or the end fails, `path` stays as it is.
    The new file has the permissions of the old one, or the default ones. A
    device, a pipe or `/dev/stdout` cannot be replaced, and is written to
    directly.

    Args:
        path: The file.
        keep: What happens to the new file if it does not replace `path`: a
            function of its temporary name. Signals are held meanwhile.

    Yields:
        A binary file, open for writing and reading.

    Raises:
        OSError: it cannot be written; at once if its folder does not allow it.
            It names `path`.
    """
    path = os.fspath(path)
    mode = os.lstat(path).st_mode if os.path.lexists(path) else 0
    is_replaced = stat.S_IFMT(mode) in (0, stat.S_IFREG, stat.S_IFLNK)
    partial = f"{path}.{secrets.token_hex(4)}.part"
    with _named(path, partial):
        if _STREAM.fullmatch(path) or not is_replaced:
            with open(path, "ab") as stream:  # raises for a folder
                yield stream
            return
        with open(partial, "xb+") as file:  # closed, it is not locked either
            try:
                locks.lock(file.fileno())
                yield file
                file.flush()
                if stat.S_ISREG(mode):
                    os.chmod(partial, stat.S_IMODE(mode) & 0o777)
                os.fsync(file.fileno())
                os.replace(partial, path)
            except BaseException:
                with signals.held():  # A second Ctrl-C would lose what is kept.
                    with contextlib.suppress(OSError):
                        file.close()  # On a full disk this fails once more.
                    with contextlib.suppress(OSError):
                        keep(partial)
                    raise


def write(path: str | pathlib.Path, content: str | bytes) -> None:
    """Writes a file as `replacing` does; text is written in UTF-8."""
    with replacing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextlib.contextmanager
def new_folder(path: str | pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields a new folder beside `path`, which the end of the block removes.

    Those that killed processes have left beside `path` are removed before.
    """
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    for left in path.parent.glob(f".{glob.escape(path.name)}{PART}*"):
        if not locks.is_locked(left):
            shutil.rmtree(left, ignore_errors=True)
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    partial.mkdir()
    descriptor = os.open(partial, os.O_RDONLY)
    try:
        locks.lock(descriptor)
        yield partial
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        os.close(descriptor)


@contextlib.contextmanager
def replacing_folder(path: str | pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields a new folder that replaces `path` at the end of the block.

    If the block raises, the new folder is removed and `path` stays as it is.
    """
    with new_folder(path) as partial:
        yield partial
        rename_folder(partial, pathlib.Path(path))


def rename_folder(source: pathlib.Path, target: pathlib.Path) -> None:
    """Renames a folder, and removes the one that it replaces.

    If the renaming fails, the folder at `target` stays.
    """
    old = source.with_name(source.name + OLD)
    with contextlib.suppress(FileNotFoundError):
        os.rename(target, old)
    try:
        os.rename(source, target)
    except BaseException:
        if old.exists():
            os.rename(old, target)
        raise
    if old.is_symlink():
        old.unlink()
    shutil.rmtree(old, ignore_errors=True)


def open_appending(path: str | pathlib.Path) -> BinaryIO:
    """Opens a file for reading and for adding to its end.

    Raises:
        OSError: it is a link, or cannot be opened.
    """
    return open(
        path, "ab+", opener=lambda p, f: os.open(p, f | os.O_NOFOLLOW, 0o666)
    )


def regular(path: str | pathlib.Path) -> pathlib.Path:
    """Returns a path, unless it is of a device or a pipe, which may never end.

    Raises:
        UserError: it is.
    """
    path = pathlib.Path(path)
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise errors.UserError(
            f"Expected a regular file, which ends and can be read again. "
            f"Received: {path}, a device or a pipe, or a link to one."
        )
    return path


def sha256(path: str | pathlib.Path) -> str:
    """Returns a file's checksum, in hexadecimal."""
    content = hashlib.sha256()
    with open(regular(path), "rb") as file:
        while block := file.read(_BLOCK):
            content.update(block)
    return content.hexdigest()


@contextlib.contextmanager
def _named(path, partial):
    """Gives errors of a file the name that the user knows."""
    try:
        yield
    except OSError as error:
        if error.errno and error.filename in (None, partial):
            raise OSError(error.errno, error.strerror, path) from error
        raise
