"""Who may import whom: one strict order, and one door for each heavy library.

`ORDER` is the reading order of the package. A new module takes a place in it.
"""

import ast
import os
import pathlib
import subprocess
import sys

from absl.testing import absltest
from absl.testing import parameterized

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "relpos_tf"

ORDER = (
    "errors",
    "files",
    "text",
    "terminal",
    "memory",
    "faults",
    "paths",
    "signals",
    "claims",
    "cluster",
    "meeting",
    "hosts",
    "checked_json",
    "hparam",
    "registry",
    "layers.checks",
    "layers.row_blocks",
    "layers.dropout",
    "layers.projections",
    "layers.masks",
    "layers.pairs",
    "layers.caches",
    "layers.positions.scheme",
    "layers.positions.band",
    "layers.positions.relative",
    "layers.positions.shaw",
    "layers.positions.additive",
    "layers.positions.window",
    "layers.positions.localness",
    "layers.positions.alibi",
    "layers.positions.rotary",
    "layers.attention",
    "layers.edges",
    "layers.relations",
    "layers.embeddings",
    "layers.sublayers",
    "layers.blocks",
    "models.arguments",
    "models.shapes",
    "models.stepwise",
    "models.transformer",
    "losses",
    "schedules",
    "optimizers",
    "train_step",
    "line_io",
    "line_batches",
    "output_lines",
    "spelling",
    "subwords",
    "tokenizer",
    "records",
    "batching",
    "problems.download",
    "problems.parallel",
    "problems.preparation",
    "problems.prepared",
    "problems.problem",
    "problems.spoken_en",
    "problems.spoken_de",
    "problems.spoken_fr",
    "problems.phrases",
    "problems.lists",
    "problems.synthetic",
    "problems.tatoeba",
    "problems.wmt",
    "problems.translate",
    "constraints",
    "beam_step",
    "sampling",
    "beam_search",
    "run_dir",
    "checkpoint_files",
    "checkpoint_reader",
    "checkpoints",
    "metrics",
    "decode_hparam",
    "decoding",
    "engines",
    "export_engine",
    "ctranslate2_engine",
    "loading",
    "translator",
    "interactive",
    "evaluation",
    "reporting",
    "plots",
    "report_parts",
    "figures",
    "attention_figures",
    "html_parts",
    "report_tables",
    "report_html",
    "attention_maps",
    "checkpoint_scores",
    "checkpoint_translator",
    "devices",
    "run_setup",
    "host_setup",
    "settings",
    "training_state",
    "training",
    "comparison.variants",
    "comparison.runs",
    "comparison.processes",
    "comparison.training",
    "comparison.scoring",
    "comparison.scores",
    "comparison.significance",
    "comparison.measures",
    "comparison.pairs",
    "comparison.markdown",
    "comparison.report_files",
    "comparison.report",
    "comparison.collection",
    "serving_warmup",
    "export",
    "ctranslate2_spec",
    "ctranslate2_export",
    "t2t_hparams",
    "t2t_variables",
    "t2t_import",
)
# Library: the only modules that may import it.
DOORS = {
    "tensorflow_text": {"subwords", "tokenizer"},
    "sentencepiece": {"tokenizer"},
    "sacrebleu": {"metrics"},
    "matplotlib": {"plots"},
    "ctranslate2": {"ctranslate2_engine"},
    "absl": set(),
}
# What needs no TensorFlow must not wait for it.
LIGHT = (
    "relpos_tf",
    "relpos_tf.errors",
    "relpos_tf.memory",
    "relpos_tf.hparam",
    "relpos_tf.registry",
    "relpos_tf.text",
    "relpos_tf.bin.command",
)


def path_of(module):
    """Returns the file of a module of the package."""
    return PACKAGE / (module.replace(".", "/") + ".py")


def imported(path):
    """Yields the dotted name of everything a file imports, at any depth."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        yield from names


def ours(path):
    """Yields the modules of the package that a file imports."""
    for name in imported(path):
        if name in ("relpos_tf", "relpos_tf.__version__"):
            continue  # For its version: the package itself imports nothing.
        if name.split(".")[0] == "relpos_tf":
            yield name.removeprefix("relpos_tf.")


class ImportOrderTest(parameterized.TestCase):
    def test_order_names_every_module(self):
        files = {
            ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
            for path in PACKAGE.rglob("*.py")
            if path.name != "__init__.py" and path.parent.name != "bin"
        }
        self.assertEqual(set(ORDER), files)
        self.assertLen(ORDER, len(files))

    def test_modules_import_only_what_stands_before_them(self):
        wrong = [
            f"{module} imports {name}"
            for rank, module in enumerate(ORDER)
            for name in ours(path_of(module))
            if name not in ORDER[:rank]
        ]
        self.assertEmpty(wrong)

    def test_subpackages_import_nothing(self):
        wrong = [
            f"{path.parent.name} imports {name}"
            for path in PACKAGE.glob("*/__init__.py")
            for name in imported(path)
        ]
        self.assertEmpty(wrong)

    def test_commands_import_no_sets(self):
        commands = {path.stem for path in (PACKAGE / "bin").glob("*.py")}
        known = {*ORDER, *(f"bin.{name}" for name in commands)}
        wrong = [
            f"{path.name} imports {name}"
            for path in (PACKAGE / "bin").glob("*.py")
            for name in ours(path)
            if name not in known
        ]
        self.assertEmpty(wrong)

    def test_sets_import_only_hparam_and_registry_and_each_other(self):
        wrong = [
            f"{path.name} imports {name}"
            for path in (ROOT / "hparams").glob("*.py")
            for name in imported(path)
            if name.split(".")[0] == "relpos_tf"
            and name not in ("relpos_tf.hparam", "relpos_tf.registry")
            and not name.startswith("relpos_tf.hparams.")
        ]
        self.assertEmpty(wrong)

    def test_package_imports_nothing_that_is_not_installed_with_it(self):
        outside = {"hparams", "tests", "benchmarks", "examples"}
        wrong = [
            f"{path.relative_to(PACKAGE)} imports {name}"
            for path in PACKAGE.rglob("*.py")
            for name in imported(path)
            if name.split(".")[0] in outside
        ]
        self.assertEmpty(wrong)

    @parameterized.parameters(*DOORS)
    def test_heavy_library_has_one_door(self, library):
        wrong = [
            f"{module} imports {name}"
            for module in set(ORDER) - DOORS[library]
            for name in imported(path_of(module))
            if name.split(".")[0] == library
        ]
        self.assertEmpty(wrong)

    def test_looking_names_up_needs_no_tensorflow(self):
        code = f"""
import importlib, sys
for name in {LIGHT}:
    importlib.import_module(name)
from relpos_tf import registry
registry.list_hparams(), registry.list_problems()
print([name for name in ("tensorflow", "keras") if name in sys.modules])
"""
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            check=False,
            cwd=ROOT,
            env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"},
            text=True,
        )
        self.assertEqual((done.stdout, done.stderr), ("[]\n", ""))


if __name__ == "__main__":
    absltest.main()
