"""Files with final names are written by `utils.files` alone.

A folder from a stranger may hold symbolic links under names that can be
guessed. `utils.files` follows none (tests/utils/files_test.py).
"""

import ast
import pathlib

from absl.testing import absltest

PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "relpos_tf"
# Modules that write files in another way, and where.
OTHERS = {
    "utils.files": "",
    "export.folders": "into a folder it has just made",
    "export.litert_export": "into a folder it has just made",
    "t2t.t2t_import": "into a folder it has just made",
    "data.pieces": "into a folder it has just made",
    "bin.command": "to the null device",
    "utils.text": "keeps a file that `files` was about to remove",
    "models.checkpoints": "renames a checkpoint that is damaged",
}


def writes(path):
    """Yields the lines of a module that write or rename a file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func).split(".")[-1]
        values = [a.value for a in node.args[1:] if isinstance(a, ast.Constant)]
        values += [
            k.value.value
            for k in node.keywords
            if k.arg == "mode" and isinstance(k.value, ast.Constant)
        ]
        is_opened = name == "open" and any(
            isinstance(v, str) and set(v) & set("wax+") for v in values
        )
        is_renamed = ast.unparse(node.func) in ("os.replace", "os.rename")
        named = {"write_text", "write_bytes", "mkstemp", "NamedTemporaryFile"}
        if is_opened or is_renamed or name in named:
            yield f"line {node.lineno}: {ast.unparse(node)}"


class OneWayTest(absltest.TestCase):
    def test_only_utils_files_writes_under_final_names(self):
        found = {
            ".".join(path.relative_to(PACKAGE).with_suffix("").parts): lines
            for path in sorted(PACKAGE.rglob("*.py"))
            if (lines := list(writes(path)))
        }
        # Those that write in another way are found as well.
        self.assertCountEqual(found, OTHERS, found)
