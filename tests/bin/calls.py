"""Calls of a command in this process."""

import io
import sys
from unittest import mock

from relpos_tf.bin import command


class Stream(io.BytesIO):
    """A standard stream, of bytes and of text."""

    def __init__(self, content=b"", isatty=False):
        super().__init__(content)
        self._isatty = isatty
        self.buffer = self

    def isatty(self):
        return self._isatty

    def write(self, text):
        super().write(text.encode() if isinstance(text, str) else text)


def execute(main, *arguments, stdin=b"", isatty=False):
    """Runs a command's `main`.

    Args:
        main: The function.
        *arguments: str, of the command line.
        stdin: bytes. Standard input.
        isatty: bool. Whether that is a terminal.

    Returns:
        (exit code, standard output as bytes, standard error as str).
    """
    out, err = Stream(), io.StringIO()
    with (
        mock.patch.object(sys, "stdin", Stream(stdin, isatty)),
        mock.patch.object(sys, "stdout", out),
        mock.patch.object(sys, "stderr", err),
    ):
        code = command.execute(main, arguments)
    return code, out.getvalue(), err.getvalue()
