"""Tests of damaged files: a few cases of the long campaign."""

import ast
import os
import pathlib
import tempfile

from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf.data import tokenizer
from relpos_tf.decoding import export_files
from relpos_tf.models import run_dir
from relpos_tf.problems import manifest
from relpos_tf.utils import system_errors
from tests import folders
from tests.campaigns import corruption

PACKAGE = pathlib.Path(__file__).resolve().parents[1] / "relpos_tf"
# Functions that execute data as code, or could.
CODE_FROM_DATA = frozenset(
    """pickle cPickle dill cloudpickle marshal shelve joblib eval exec compile
    deserialize_keras_object model_from_json py_function
    numpy_function Lambda allow_pickle""".split()
)

# Numbers of cases: 0 is a flip, 6 a cut, 8 a gap, 9 a deletion.
CASES = {
    "checkpoint": (0, 6),
    "tokens": (0, 6),
    "tokenizer": (0, 8),
    "export": (0, 9),
}


class CorruptionTest(parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        worker = corruption.Worker()
        cls.addClassCleanup(worker.close)
        cls.world = corruption.World(folder.name, worker)

    @parameterized.parameters(*corruption.TARGETS)
    def test_damage_is_told_or_does_not_matter(self, target):
        for number in CASES[target]:
            found = self.world.case(target, number)
            self.assertIn(found.outcome, corruption.GOOD, found)
            if target == "checkpoint":
                self.assertEqual(found.outcome, "fallback", found)
            if found.outcome == "error":
                self.assertRegex(found.message, r"relpos-\w+: .+\n$")


class UnreadableTest(folders.TestCase):
    """What the system cannot read is not called damaged."""

    @parameterized.parameters(
        ("hparams.json", lambda folder: run_dir.RunDir(folder).read_hparams()),
        ("problem.json", lambda folder: run_dir.RunDir(folder).read_problem()),
        ("manifest.json", manifest.read_manifest),
        ("export_info.json", export_files.read_info),
        (
            "tokenizer.model",
            lambda folder: tokenizer.load(f"{folder}/tokenizer.model"),
        ),
    )
    def test_the_reason_of_the_system_is_told(self, name, read):
        path = self.folder / name
        os.mkfifo(path)  # which would be read for ever
        with self.assertRaisesRegex(errors.UserError, f"{path}.* pipe"):
            read(self.folder)
        path.unlink()
        path.mkdir()
        with self.assertRaises(OSError) as raised:
            read(self.folder)
        self.assertEqual(
            system_errors.explanation(raised.exception),
            f"{path}: is a directory.",
        )


class DataOnlyTest(absltest.TestCase):
    def test_nothing_in_a_file_is_taken_for_code(self):
        found = []
        for path in sorted(PACKAGE.rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                names = set()
                if isinstance(node, ast.Import | ast.ImportFrom):
                    names = {alias.name.split(".")[0] for alias in node.names}
                elif isinstance(node, ast.Name):
                    names = {node.id}
                elif isinstance(node, ast.Attribute):
                    names = {node.attr} - {"compile"}  # as in `re.compile`
                elif isinstance(node, ast.keyword):
                    names = {node.arg}
                if CODE_FROM_DATA & names:
                    found.append(f"{path.name}:{node.lineno}")
        self.assertEmpty(found)
