"""Parallel text in pairs of files: find, check and read them."""

import dataclasses
import itertools
import logging
import pathlib
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence

from relpos_tf import errors
from relpos_tf.problems import blocks
from relpos_tf.problems import download
from relpos_tf.utils import text

_log = logging.getLogger("relpos_tf")


@dataclasses.dataclass(frozen=True)
class Side:
    """One language of a corpus.

    Attributes:
        name: Name of its file in `--tmp_dir`, with or without `.gz`.
        remote: The download if there is no such file; None for no download.
        member: Full name within the remote archive; None if the remote file
            is itself the text. A `.sgm` member is converted to plain text.
    """

    name: str
    remote: download.Remote | None = None
    member: str | None = None


@dataclasses.dataclass(frozen=True)
class Corpus:
    """Two sides whose lines correspond.

    Attributes:
        source: Side.
        target: Side.
        folders: Sub-folders of `--tmp_dir`, searched before `--tmp_dir`
            itself. The first one gets the downloads.
        num_lines: int or None. The number of lines, if known.
    """

    source: Side
    target: Side
    folders: tuple[str, ...]
    num_lines: int | None = None


class ParallelText:
    """Pairs of lines from pairs of files, readable any number of times.

    Args:
        files: (source path, target path) of each corpus.
        num_lines: Expected lines of each corpus, or None.

    Raises:
        UserError: a file is missing or empty, or two do not have the same
            number of lines, or not the expected number.

    Attributes:
        files: (source path, target path) of each corpus.
    """

    def __init__(
        self,
        files: Sequence[tuple[pathlib.Path, pathlib.Path]],
        num_lines: Sequence[int | None],
    ):
        self.files = list(files)
        self._counts = [
            _check_pair(source, target, expected)
            for (source, target), expected in zip(files, num_lines, strict=True)
        ]

    def __len__(self) -> int:
        return sum(self._counts)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for source, target in self.files:
            yield from zip(
                text.read_lines(source), text.read_lines(target), strict=True
            )

    def blocks(self) -> Iterator[blocks.TextBlock]:
        """Yields the pairs in blocks, see `blocks.cut`."""
        for source, target in self.files:
            yield from blocks.of_files(source, target)


class KeptApart:
    """Training text of several corpora that go into files of their own.

    Args:
        texts: The `ParallelText` of each corpus.
    """

    def __init__(self, texts: Sequence[ParallelText]):
        self.texts = list(texts)

    def __len__(self) -> int:
        return sum(map(len, self.texts))

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return itertools.chain.from_iterable(self.texts)


def read(corpora: Sequence[Corpus], tmp_dir: str | None) -> ParallelText:
    """Finds the files of corpora; returns their pairs, corpus by corpus."""
    files = [
        tuple(
            locate(side, corpus.folders, tmp_dir)
            for side in (corpus.source, corpus.target)
        )
        for corpus in corpora
    ]
    return ParallelText(files, [corpus.num_lines for corpus in corpora])


def read_available(
    corpora: Mapping[str, Corpus], tmp_dir: str | None
) -> dict[str, ParallelText]:
    """Returns the pairs of the corpora that are at hand, by name.

    A corpus is left out, and a message says so, if its files are not in
    `tmp_dir` and cannot be downloaded. After a failure, nothing more is
    downloaded.

    Args:
        corpora: By name. None is required.
        tmp_dir: str or None. Folder of raw files, and for downloads.

    Raises:
        UserError: files are there, but do not fit; see `ParallelText`.
    """
    available, left_out, reason = {}, {}, None
    for name, corpus in corpora.items():
        try:
            tried = _without_remotes(corpus) if reason else corpus
            available[name] = read([tried], tmp_dir)
        except download.MissingFileError as error:
            left_out[name] = corpus
            reason = reason or _cause(error)
    if left_out:
        _log_left_out(left_out, tmp_dir, reason)
    return available


def locate(
    side: Side, folders: Sequence[str], tmp_dir: str | None
) -> pathlib.Path:
    """Returns the path of one side."""
    path = download.find(tmp_dir, side.name, folders)
    if path:
        return path
    wanted = f"{side.name} (or {side.name}.gz)"
    if tmp_dir is None or side.remote is None:
        address = side.remote.address if side.remote else "elsewhere"
        raise download.MissingFileError(
            f"Expected the file {wanted} in --tmp_dir. Received: "
            f"--tmp_dir={tmp_dir}, which does not have it. Get it from "
            f"{address} and put it there."
        )
    folder = str(pathlib.Path(tmp_dir, folders[0]))
    try:
        path = download.find(tmp_dir, side.remote.name, folders)
        path = path or download.fetch(side.remote, folder)
    except download.MissingFileError as error:
        raise download.MissingFileError(
            f"{error} Or put the file {wanted} into {folder}."
        ) from error
    if side.member is None:
        return path
    path = download.extract(path, side.member, folder)
    return download.plain_text(path) if path.suffix == ".sgm" else path


def _without_remotes(corpus: Corpus) -> Corpus:
    """Returns a corpus whose files are not downloaded."""
    return dataclasses.replace(
        corpus,
        source=dataclasses.replace(corpus.source, remote=None),
        target=dataclasses.replace(corpus.target, remote=None),
    )


def _cause(error: download.MissingFileError) -> BaseException:
    """Returns why a download failed, without the advice for one file."""
    while isinstance(error, download.MissingFileError) and error.__cause__:
        error = error.__cause__
    return error


def _log_left_out(
    corpora: Mapping[str, Corpus], tmp_dir: str | None, reason: Exception
) -> None:
    """Names the corpora that are left out, their files and their folder."""
    missing = [
        side.name
        for corpus in corpora.values()
        for side in (corpus.source, corpus.target)
        if not download.find(tmp_dir, side.name, corpus.folders)
    ]
    first = next(iter(corpora.values()))
    _log.info(
        "Left out, since they are not required and not at hand: %s (%s). To "
        "add them, put %s, plain or .gz, into %s and prepare the data again "
        "with --generate_data.",
        ", ".join(corpora),
        reason,
        ", ".join(missing),
        pathlib.Path(tmp_dir or "--tmp_dir", first.folders[0]),
    )


def _check_pair(
    source: pathlib.Path, target: pathlib.Path, expected: int | None
) -> int:
    """Returns the number of lines, or raises unless both files have as many."""
    counts = [text.count_lines(path) for path in (source, target)]
    received = (
        f"{source} has {counts[0]} lines, {target} has {counts[1]} lines."
    )
    if counts[0] != counts[1]:
        raise errors.UserError(
            "Expected two files with the same number of lines. "
            f"Received: {received}"
        )
    if not counts[0]:
        raise errors.UserError(
            f"Expected at least one line. Received: {received}"
        )
    if expected and counts[0] != expected:
        raise errors.UserError(
            f"Expected {expected} lines in each file. Received: {received} "
            "These are other files of the same name: put the right ones into "
            "--tmp_dir."
        )
    return counts[0]
