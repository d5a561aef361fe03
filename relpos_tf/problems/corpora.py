"""Parallel text in pairs of files: found in `--tmp_dir`, or downloaded there.

Files that are there are used without checksums. A download has a temporary name
until it is whole and its checksum is right, as far as it is known. From an
archive only the members asked for are taken, each as a plain file whose name
has no folders.
"""

import collections
import contextlib
import dataclasses
import hashlib
import http.client
import itertools
import pathlib
import re
import shutil
import tarfile
import urllib.request
import zipfile
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import BinaryIO

from relpos_tf import errors
from relpos_tf.utils import files
from relpos_tf.utils import terminal
from relpos_tf.utils import text

_BLOCK = 1 << 20
_SECONDS = 20  # to wait for a server each time
# Some hosts refuse Python's default.
_USER_AGENT = "relpos_tf (a machine translation toolkit)"
_SEGMENT = re.compile("<seg [^>]*>(.*)</seg>")


class MissingFileError(errors.UserError):
    """A file is not there, and cannot be downloaded."""


@dataclasses.dataclass(frozen=True)
class Remote:
    """A file on a server.

    Attributes:
        address: str. Its URL.
        checksum: str. Its sha256 in hexadecimal; or its MD5 sum, if only this
            one is published; or "", if none is.
    """

    address: str
    checksum: str = ""

    @property
    def name(self) -> str:
        """The file's name: the last part of its address."""
        return self.address.rsplit("/", 1)[1]


@dataclasses.dataclass(frozen=True)
class Side:
    """One language of a `Bitext`.

    Attributes:
        name: Name of its file in `--tmp_dir`; a compressed file's name may
            have a suffix of `text.COMPRESSED` more.
        remote: The download if there is no such file; None for no download.
        member: Full name within the remote archive; None if the remote file
            is itself the text. A `.sgm` member is converted to plain text.
    """

    name: str
    remote: Remote | None = None
    member: str | None = None


@dataclasses.dataclass(frozen=True)
class Bitext:
    """Where the files of parallel text are: two sides whose lines correspond.

    Attributes:
        source: Side.
        target: Side.
        folders: Sub-folders of `--tmp_dir`, searched before `--tmp_dir`
            itself. The first one gets the downloads.
    """

    source: Side
    target: Side
    _: dataclasses.KW_ONLY
    folders: tuple[str, ...]


class ParallelText:
    """Pairs of lines from pairs of files, readable any number of times.

    Args:
        files: (source path, target path) of each corpus.
        checksums: The expected sha256 of the two files of each corpus; none:
            those of the first reading.

    Raises:
        UserError: a file is missing, empty or no text in UTF-8, or two do not
            have the same number of lines; here and at the end of each reading:
            what was read is not as expected.

    Attributes:
        files: (source path, target path) of each corpus.
    """

    def __init__(
        self,
        files: Sequence[tuple[str | pathlib.Path, str | pathlib.Path]],
        checksums: Iterable[tuple[str, ...]] = (),
    ):
        self.files, self._count = list(files), 0
        self._checksums = dict(zip(self.files, checksums, strict=False))
        for pair in self.files:
            with self._unchanged(pair) as digests:
                self._count += _check_pair(pair, digests)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for pair in self.files:
            with self._unchanged(pair) as digests:
                sides = list(map(text.read_lines, pair, digests))
                yield from zip(*sides, strict=False)
                collections.deque(itertools.chain(*sides), 0)  # to their ends

    @contextlib.contextmanager
    def _unchanged(self, pair):
        """Yields digests for two files, and compares them after the block."""
        digests = hashlib.sha256(), hashlib.sha256()
        yield digests
        found = tuple(digest.hexdigest() for digest in digests)
        if found != self._checksums.setdefault(pair, found):
            raise errors.UserError(
                f"Expected {pair[0]} and {pair[1]} to stay as they are while "
                "they are prepared. Received: other content than at first. "
                "Run again when nothing writes to them."
            )


def read(corpora: Sequence[Bitext], tmp_dir: str | None) -> ParallelText:
    """Finds the files of corpora; returns their pairs, corpus by corpus.

    Args:
        corpora: The corpora.
        tmp_dir: str or None. Folder of raw files, and for downloads.

    Raises:
        MissingFileError: a file is not there and was not downloaded.
        UserError: files do not fit; see `ParallelText`.
    """
    found = [
        (
            locate(corpus.source, corpus.folders, tmp_dir),
            locate(corpus.target, corpus.folders, tmp_dir),
        )
        for corpus in corpora
    ]
    return ParallelText(found)


def find(
    tmp_dir: str | None, name: str, folders: Sequence[str] = ()
) -> pathlib.Path | None:
    """Returns the first existing file, plain or compressed, or None.

    Args:
        tmp_dir: str or None. The folder to search; None finds nothing.
        name: Name of the file, without the suffix of compressed files.
        folders: Sub-folders of `tmp_dir` to search first.
    """
    if tmp_dir is None:
        return None
    for folder in (*folders, ""):
        for suffix in ("", *text.COMPRESSED):
            path = pathlib.Path(tmp_dir, folder, name + suffix)
            if path.is_file():
                return path
    return None


def locate(
    side: Side, folders: Sequence[str], tmp_dir: str | None
) -> pathlib.Path:
    """Returns the path of one side, which is downloaded if need be.

    Args:
        side: The side.
        folders: Sub-folders of `tmp_dir`, as those of a `Bitext`.
        tmp_dir: str or None. Folder of raw files, and for downloads.

    Raises:
        MissingFileError: it is not there and was not downloaded.
        UserError: it is in an archive that is damaged.
    """
    path = find(tmp_dir, side.name, folders)
    if path:
        return path
    if tmp_dir is None or side.remote is None:
        address = side.remote.address if side.remote else "elsewhere"
        raise MissingFileError(
            f"Expected the file {side.name}, plain or compressed, in "
            f"--tmp_dir. Received: --tmp_dir={tmp_dir}, which does not have "
            f"it. Get it from {address} and put it there."
        )
    folder = pathlib.Path(tmp_dir, folders[0])
    path = find(tmp_dir, side.remote.name, folders) or fetch(
        side.remote, folder
    )
    if side.member is None:
        return path
    path = extract(path, side.member, folder)
    return plain_text(path) if path.suffix == ".sgm" else path


def fetch(remote: Remote, folder: pathlib.Path) -> pathlib.Path:
    """Downloads a file.

    Args:
        remote: The file.
        folder: Gets the file.

    Raises:
        MissingFileError: the download failed, or another file arrived. The
            message tells how to provide the file by hand.
    """
    path = folder / remote.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with files.replacing(path) as file:
            _download(remote, file)
    except (OSError, http.client.HTTPException) as error:
        raise MissingFileError(
            f"Cannot download {remote.name} from {remote.address} ({error}). "
            f"Put the file into {folder} by hand, or try again."
        ) from error
    return path


def extract(
    archive: pathlib.Path, member: str, folder: pathlib.Path
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
    path = folder / pathlib.PurePosixPath(member).name
    if path.is_file():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with files.replacing(path) as copy:
            _copy_member(archive, member, copy)
    except Exception as error:  # damage shows as errors of many classes
        if getattr(error, "errno", None):
            raise  # not the archive's fault: a full disk, for example
        raise errors.UserError(
            f"Cannot read {member} out of {archive} ({error}). Delete the "
            "archive, so that it is downloaded again."
        ) from error
    return path


def plain_text(sgm: pathlib.Path) -> pathlib.Path:
    """Turns a WMT .sgm file into one segment per line, as sacreBLEU does.

    Only blanks are collapsed and stripped, so scores equal `sacrebleu -t`.

    Returns:
        The text file, beside the .sgm file.
    """
    path = sgm.with_name(sgm.name + ".txt")
    segments = filter(None, map(_SEGMENT.match, text.read_lines(sgm)))
    text.write_lines(path, (" ".join(one[1].split()) for one in segments))
    return path


def _check_pair(pair, digests) -> int:
    """Returns the number of lines, or raises unless both files have as many."""
    source, target = pair
    counts = [
        sum(1 for _ in lines)
        for lines in map(text.checked_lines, pair, digests)
    ]
    if counts[0] == counts[1] and counts[0]:
        return counts[0]
    raise errors.UserError(
        "Expected as many lines in both files, and at least one. Received: "
        f"{source} has {counts[0]} lines, {target} has {counts[1]} lines."
    )


def _copy_member(archive: pathlib.Path, member: str, copy: BinaryIO) -> None:
    """Copies one member of an archive into an open file."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as opened, opened.open(member) as file:
            shutil.copyfileobj(file, copy, _BLOCK)
        return
    with tarfile.open(archive) as tar:
        content = tar.extractfile(member)
        if content is None:
            raise KeyError(f"{member} is not a plain file")
        shutil.copyfileobj(content, copy, _BLOCK)
        # The checksum of a compressed archive stands at its end.
        while tar.fileobj.read(_BLOCK):
            pass


def _download(remote: Remote, file: BinaryIO) -> None:
    """Copies a remote file; raises OSError unless it is the published one."""
    request = urllib.request.Request(
        remote.address, headers={"User-Agent": _USER_AGENT}
    )
    kind = "md5" if len(remote.checksum) == 32 else "sha256"
    checksum, size = hashlib.new(kind), 0
    with urllib.request.urlopen(request, timeout=_SECONDS) as response:
        announced = response.headers.get("Content-Length", "")
        whole = int(announced) if announced.isdecimal() else None
        of_whole = f" of {whole / 1e6:.0f}" if whole else ""
        while block := response.read(_BLOCK):
            file.write(block)
            checksum.update(block)
            size += len(block)
            line = f"{remote.name}: {size / 1e6:.0f}{of_whole} MB"
            terminal.show(line.__str__)
    terminal.clear()
    if whole is not None and size != whole:
        raise OSError(f"{size} of {whole} bytes arrived")
    received = checksum.hexdigest()
    if remote.checksum not in ("", received):
        raise OSError(
            f"another file arrived: expected {kind} {remote.checksum}. "
            f"Received: {received}"
        )
