"""House rules that ruff does not check."""

import ast
import os
import pathlib
import re

from absl.testing import absltest
from absl.testing import parameterized

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

# Modules that compute on every backend of Keras, in `keras.ops`.
ANY_BACKEND = frozenset({"keras_attention.py", "relative_ops.py"})

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


def forbidden(tree):
    """Yields the syntax that the package may not use, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            yield f"{node.lineno}: assert"
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "print":
            yield f"{node.lineno}: print"
        if isinstance(node, ast.Attribute):
            name = ast.unparse(node)
            if name in ("tf.keras", "keras.ops", "tf.function"):
                yield f"{node.lineno}: {name}"
        if isinstance(node, ast.ImportFrom) and node.module == "keras":
            yield f"{node.lineno}: from keras import"


class CodeTest(parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.trees = {
            path.relative_to(ROOT): ast.parse(path.read_text(encoding="utf-8"))
            for path in CODE
        }

    def test_functions_are_small(self):
        too_long = [
            f"{path}: {node.name} has {node.end_lineno - node.lineno + 1} lines"
            for path, tree in self.trees.items()
            for node in functions(tree)
            if node.end_lineno - node.lineno + 1 > MAX_FUNCTION_LINES
        ]
        self.assertEmpty(too_long)

    def test_package_has_no_assert_no_print_and_one_way_for_each_thing(self):
        wrong = [
            f"{path}:{what}"
            for path, tree in self.trees.items()
            for what in forbidden(tree)
            if path.name not in ANY_BACKEND or "keras" not in what
            if path.name != "graphs.py" or "tf.function" not in what
        ]
        self.assertEmpty(wrong)


class TextTest(absltest.TestCase):
    def test_files_name_no_path_of_one_machine(self):
        wrong = [
            f"{path.relative_to(ROOT)}: {found[0]}"
            for path in text_files()
            for found in MACHINE_PATH.finditer(path.read_text("utf-8"))
        ]
        self.assertEmpty(wrong)

    def test_lines_end_in_a_newline_without_blanks(self):
        wrong = [
            str(path.relative_to(ROOT))
            for path in text_files()
            if re.search(rb"\r|[ \t]\n|[^\n]\Z", path.read_bytes())
        ]
        self.assertEmpty(wrong)
