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
from relpos_tf import text


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
    path: str | pathlib.Path, stream: BinaryIO
) -> Iterator[Callable[[str], None]]:
    """Yields a function that writes a line, in UTF-8.

    Args:
        path: A file, which appears when it is complete; or "" for `stream`.
        stream: Where lines go otherwise; none waits there for the next one.
    """
    if not path:
        yield lambda line: (stream.write(_encoded(line)), stream.flush())
        return
    # Nothing can be renamed to a device or a pipe.
    is_special = os.path.exists(path) and not os.path.isfile(path)
    partial = path if is_special else f"{path}.part"
    try:
        with open(partial, "wb") as file:
            yield lambda line: file.write(_encoded(line))
        if not is_special:
            os.replace(partial, path)
    finally:
        if not is_special:
            pathlib.Path(partial).unlink(missing_ok=True)


def _encoded(line: str) -> bytes:
    return line.encode("utf-8", errors="replace") + b"\n"
