"""Lines of text in files and streams.

A line ends at "\\n" and nowhere else: U+0085 and U+2028 occur inside the lines
of real test sets, so `str.splitlines` would shift every later line.

Reading removes one "\\r" before a line end and a byte order mark at the start,
and replaces bytes that are not UTF-8 by U+FFFD. Every line keeps its place.
"""

import contextlib
import gzip
import itertools
import os
import pathlib
import zlib
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from typing import BinaryIO

from relpos_tf import errors
from relpos_tf.utils import files
from relpos_tf.utils import signals
from relpos_tf.utils import terminal

# Of every vocabulary: padding, and the end of a sentence.
PAD_ID = 0
EOS_ID = 1


def stream_lines(stream: Iterable[bytes]) -> Iterator[str]:
    """Yields the lines of a stream of bytes, without their ends."""
    for number, line in enumerate(stream):
        if number == 0:
            line = line.removeprefix(b"\xef\xbb\xbf")
        line = line.removesuffix(b"\n").removesuffix(b"\r")
        yield line.decode("utf-8", errors="replace")


def read_lines(path: str | pathlib.Path) -> Iterator[str]:
    """Yields the lines of a text file, plain or gzipped (name ends in .gz).

    Raises:
        UserError: the file does not exist, or cannot be read to its end.
    """
    path = pathlib.Path(path)
    open_ = gzip.open if path.suffix == ".gz" else open
    try:
        with open_(path, "rb") as file:
            yield from stream_lines(file)
    except FileNotFoundError as error:
        raise errors.UserError(
            f"Expected a text file. Received: {path}, which does not exist."
        ) from error
    except (OSError, EOFError, zlib.error) as error:
        raise errors.UserError(
            f"Cannot read {path} to its end ({error}). Put a complete copy "
            "of the file in its place."
        ) from error


def read_nonempty(path: str | pathlib.Path) -> Iterator[str]:
    """Returns the lines of a file that must have at least one.

    Raises:
        UserError: the file is missing or empty.
    """
    lines = read_lines(path)
    first = list(itertools.islice(lines, 1))
    if not first:
        raise errors.UserError(f"Expected lines. Received: {path} is empty.")
    return itertools.chain(first, lines)


def count_lines(path: str | pathlib.Path) -> int:
    """Returns the number of lines that `read_lines` yields."""
    return sum(1 for _ in read_lines(path))


def count_broken(lines: Iterable[str]) -> int:
    """Returns the number of lines with U+FFFD, which were not UTF-8."""
    return sum("\ufffd" in line for line in lines)


@contextlib.contextmanager
def writer(
    path: str | pathlib.Path,
    stream: BinaryIO | None = None,
    on_kept: Callable[[str, int], None] | None = None,
) -> Iterator[Callable[[str], None]]:
    """Yields a function that writes a line, in UTF-8.

    Args:
        path: A file, see `files.replacing`; or "" for `stream`.
        stream: A stream that gets each line at once. Control characters are
            escaped if it is a terminal.
        on_kept: If the block raises, the lines written so far are kept in
            `PATH.first-N-lines`, and `on_kept` is called with the name of that
            file and N. None: they are removed.
    """
    if not path:
        stream.write(b"")  # A closed stream fails here, not hours later.
        yield _terminal(stream) if stream.isatty() else _pipe(stream)
        return
    with files.replacing(path) as file:
        try:
            yield lambda line: file.write(_encoded(line))
        except BaseException:
            if on_kept and file.name != os.fspath(path):
                # A second Ctrl-C would lose the lines.
                with signals.held():
                    _keep(file, path, on_kept)
            raise


def write_lines(path: str | pathlib.Path, lines: Iterable[str]) -> None:
    """Writes a file of lines, in UTF-8.

    Raises:
        ValueError: a line contains "\\n", and would be read as two.
    """
    with writer(path) as write:
        for number, line in enumerate(lines, start=1):
            if "\n" in line:
                raise ValueError(
                    "A line must not contain a line end. "
                    f"Received: {line!r} as line {number}."
                )
            write(line)


def _keep(file, path, on_kept):
    """Renames a temporary file, if it has whole lines."""
    # On a full disk, only a part of the last line may be written.
    with contextlib.suppress(OSError):
        file.flush()
    with open(file.name, "rb+") as written:
        sizes = [len(line) for line in written if line.endswith(b"\n")]
        if not sizes:
            return
        written.truncate(sum(sizes))
    kept = f"{path}.first-{len(sizes)}-lines"
    os.replace(file.name, kept)
    on_kept(kept, len(sizes))


def _pipe(stream: BinaryIO) -> Callable[[str], None]:
    return lambda line: (stream.write(_encoded(line)), stream.flush())


def _terminal(stream: BinaryIO) -> Callable[[str], None]:
    def write(line):
        terminal.clear()
        _pipe(stream)(terminal.printable(line))

    return write


def _encoded(line: str) -> bytes:
    return line.encode("utf-8", errors="replace") + b"\n"
