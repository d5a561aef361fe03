"""Lines from files and streams, and back.

A line ends at "\\n" and nowhere else, as in `text`.
"""

import contextlib
import itertools
import os
import pathlib
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from typing import BinaryIO

from relpos_tf import errors
from relpos_tf.utils import files
from relpos_tf.utils import signals
from relpos_tf.utils import terminal
from relpos_tf.utils import text


def named_lines(path: str | pathlib.Path) -> Iterator[str]:
    """Returns the lines of a file that must have one.

    Raises:
        UserError: the file is missing or empty.
    """
    lines = text.read_lines(path)
    first = list(itertools.islice(lines, 1))
    if not first:
        raise errors.UserError(f"Expected lines. Received: {path} is empty.")
    return itertools.chain(first, lines)


def stream_lines(stream: Iterable[bytes]) -> Iterator[str]:
    """Yields lines as `text.read_lines` does, from a stream of bytes."""
    for number, line in enumerate(stream):
        if number == 0:
            line = line.removeprefix(b"\xef\xbb\xbf")
        line = line.removesuffix(b"\n").removesuffix(b"\r")
        yield line.decode("utf-8", errors="replace")


@contextlib.contextmanager
def writer(
    path: str | pathlib.Path,
    stream: BinaryIO,
    tell_kept: Callable[[str, int], None] | None = None,
) -> Iterator[Callable[[str], None]]:
    """Yields a function that writes a line, in UTF-8.

    Args:
        path: A file, see `files.replacing`; or "" for `stream`.
        stream: Where lines go otherwise; none waits there for the next one. A
            terminal is shown no controls.
        tell_kept: If the block raises, the lines that were written are kept in
            `PATH.first-N-lines`, and this function is told the name of that
            file and N. None: they are removed.
    """
    if not path:
        stream.write(b"")  # A closed one says so now, not hours later.
        yield _screen(stream) if stream.isatty() else _pipe(stream)
        return
    with files.replacing(path) as file:
        try:
            yield lambda line: file.write(_encoded(line))
        except BaseException:
            if tell_kept and file.name != os.fspath(path):
                # Or a second Ctrl-C would lose them.
                with signals.held():
                    _keep(file, path, tell_kept)
            raise


def _keep(file, path, tell_kept):
    """Renames a file that is to be removed, if it has whole lines."""
    # On a full disk, the last line may be there in part.
    with contextlib.suppress(OSError):
        file.flush()
    with open(file.name, "rb+") as written:
        ends = [len(line) for line in written if line.endswith(b"\n")]
        if not ends:
            return
        written.truncate(sum(ends))
    kept = f"{path}.first-{len(ends)}-lines"
    os.replace(file.name, kept)
    tell_kept(kept, len(ends))


def _pipe(stream: BinaryIO) -> Callable[[str], None]:
    return lambda line: (stream.write(_encoded(line)), stream.flush())


def _screen(stream: BinaryIO) -> Callable[[str], None]:
    def write(line):
        terminal.clear()
        _pipe(stream)(text.printable(line))

    return write


def _encoded(line: str) -> bytes:
    return line.encode("utf-8", errors="replace") + b"\n"
