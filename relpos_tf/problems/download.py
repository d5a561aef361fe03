"""Find the files of a corpus in `--tmp_dir`, or download them there.

Existing files are used without checks. Downloads have a temporary name until
their size and checksum are verified, as far as these are known or the server
announces the size. Only the members asked for are read from archives, each as
a plain file whose name has no folders.
"""

import dataclasses
import hashlib
import http.client
import logging
import lzma
import pathlib
import re
import shutil
import struct
import tarfile
import urllib.request
import zipfile
import zlib
from collections.abc import Sequence
from typing import BinaryIO

from relpos_tf import errors
from relpos_tf.utils import files
from relpos_tf.utils import terminal

_BLOCK = 1 << 20
# Errors of damaged archives of all kinds.
_BROKEN_ARCHIVE = (
    EOFError,
    KeyError,
    OSError,
    RuntimeError,
    ValueError,
    lzma.LZMAError,
    struct.error,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
)
# Some hosts refuse Python's default.
_USER_AGENT = "relpos_tf (a machine translation toolkit)"


class MissingFileError(errors.UserError):
    """A file is not there, and cannot be downloaded."""


@dataclasses.dataclass(frozen=True)
class Remote:
    """A file on a server.

    Attributes:
        address: str. Its URL.
        size: int or None. Its number of bytes, if known.
        sha256: str or None. Its checksum in hexadecimal, if known.
        md5: str or None. Its MD5 sum, if only this one is published.
        seconds: float. How long to wait for the server each time.
    """

    address: str
    size: int | None = None
    sha256: str | None = None
    md5: str | None = None
    seconds: float = 60

    @property
    def name(self) -> str:
        """The file's name: the last part of its address."""
        return self.address.rsplit("/", 1)[1]


def find(
    tmp_dir: str | None, name: str, folders: Sequence[str] = ()
) -> pathlib.Path | None:
    """Returns the first existing file, plain or gzipped, or None.

    Args:
        tmp_dir: str or None. The folder to search; None finds nothing.
        name: Name of the file, without `.gz`.
        folders: Sub-folders of `tmp_dir` to search first.
    """
    if tmp_dir is None:
        return None
    for folder in (*folders, ""):
        for suffix in ("", ".gz"):
            path = pathlib.Path(tmp_dir, folder, name + suffix)
            if path.is_file():
                return path
    return None


def fetch(remote: Remote, tmp_dir: str | None) -> pathlib.Path:
    """Returns the local copy of a remote file, downloading it if need be.

    Args:
        remote: The file.
        tmp_dir: str or None. The folder of the copy.

    Raises:
        MissingFileError: no folder was given, the download failed, or another
            file arrived. The message tells how to provide the file by hand.
    """
    if tmp_dir is None:
        raise MissingFileError(
            f"{remote.name} must be downloaded from {remote.address}, but no "
            "folder was given for it. Pass --tmp_dir."
        )
    path = pathlib.Path(tmp_dir, remote.name)
    if path.is_file():
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with files.replacing(path) as file:
            received = _download(remote, file)
            _check(remote, received)
    except (OSError, http.client.HTTPException) as error:
        raise MissingFileError(
            f"Cannot download {remote.name} from {remote.address} ({error}). "
            f"Put the file into {tmp_dir} by hand, or try again."
        ) from error
    return path


def extract(
    archive: pathlib.Path, member: str, folder: str | pathlib.Path
) -> pathlib.Path:
    """Copies one member of a tar or zip archive into a folder.

    Args:
        archive: A .zip, or a .tar with any compression.
        member: str. The member's full name in the archive.
        folder: Gets a file named like the member, without its folders.

    Returns:
        The file.

    Raises:
        UserError: the archive is damaged or has no such file.
    """
    path = pathlib.Path(folder, pathlib.PurePosixPath(member).name)
    if path.is_file():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with files.replacing(path) as copy:
            _copy_member(archive, member, copy)
    except _BROKEN_ARCHIVE as error:
        if getattr(error, "errno", None):
            raise  # not the archive's fault: a full disk, for example
        raise errors.UserError(
            f"Cannot read {member} out of {archive} ({error}). Delete the "
            "archive, so that it is downloaded again."
        ) from error
    return path


def _copy_member(archive: pathlib.Path, member: str, copy: BinaryIO) -> None:
    """Copies one member of an archive into an open file."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as opened, opened.open(member) as file:
            shutil.copyfileobj(file, copy, _BLOCK)
        return
    with tarfile.open(archive) as opened:
        file = opened.extractfile(member)
        if file is None:
            raise KeyError(f"{member} is not a plain file")
        with file:
            shutil.copyfileobj(file, copy, _BLOCK)
        # The checksum of a compressed archive stands at its end.
        while opened.fileobj.read(_BLOCK):
            pass


def plain_text(sgm: pathlib.Path) -> pathlib.Path:
    """Turns a WMT .sgm file into one segment per line, as sacreBLEU does.

    Only blanks are collapsed and stripped, so scores equal `sacrebleu -t`.

    Returns:
        The text file, beside the .sgm file.
    """
    path = sgm.with_name(sgm.name + ".txt")
    segments = re.findall(
        r"^<seg [^>]*>(.*)</seg>",
        sgm.read_text(encoding="utf-8", errors="replace"),
        flags=re.MULTILINE,
    )
    lines = (" ".join(segment.split()) + "\n" for segment in segments)
    files.write(path, "".join(lines))
    return path


def _download(remote: Remote, file: BinaryIO) -> dict[str, int | str]:
    """Copies a remote file; returns its size and checksums."""
    request = urllib.request.Request(
        remote.address, headers={"User-Agent": _USER_AGENT}
    )
    sums = {name: hashlib.new(name) for name in ("sha256", "md5")}
    size = 0
    with urllib.request.urlopen(request, timeout=remote.seconds) as response:
        announced = response.headers.get("Content-Length", "")
        announced = int(announced) if announced.isdecimal() else None
        total = announced or remote.size
        while block := response.read(_BLOCK):
            file.write(block)
            for checksum in sums.values():
                checksum.update(block)
            size += len(block)
            line = f"{remote.name}: {_progress(size, total)}"
            terminal.show(lambda line=line: line)
    terminal.clear()
    if announced is not None and size != announced:
        raise OSError(f"{size} of {announced} bytes arrived")
    return {"size": size, **{n: s.hexdigest() for n, s in sums.items()}}


def _check(remote: Remote, received: dict[str, int | str]) -> None:
    """Raises unless size and checksums are those published."""
    expected = {
        name: value
        for name in ("size", "sha256", "md5")
        if (value := getattr(remote, name)) is not None
    }
    for name, value in expected.items():
        if received[name] != value:
            raise MissingFileError(
                f"The download from {remote.address} is not the file "
                f"expected: {name} {value}. Received: {received[name]}. "
                "Try again, or put the right file into --tmp_dir by hand."
            )
    if "sha256" not in expected and "md5" not in expected:
        logging.warning(
            "No checksum is known for %s. Its sha256 is %s.",
            remote.name,
            received["sha256"],
        )


def _progress(size: int, total: int | None) -> str:
    """Returns "3 MB", or "3 of 7 MB" if the whole size is known."""
    whole = f" of {total / 1e6:.0f}" if total else ""
    return f"{size / 1e6:.0f}{whole} MB"
