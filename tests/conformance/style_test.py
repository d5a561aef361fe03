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
# Comparisons with a tolerance, and how many arguments precede its absolute
# part. Those of unittest with digits or a delta have no other part.
COMPARISONS = {
    "allclose": 3,
    "assertAllClose": 3,
    "assertAllCloseAccordingToType": 3,
    "assert_allclose": 3,
    "assert_near": 3,
    "isclose": 3,
    "approx": 2,
}
ABSOLUTE = frozenset({"abs", "abs_tol", "atol"})


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


def relative_comparisons(source):
    """Yields the line and the name of comparisons by relative size alone."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if name not in COMPARISONS:
            continue
        # Of `*arguments`, the number is unknown.
        given = [x for x in node.args if not isinstance(x, ast.Starred)]
        absolute = given[COMPARISONS[name] :][:1]
        absolute += [k.value for k in node.keywords if k.arg in ABSOLUTE]
        if not absolute or getattr(absolute[0], "value", None) == 0:
            yield node.lineno, name


class CodeTest(absltest.TestCase):
    def test_functions_are_small(self):
        too_long = [
            f"{path}: {node.name} has {node.end_lineno - node.lineno + 1} lines"
            for path in CODE
            for node in functions(ast.parse(path.read_text("utf-8")))
            if node.end_lineno - node.lineno + 1 > MAX_FUNCTION_LINES
        ]
        self.assertEmpty(too_long)

    def test_tolerances_have_an_absolute_part(self):
        # What float32 rounds depends on the size of the summands: a sum near 0
        # differs by more than any share of it from one processor to another.
        found = [
            f"{path.relative_to(ROOT)}:{line}: {name}"
            for path in text_files()
            if path.suffix == ".py"
            for line, name in relative_comparisons(path.read_text("utf-8"))
        ]
        self.assertEmpty(found)


class TextTest(absltest.TestCase):
    def test_files_name_no_path_of_one_machine(self):
        wrong = [
            f"{path.relative_to(ROOT)}: {found[0]}"
            for path in text_files()
            for found in MACHINE_PATH.finditer(path.read_text("utf-8"))
        ]
        self.assertEmpty(wrong)
