"""Lines of text in files and streams: one way in, and one way out.

A line ends at "\\n" and nowhere else: U+0085 and U+2028 occur inside the lines
of real test sets, so `str.splitlines` would shift every later line.

Reading removes one "\\r" before a line end and a byte order mark at the start,
and replaces bytes that are not UTF-8 by U+FFFD. Every line keeps its place.
Compressed files are known by their first bytes. Text that is not meant to be
UTF-8, and files that are no text, are refused with the command that helps.
"""

import bz2
import contextlib
import gzip
import io
import itertools
import logging
import lzma
import os
import pathlib
import re
import shlex
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
# The ends of names of files that `writer` compresses.
COMPRESSED = ".gz", ".bz2", ".xz", ".zst"
# Shares of lines beyond which a file was not meant to be UTF-8.
_MOST_BROKEN, _MOST_NUL = 0.05, 0.01
_BLOCK = 1 << 20
_COMPRESSED_BLOCK = 1 << 16
_MARK = b"\xef\xbb\xbf"
# Byte order marks of other encodings, the longer ones first.
_OTHER_MARKS = {
    b"\xff\xfe\0\0": "UTF-32",
    b"\0\0\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
# The first bytes of files that are no text; those of tar are further on.
_NO_TEXT = {
    b"PK\x03\x04": "a zip archive or an office document",
    b"7z\xbc\xaf": "a 7z archive",
    b"Rar!\x1a": "a rar archive",
    b"%PDF-": "a PDF document",
}
_TAR = b"ustar"
_TAR_PLACE = 257
# Lines after which a stream that is not UTF-8 is stopped.
_MANY = 1000
_log = logging.getLogger("relpos_tf")


class Checked:
    """The lines of a file or stream, while they are read.

    Args:
        name: str. Of the file, for messages.

    Attributes:
        lines: int. The lines so far.
        broken: int. Those that are not UTF-8.
        nul: int. Those with a NUL.
    """

    def __init__(self, name: str):
        self._name, self._sample = name, b""
        self.lines = self.broken = self.nul = 0

    def add(self, lines: list[bytes]) -> None:
        """Counts the next lines."""
        self.lines += len(lines)
        content = b"".join(lines)
        if b"\0" in content:
            self.nul += sum(b"\0" in line for line in lines)
            self._sample = self._sample or content
        try:
            content.decode()
        except UnicodeDecodeError:
            self.broken += sum(not _is_utf8(line) for line in lines)

    def is_wrong(self) -> bool:
        """Returns whether the lines so far are not meant to be UTF-8."""
        return (
            self.nul > _MOST_NUL * self.lines
            or self.broken > _MOST_BROKEN * self.lines
        )

    def check(self) -> None:
        """Warns of a few lines that are not UTF-8.

        Raises:
            UserError: there are many, or many lines with NULs.
        """
        if self.is_wrong():
            number, fault, encoding = self.broken, "are not UTF-8", "latin1"
            if self.nul > _MOST_NUL * self.lines:
                number, fault = self.nul, "have NULs"
                encoding = _wide_encoding(self._sample)
            share = f"{number:,} of {self.lines:,} lines {fault}"
            raise _no_utf8(self._name, f"of which {share}", encoding)
        if self.broken:
            _log.warning(
                "%s of %s lines of %s are not UTF-8. What cannot be read "
                "becomes U+FFFD; training pairs with it are dropped.",
                f"{self.broken:,}",
                f"{self.lines:,}",
                self._name,
            )


def survey(path: str | pathlib.Path) -> int:
    """Returns the number of lines of a file, and checks its encoding.

    Raises:
        UserError: the file does not exist, cannot be read to its end, is no
            text, or is not meant to be UTF-8.
    """
    checked = Checked(str(path))
    with opened(path) as file:
        while lines := file.readlines(_BLOCK):
            checked.add(lines)
    checked.check()
    return checked.lines


def stream_lines(
    stream: Iterable[bytes], name: str = "standard input"
) -> Iterator[str]:
    """Yields the lines of a stream of bytes, without their ends.

    Args:
        stream: Its lines, with their ends.
        name: str. For messages.

    Raises:
        UserError: the lines are not meant to be UTF-8, as far as they have
            been read.
    """
    checked = Checked(name)
    for number, line in enumerate(stream):
        if number == 0:
            _check_first_bytes(name, line)
        checked.add([line])
        if checked.lines >= _MANY and checked.is_wrong():
            break
        yield _decoded(line, is_first=number == 0)
    checked.check()


@contextlib.contextmanager
def opened(path: str | pathlib.Path) -> Iterator[BinaryIO]:
    """Yields a text file, open for reading its bytes, decompressed.

    Args:
        path: The file: plain, or compressed by gzip, bzip2, xz or Zstandard,
            which needs the extra `zstd`. Its name does not count.

    Raises:
        UserError: the file does not exist, cannot be read to its end, or its
            first bytes are those of a file that is no text.
    """
    try:
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(open(path, "rb"))
            if decompress := _decompressor(file.peek(_COMPRESSED_BLOCK)):
                reader = stack.enter_context(decompress(file))
                # Without the buffer, Python would run for each line.
                file = stack.enter_context(io.BufferedReader(reader, _BLOCK))
            _check_first_bytes(str(path), file.peek(_COMPRESSED_BLOCK))
            yield file
    except FileNotFoundError as error:
        raise errors.UserError(
            f"Expected a text file. Received: {path}, which does not exist."
        ) from error
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise errors.UserError(
            f"Cannot read {path} to its end ({error}). Put a complete copy "
            "of the file in its place."
        ) from error


def read_lines(path: str | pathlib.Path) -> Iterator[str]:
    """Yields the lines of a file whose encoding is known to be right.

    Raises:
        UserError: see `opened`.
    """
    with opened(path) as file:
        for number, line in enumerate(file):
            yield _decoded(line, is_first=number == 0)


def checked_lines(path: str | pathlib.Path) -> Iterator[str]:
    """Yields the lines of a user's file, which is checked before.

    A pipe, which cannot be read twice, is checked while it is read.

    Raises:
        UserError: see `survey`.
    """
    if os.path.exists(path) and not os.path.isfile(path):
        with opened(path) as file:
            yield from stream_lines(file, str(path))
        return
    survey(path)
    yield from read_lines(path)


def read_nonempty(path: str | pathlib.Path) -> Iterator[str]:
    """Returns the lines of a user's file that must have at least one.

    Raises:
        UserError: see `survey`; or the file is empty.
    """
    lines = checked_lines(path)
    first = list(itertools.islice(lines, 1))
    if not first:
        raise errors.UserError(f"Expected lines. Received: {path} is empty.")
    return itertools.chain(first, lines)


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
        path: A file, see `files.replacing`, compressed if its name ends in one
            of `COMPRESSED`; or "" for `stream`.
        stream: A stream that gets each line at once. Control characters are
            escaped if it is a terminal.
        on_kept: If the block raises, the lines written so far are kept in
            `PATH.first-N-lines` (with the suffix of a compressed file), and
            `on_kept` is called with the name of that file and N. None: they
            are removed.
    """
    if not path:
        stream.write(b"")  # A closed stream fails here, not hours later.
        yield _terminal(stream) if stream.isatty() else _pipe(stream)
        return
    with files.replacing(path) as file:
        packed = _compressor(path, file)
        try:
            yield lambda line: packed.write(_encoded(line))
            if packed is not file:
                packed.close()
        except BaseException:
            if on_kept and file.name != os.fspath(path):
                # A second Ctrl-C would lose the lines.
                with signals.held():
                    _keep(packed, file, path, on_kept)
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


def _decompressor(head: bytes) -> Callable[[BinaryIO], BinaryIO] | None:
    """Returns what decompresses a file with these first bytes, or None."""
    if head.startswith(b"\x1f\x8b"):
        return lambda file: gzip.GzipFile(fileobj=file)
    if re.match(rb"BZh[1-9](1AY&SY|\x17rE8P)", head):
        return bz2.BZ2File
    if head.startswith(b"\xfd7zXZ\0"):
        return lzma.LZMAFile
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        with extras.imports("zstd", "reading Zstandard"):
            import zstandard
        return lambda file: _Zstandard(file, zstandard)
    return None


def _compressor(path: str | pathlib.Path, file: BinaryIO) -> BinaryIO:
    """Returns what compresses into a file, by its final name."""
    match pathlib.Path(path).suffix.lower():
        case ".gz":
            return gzip.GzipFile(filename="", mode="wb", fileobj=file)
        case ".bz2":
            return bz2.BZ2File(file, "wb")
        case ".xz":
            return lzma.LZMAFile(file, "wb")
        case ".zst":
            with extras.imports("zstd", "writing Zstandard"):
                import zstandard
            compressor = zstandard.ZstdCompressor()
            return compressor.stream_writer(file, closefd=False)
    return file


def _check_first_bytes(name: str, head: bytes) -> None:
    """Raises UserError for bytes that are not the first ones of UTF-8 text."""
    for mark, encoding in _OTHER_MARKS.items():
        if head.startswith(mark):
            raise _no_utf8(name, f"which is {encoding}", encoding)
    is_tar = head[_TAR_PLACE:].startswith(_TAR)
    kinds = ["a tar archive"] if is_tar else []
    kinds += [
        kind for magic, kind in _NO_TEXT.items() if head.startswith(magic)
    ]
    if _decompressor(head):
        kinds.append("compressed, twice or in a stream")
    if kinds:
        raise errors.UserError(
            f"Expected a text file. Received: {name}, which is {kinds[0]}. "
            "Unpack it, and name the text in it."
        )


def _no_utf8(name: str, reason: str, encoding: str) -> errors.UserError:
    """Returns the error of text in another encoding.

    Args:
        name: str. Of the file.
        reason: str. A relative clause about the file.
        encoding: str. Its name for iconv; "" if it is none.
    """
    message = f"Expected text in UTF-8. Received: {name}, {reason}."
    if not encoding:
        return errors.UserError(f"{message} Perhaps it is no text.")
    convert = f"iconv -f {encoding} -t UTF-8"
    if not os.path.isfile(name):
        return errors.UserError(f"{message} Pass it through {convert}")
    if _is_compressed(name):
        advice = f"Decompress it, and pass it through {convert} > NEW"
    else:
        advice = f"Convert it: {convert} {shlex.quote(name)} > NEW"
    return errors.UserError(f"{message} {advice}")


def _is_compressed(path: str) -> bool:
    with open(path, "rb") as file:
        return _decompressor(file.read(_COMPRESSED_BLOCK)) is not None


def _wide_encoding(sample: bytes) -> str:
    """Returns the encoding whose letters have NULs in these places, or ""."""
    first, second = (sample[i::2].count(0) for i in (0, 1))
    # Text without Latin letters has few NULs, and still on one side.
    if max(first, second) < max(len(sample) / 50, 10 * min(first, second)):
        return ""
    return "UTF-16BE" if first > second else "UTF-16LE"


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _decoded(line: bytes, is_first: bool) -> str:
    """Returns a line without its end, and without a byte order mark."""
    if is_first:
        line = line.removeprefix(_MARK)
    line = line.removesuffix(b"\n").removesuffix(b"\r")
    return line.decode("utf-8", errors="replace")


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


def _keep(packed, file, path, on_kept):
    """Renames a temporary file, if it has whole lines.

    Args:
        packed: What compresses into the file, or the file.
        file: The file.
        path: Its final name.
        on_kept: See `writer`.
    """
    # On a full disk, only a part of the last line may be written.
    with contextlib.suppress(OSError):
        if packed is not file:
            packed.close()
        file.flush()
    try:
        with opened(file.name) as lines:
            sizes = [len(line) for line in lines if line.endswith(b"\n")]
    except errors.UserError:
        return
    if not sizes:
        return
    if packed is file:
        os.truncate(file.name, sum(sizes))
    kept = f"{path}.first-{len(sizes)}-lines"
    if packed is not file:
        kept += pathlib.Path(path).suffix
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
