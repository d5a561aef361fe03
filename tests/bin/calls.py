"""Calls of a command in this process, and of Python in another one."""

import io
import os
import pathlib
import subprocess
import sys
from unittest import mock

from relpos_tf.bin import command

ROOT = pathlib.Path(__file__).resolve().parents[2]


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
        mock.patch.dict(os.environ),
    ):
        code = command.execute(main, arguments)
    return code, out.getvalue(), err.getvalue()


def python(*words, input=None, **environment):
    """Runs Python in another process, where this project can be imported.

    Args:
        *words: The arguments of Python.
        input: str or None. Its standard input.
        **environment: Variables that differ from those of this process.

    Returns:
        The finished process, whose output and errors are text.
    """
    return subprocess.run(
        [sys.executable, *words],
        input=input,
        capture_output=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        text=True,
    )
