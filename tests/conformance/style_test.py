"""House rules that ruff does not check."""

import ast
import os
import pathlib
import re

from absl.testing import absltest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CODE = sorted(
    path
    for folder in ("relpos_tf", "hparams")
    for path in (ROOT / folder).rglob("*.py")
)
# Folders at the root that commands write.
OUTPUTS = frozenset({"build", "data", "dist", "downloads", "runs"})
TEXT_ENDINGS = frozenset(
    {"", ".cfg", ".in", ".json", ".md", ".py", ".sh", ".toml", ".txt", ".yml"}
)
# A path that exists on one machine only. `/usr/bin/env` and `/tmp` do not.
MACHINE_PATH = re.compile(
    r"(?<![\w.])/(?:home|root|work|Users|mnt|opt|srv|private)/\w"
)

MAX_FUNCTION_LINES = 70


def text_files():
    """Yields the text files of the project."""
    for folder, folders, names in os.walk(ROOT):
        at_root = pathlib.Path(folder) == ROOT
        # Not into environments, which have tens of thousands of files.
        folders[:] = [
            name
            for name in sorted(folders)
            if not (name.startswith(".") and name != ".ci")
            and name != "__pycache__"
            and not (at_root and (name in OUTPUTS or "egg-info" in name))
        ]
        for name in sorted(names):
            is_hidden = name.startswith(".") and name != ".gitignore"
            path = pathlib.Path(folder, name)
            if not is_hidden and path.suffix in TEXT_ENDINGS:
                yield path


def functions(tree):
    """Yields every function and method."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


class CodeTest(absltest.TestCase):
    def test_functions_are_small(self):
        too_long = [
            f"{path}: {node.name} has {node.end_lineno - node.lineno + 1} lines"
            for path in CODE
            for node in functions(ast.parse(path.read_text("utf-8")))
            if node.end_lineno - node.lineno + 1 > MAX_FUNCTION_LINES
        ]
        self.assertEmpty(too_long)


class TextTest(absltest.TestCase):
    def test_files_name_no_path_of_one_machine(self):
        wrong = [
            f"{path.relative_to(ROOT)}: {found[0]}"
            for path in text_files()
            for found in MACHINE_PATH.finditer(path.read_text("utf-8"))
        ]
        self.assertEmpty(wrong)
