"""Finding the files of a corpus in `--tmp_dir`, or downloading them there.

Files that are there already are taken as they are. Downloads arrive under a
name ending in `.part` and get their own name once their size and checksum are
right, as far as they are known or the server announces them, so an interrupted
one is never mistaken for a file. Out of archives only
the members asked for are read, each as a plain file under a name of ours.
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
import sys
import tarfile
import urllib.request
import zipfile
import zlib
from collections.abc import Sequence
from typing import BinaryIO

from relpos_tf import errors
from relpos_tf.utils import files

_BLOCK = 1 << 20
_TIMEOUT_SECONDS = 60
_BAR_WIDTH = 30
# What reading damaged archives raises, by their many kinds.
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
# Some hosts refuse Python's own name.
_USER_AGENT = "relpos_tf (a machine translation toolkit)"


@dataclasses.dataclass(frozen=True)
class Remote:
    """A file on a server.

    Attributes:
        address: str. Where it is.
        size: int or None. Its bytes, where known.
        sha256: str or None. Its checksum in hexadecimal, where known.
        md5: str or None. Likewise, where only that one is published.
    """

    address: str
    size: int | None = None
    sha256: str | None = None
    md5: str | None = None

    @property
    def name(self) -> str:
        """The file's name: the last part of its address."""
        return self.address.rsplit("/", 1)[1]


def find(
    tmp_dir: str | None, names: Sequence[str], folders: Sequence[str] = ()
) -> pathlib.Path | None:
    """Returns the first file that is there, plain or gzipped, or None.

    Args:
        tmp_dir: str or None. The folder to look in; None finds nothing.
        names: Names the file may have, without `.gz`.
        folders: Sub-folders of `tmp_dir` to look in first.
    """
    if tmp_dir is None:
        return None
    for folder in (*folders, ""):
        for name in names:
            for suffix in ("", ".gz"):
                path = pathlib.Path(tmp_dir, folder, name + suffix)
                if path.is_file():
                    return path
    return None


def fetch(remote: Remote, tmp_dir: str | None) -> pathlib.Path:
    """Returns the local copy of a remote file, downloading it if need be.

    Args:
        remote: What to fetch.
        tmp_dir: str or None. The folder that has it or gets it.

    Raises:
        UserError: no folder was given, the download failed, or what came is
            not the file expected. Says what to put where by hand.
    """
    if tmp_dir is None:
        raise errors.UserError(
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
        raise errors.UserError(
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
            if zipfile.is_zipfile(archive):
                with zipfile.ZipFile(archive) as opened:
                    with opened.open(member) as file:
                        shutil.copyfileobj(file, copy, _BLOCK)
            else:
                with tarfile.open(archive) as opened:
                    file = opened.extractfile(member)
                    if file is None:
                        raise KeyError(f"{member} is not a plain file")
                    with file:
                        shutil.copyfileobj(file, copy, _BLOCK)
                    # The checksum of a compressed archive stands at its end.
                    while opened.fileobj.read(_BLOCK):
                        pass
    except _BROKEN_ARCHIVE as error:
        if getattr(error, "errno", None):
            raise  # The machine's fault, such as a full disk.
        raise errors.UserError(
            f"Cannot read {member} out of {archive} ({error}). Delete the "
            "archive, so that it is downloaded again."
        ) from error
    return path


def plain_text(sgm: pathlib.Path) -> pathlib.Path:
    """Turns a WMT .sgm file into one segment per line, as sacreBLEU does.

    Blanks are collapsed and stripped, and nothing else is changed, so scores
    are those of `sacrebleu -t`.

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
    with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as response:
        announced = response.headers.get("Content-Length", "")
        announced = int(announced) if announced.isdecimal() else None
        total = announced or remote.size
        while block := response.read(_BLOCK):
            file.write(block)
            for checksum in sums.values():
                checksum.update(block)
            size += len(block)
            _show_progress(remote.name, size, total)
    sys.stderr.write("\n")
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
            raise errors.UserError(
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


def _show_progress(name: str, size: int, total: int | None) -> None:
    """Redraws the progress line on standard error."""
    megabytes = f"{size / 1e6:.0f} MB"
    if total:
        done = min(size / total, 1.0)
        bar = ("#" * int(done * _BAR_WIDTH)).ljust(_BAR_WIDTH, ".")
        megabytes = f"[{bar}] {megabytes} of {total / 1e6:.0f} MB"
    sys.stderr.write(f"\r{name} {megabytes}")
    sys.stderr.flush()
