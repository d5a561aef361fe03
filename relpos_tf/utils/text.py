r"""Lines of text in files and streams: one way in, and one way out.

A line ends at "\n" and nowhere else: U+0085 and U+2028 occur inside the lines
of real test sets, so `str.splitlines` would shift every later line.

Reading removes one "\r" before a line end and a byte order mark at the start,
and replaces bytes that are not UTF-8 by U+FFFD. Every line keeps its place.
Compressed files are known by their first bytes; files are written uncompressed.
Text in another encoding is refused with the command that converts it.
"""

import contextlib
import functools
import html
import importlib
import io
import itertools
import logging
import os
import pathlib
import re
import sys
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from typing import Any
from typing import BinaryIO

from relpos_tf import errors
from relpos_tf.utils import extras
from relpos_tf.utils import files
from relpos_tf.utils import terminal

# Of every vocabulary: padding, and the end of a sentence.
PAD_ID = 0
EOS_ID = 1
UNKNOWN_ID = 2  # of SentencePiece's
# Compressed files: the end of a name, a pattern of the first bytes, the module
# that has `open` to read them.
_FORMATS = {
    ".gz": (rb"\x1f\x8b", "gzip"),
    ".bz2": (rb"BZh[1-9](1AY&SY|\x17rE8P\x90)", "bz2"),
    ".xz": (rb"\xfd7zXZ\0", "lzma"),
    ".zst": (rb"\x28\xb5\x2f\xfd", "backports.zstd"),
}
COMPRESSED = tuple(_FORMATS)
# Shares of lines beyond which a file was not meant to be UTF-8.
_MOST_BROKEN, _MOST_NUL = 0.05, 0.01
_LONGEST = 1 << 24  # bytes of a line: what is longer is no text
# Lines after which a stream that is not UTF-8 is stopped.
_MANY = 1000
_BLOCK = 1 << 20
_MARK = b"\xef\xbb\xbf"
_log = logging.getLogger("relpos_tf")


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
    number = broken = nul = 0
    for number, content in enumerate(stream, start=1):
        line = _decoded(content, is_first=number == 1)
        # In UTF-16 and UTF-32, a line end has NULs before or after it.
        nul += content.startswith(b"\0") or content.endswith(b"\0\n")
        # The character itself, in UTF-8, is nothing that cannot be read.
        broken += "\ufffd" in line and b"\xef\xbf\xbd" not in content
        if number % _MANY == 0:
            _check(name, number, broken, nul)
        yield line
    _check(name, number, broken, nul)
    if broken:
        _log.warning(
            "%s of %s lines of %s are not UTF-8. What cannot be read becomes "
            "U+FFFD; training pairs with it are dropped.",
            f"{broken:,}",
            f"{number:,}",
            name,
        )


def bounded(
    stream: BinaryIO, name: str | pathlib.Path = "standard input"
) -> Iterator[bytes]:
    """Yields the lines of a stream, with their ends.

    Args:
        stream: What is read.
        name: For the message.

    Raises:
        UserError: a line is so long that it may have no end.
    """
    lines = iter(functools.partial(stream.readline, _LONGEST + 1), b"")
    for number, line in enumerate(lines, start=1):
        if len(line) > _LONGEST:
            raise errors.UserError(
                f"Expected lines of at most {_LONGEST:,} bytes. Received: "
                f"{name}, whose line {number:,} is longer. Divide it."
            )
        yield line


def read_lines(path: str | pathlib.Path, digest: Any = None) -> Iterator[str]:
    """Yields the lines of a file whose encoding is known to be right.

    Args:
        path: The file.
        digest: An object of `hashlib` that gets the content of the file, as it
            is on the disk, after the last line.

    Raises:
        OSError: the file does not exist, for example.
        UserError: its content cannot be read to its end, or a line is too
            long.
    """
    for number, line in enumerate(_lines_of(path, digest)):
        yield _decoded(line, is_first=number == 0)


def checked_lines(
    path: str | pathlib.Path, digest: Any = None
) -> Iterator[str]:
    """Yields the lines of a user's file, which is checked while it is read.

    Args:
        path: The file.
        digest: See `read_lines`.

    Raises:
        OSError: the file does not exist, for example.
        UserError: its content cannot be read to its end, or is not text in
            UTF-8, as far as it has been read; or a line is too long.
    """
    return stream_lines(_lines_of(path, digest), str(path))


def read_nonempty(path: str | pathlib.Path) -> Iterator[str]:
    """Returns the lines of a user's file that must have at least one.

    Raises:
        OSError: as for `checked_lines`.
        UserError: likewise; or the file is empty.
    """
    lines = checked_lines(path)
    first = list(itertools.islice(lines, 1))
    if not first:
        raise errors.UserError(f"Expected lines. Received: {path} is empty.")
    return itertools.chain(first, lines)


@contextlib.contextmanager
def writer(
    path: str | pathlib.Path,
    stream: BinaryIO | None = None,
    on_kept: Callable[[str, int], None] | None = None,
) -> Iterator[Callable[[str], Any]]:
    """Yields a function that writes a line, in UTF-8.

    Args:
        path: A file for `files.replacing`; or "" for `stream`.
        stream: A stream that gets each line at once. Control characters are
            escaped if it is a terminal. None: standard output.
        on_kept: If the block raises or the end fails, the lines written so far
            are kept in `PATH.first-N-lines`, and `on_kept` is called with the
            name of that file and N. None: they are removed.
    """
    if not path:
        yield functools.partial(_write_to_stream, stream or sys.stdout.buffer)
        return
    keep = functools.partial(_keep, path, on_kept) if on_kept else os.unlink
    with files.replacing(path, keep) as file:
        yield lambda line: file.write(_encoded(line))


def write_lines(path: str | pathlib.Path, lines: Iterable[str]) -> None:
    r"""Writes a file of lines, in UTF-8.

    Raises:
        ValueError: a line contains "\n", and would be read as two.
    """
    with writer(path) as write:
        for number, line in enumerate(lines, start=1):
            if "\n" in line:
                raise ValueError(
                    "A line must not contain a line end. "
                    f"Received: {line!r} as line {number}."
                )
            write(line)


def unescape(line: str) -> str:
    """Returns text without HTML's references.

    `html.unescape` alone refuses numbers of more than 4,300 digits.

    Example:
    >>> unescape("&lt;&#0065;")
    '<A'
    """
    return html.unescape(re.sub(r"&#0*([0-9]{1,8})[0-9]*", r"&#\1", line))


def _check(name: str, lines: int, broken: int, nul: int) -> None:
    """Raises UserError if lines are not meant to be UTF-8."""
    for number, most, fault, encoding in (
        (nul, max(_MOST_NUL * lines, 1), "have NULs at an end", "UTF-16"),
        (broken, max(_MOST_BROKEN * lines, 1), "are not UTF-8", "latin1"),
    ):
        if number > most:
            raise errors.UserError(
                f"Expected text in UTF-8. Received: {name}, of which "
                f"{number:,} of {lines:,} lines {fault}. If it is text in "
                "another encoding, convert it, for example by "
                f"iconv -f {encoding} -t UTF-8"
            )


def _lines_of(path: str | pathlib.Path, digest: Any = None) -> Iterator[bytes]:
    """Yields the lines of a file, decompressed, with their ends."""
    try:
        with open(path, "rb") as file:
            head, stream = file.peek(10), file
            for first_bytes, module in _FORMATS.values():
                if re.match(first_bytes, head):
                    with extras.imports("zstd", "reading Zstandard"):
                        opener = importlib.import_module(module)
                    # Without the buffer, Python would run for each line.
                    stream = io.BufferedReader(opener.open(file), _BLOCK)
                    break
            if stream.peek(262)[257:262] == b"ustar":
                raise errors.UserError(
                    f"Expected text. Received: {path}, an archive. Unpack it."
                )
            yield from bounded(stream, path)
            if digest:  # The name may be another file's by now.
                file.seek(0)
                while block := file.read(_BLOCK):
                    digest.update(block)
    except errors.UserError:
        raise
    except Exception as error:  # damage shows as errors of many classes
        if getattr(error, "errno", None):
            raise  # not the content's fault
        raise errors.UserError(
            f"Cannot read {path} to its end ({error!r}). Put a complete copy "
            "of the file in its place."
        ) from error


def _keep(path, on_kept, partial):
    """Renames the temporary file of `writer`, if it has whole lines."""
    with open(partial, "rb") as written:
        # On a full disk, only a part of the last line may be written.
        sizes = [len(line) for line in written if line.endswith(b"\n")]
    if sizes:
        kept = f"{path}.first-{len(sizes)}-lines"
        while os.path.lexists(kept):  # of an earlier stop
            kept += "-more"
        os.truncate(partial, sum(sizes))
        os.replace(partial, kept)
        on_kept(kept, len(sizes))
    else:
        os.unlink(partial)


def _write_to_stream(stream: BinaryIO, line: str) -> None:
    if stream.isatty():
        terminal.clear()
        line = terminal.printable(line)
    stream.write(_encoded(line))
    stream.flush()


def _decoded(line: bytes, is_first: bool) -> str:
    """Returns a line without its end, and without a byte order mark."""
    if is_first:
        line = line.removeprefix(_MARK)
    line = line.removesuffix(b"\n").removesuffix(b"\r")
    return line.decode("utf-8", errors="replace")


def _encoded(line: str) -> bytes:
    return line.encode("utf-8", errors="replace") + b"\n"
