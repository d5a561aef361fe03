"""Lines of text in files and streams.

A line ends at "\\n" and nowhere else: U+0085 and U+2028 occur inside the lines
of real test sets, so `str.splitlines` would shift every later line.

Reading removes one "\\r" before a line end and a byte order mark at the start,
and replaces bytes that are not UTF-8 by U+FFFD. Every line keeps its place.
"""

import contextlib
import gzip
import io
import itertools
import os
import pathlib
import zlib
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from typing import BinaryIO

from relpos_tf import errors
from relpos_tf.utils import extras
from relpos_tf.utils import files
from relpos_tf.utils import signals
from relpos_tf.utils import terminal

# Of every vocabulary: padding, and the end of a sentence.
PAD_ID = 0
EOS_ID = 1
UNKNOWN_ID = 2  # of SentencePiece's
COMPRESSED = ".gz", ".zst"  # the ends of names of compressed files
_BLOCK = 1 << 20
_COMPRESSED_BLOCK = 1 << 16


def stream_lines(stream: Iterable[bytes]) -> Iterator[str]:
    """Yields the lines of a stream of bytes, without their ends."""
    for number, line in enumerate(stream):
        if number == 0:
            line = line.removeprefix(b"\xef\xbb\xbf")
        line = line.removesuffix(b"\n").removesuffix(b"\r")
        yield line.decode("utf-8", errors="replace")


def lines_of(content: bytes) -> list[str]:
    """Returns the lines of whole lines of a file, as `stream_lines` does.

    A byte order mark is no part of `content`.
    """
    # No byte of another character looks like a line end.
    lines = content.decode("utf-8", errors="replace").split("\n")
    if not lines[-1]:
        lines.pop()
    if b"\r" in content:
        lines = [line.removesuffix("\r") for line in lines]
    return lines


@contextlib.contextmanager
def opened(path: str | pathlib.Path) -> Iterator[BinaryIO]:
    """Yields a text file, open for reading bytes.

    Args:
        path: The file: plain, gzipped (its name ends in .gz) or compressed by
            Zstandard (.zst), which needs the extra `zstd`.

    Raises:
        UserError: the file does not exist, or cannot be read to its end.
    """
    path = pathlib.Path(path)
    open_ = {".gz": _open_gzip, ".zst": _open_zstandard}.get(path.suffix, open)
    try:
        with open_(path, "rb") as file:
            yield file
    except FileNotFoundError as error:
        raise errors.UserError(
            f"Expected a text file. Received: {path}, which does not exist."
        ) from error
    except (OSError, EOFError, zlib.error) as error:
        raise errors.UserError(
            f"Cannot read {path} to its end ({error}). Put a complete copy "
            "of the file in its place."
        ) from error


def read_lines(path: str | pathlib.Path) -> Iterator[str]:
    """Yields the lines of a text file; see `opened` for its kinds.

    Raises:
        UserError: the file does not exist, or cannot be read to its end.
    """
    with opened(path) as file:
        yield from stream_lines(file)


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


class AtHand:
    """The lines of a file, which may be read before they are needed.

    The lines of a stream are an iterator instead: what comes next may depend on
    an answer.

    Args:
        lines: An iterator.
    """

    def __init__(self, lines: Iterator[str]):
        self._lines = lines

    def __iter__(self):
        return self._lines


def count_lines(path: str | pathlib.Path) -> int:
    """Returns the number of lines that `read_lines` yields."""
    count, last = 0, b"\n"
    with opened(path) as file:
        while content := file.read(_BLOCK):
            count += content.count(b"\n")
            last = content[-1:]
    return count + (last != b"\n")


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


def _open_gzip(path, mode):
    # Without the buffer, Python would run for each line.
    return io.BufferedReader(gzip.open(path, mode), _BLOCK)


def _open_zstandard(path, mode):
    with extras.imports("zstd", "reading .zst"):
        import zstandard
    reader = _Zstandard(open(path, mode), zstandard)
    return io.BufferedReader(reader, _BLOCK)


class _Zstandard(io.RawIOBase):
    """The content of a file compressed by Zstandard, of any number of frames.

    The package's own reader ends without an error where a file was cut.

    Args:
        file: The compressed file, which is closed with this one.
        zstandard: The package.
    """

    def __init__(self, file: BinaryIO, zstandard):
        self._file, self._zstandard = file, zstandard
        self._frame = None
        self._input, self._output = b"", memoryview(b"")

    def readable(self):
        return True

    def close(self):
        self._file.close()
        super().close()

    def readinto(self, buffer):
        while not self._output and self._decompress():
            pass
        size = min(len(buffer), len(self._output))
        buffer[:size] = self._output[:size]
        self._output = self._output[size:]
        return size

    def _decompress(self):
        """Decompresses one more block; returns False at the end."""
        self._input = self._input or self._file.read(_COMPRESSED_BLOCK)
        if not self._input:
            if self._frame is not None:
                raise EOFError("the file ends within a frame")
            return False
        if self._frame is None:
            self._frame = self._zstandard.ZstdDecompressor().decompressobj()
        try:
            content = self._frame.decompress(self._input)
        except self._zstandard.ZstdError as error:
            raise OSError(str(error)) from error
        self._output, self._input = memoryview(content), b""
        if self._frame.eof:
            self._input, self._frame = self._frame.unused_data, None
        return True


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
