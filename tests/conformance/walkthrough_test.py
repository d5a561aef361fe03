"""Every file, module and name that documents and scripts mention exists."""

import ast
import collections
import contextlib
import functools
import importlib
import inspect
import itertools
import re
import sys

from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf import registry
from tests import documents
from tests import oracles  # noqa: F401, which documents name

ROOT = documents.ROOT
# No test runs most of these scripts.
SCRIPTS = tuple(
    str(path.relative_to(ROOT))
    for folder in ("benchmarks", "examples", "tools")
    for path in sorted((ROOT / folder).rglob("*.py"))
)
WALKTHROUGH = ROOT / "docs" / "walkthrough.md"
FOLDERS = "benchmarks docs examples hparams relpos_tf tests tools".split()
# The first part of a dotted name that belongs to another package.
OTHER_PACKAGES = frozenset({"keras", "opennmt", "tensorflow", "tf", "uvicorn"})
FILE_ENDINGS = (
    "bin data extra gz html ids index json jsonl lengths log md model npz part "
    "pb py sh source subwords tar target tflite toml txt yml zip"
).split()
SPAN = re.compile(r"`([^`\n]+)`")
PATH = re.compile(rf"(?<![\w./-])(?:{'|'.join(FOLDERS)})/[\w/]*(?:\.\w+)?")
DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
MODULE = re.compile(r"(?<![\w./-])(?:relpos_tf|tests|tools)(?:\.\w+)+")
PROBLEM = re.compile(r"--problem=(\w+)|\b(translate_en\w\w_\w+)")
HPARAMS_SETS = re.compile(r"--hparams_sets?=([-\w,=]+)")
IMPORT = re.compile(r"from (relpos_tf[\w.]*) import (\w+)")


@functools.cache
def places():
    """Returns modules and classes by their names.

    A module's name may leave out its folders (`shaw.Shaw`), and a class stands
    for itself (`Shaw.logits`).
    """
    found = collections.defaultdict(list)
    registry.import_hparams()
    for folder in ("relpos_tf", "tests/campaigns"):
        for path in (ROOT / folder).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            importlib.import_module(".".join(parts).removesuffix(".__init__"))
    for name, module in list(sys.modules.items()):
        parts = name.split(".")
        if parts[0] not in ("relpos_tf", "tests"):
            continue
        for start in range(len(parts)):
            found[".".join(parts[start:])].append(module)
        for kind in vars(module).values():
            if inspect.isclass(kind) and kind.__module__ == name:
                found[kind.__name__].append(kind)
    return found


def exists(name):
    """Returns whether a dotted name is in the project."""
    parts = name.split(".")
    if parts[0] == "tools":
        return ROOT.joinpath(*parts).with_suffix(".py").is_file()
    for end in range(len(parts), 0, -1):
        for place in places().get(".".join(parts[:end]), ()):
            with contextlib.suppress(AttributeError):
                functools.reduce(getattr, parts[end:], place)
                return True
    return False


def missing_names(text):
    """Yields dotted names in a document that the project does not have."""
    for module, name in IMPORT.findall(text):
        if not exists(f"{module}.{name}"):
            yield f"{module}.{name}"
    yield from (m for m in MODULE.findall(text) if not exists(m))
    for span in SPAN.findall(text):
        name = span.split("(")[0]
        first, last = name.split(".")[0], name.split(".")[-1]
        if not DOTTED.fullmatch(name) or last in FILE_ENDINGS:
            continue
        if first not in OTHER_PACKAGES and not exists(name):
            yield name


def missing_attributes(tree):
    """Yields attributes of our modules that a script uses and none defines."""
    imported = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            if node.module.split(".")[0] in ("relpos_tf", "tests"):
                for alias in node.names:
                    name = f"{node.module}.{alias.name}"
                    imported[alias.asname or alias.name] = name
    names = set(imported.values())
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id in imported:
                names.add(f"{imported[node.value.id]}.{node.attr}")
    yield from (name for name in sorted(names) if not exists(name))


def missing_paths(text):
    """Yields paths in a document that the project does not have."""
    for path in PATH.findall(text):
        if not (ROOT / path).exists():
            yield path
    files = [f"/{p.relative_to(ROOT)}" for p in project_files()]
    for span in SPAN.findall(text):
        if re.fullmatch(r"[\w/]+\.py", span):
            if not any(file.endswith(f"/{span}") for file in files):
                yield span


@functools.cache
def project_files():
    """Returns the Python files of the project."""
    nested = [p for folder in FOLDERS for p in (ROOT / folder).rglob("*.py")]
    return [*ROOT.glob("*.py"), *nested]


class DocumentsTest(parameterized.TestCase):
    @parameterized.parameters(*documents.FILES)
    def test_names_exist(self, document):
        text = (ROOT / document).read_text(encoding="utf-8")
        self.assertEmpty(sorted(set(missing_names(text))))

    @parameterized.parameters(*documents.FILES)
    def test_paths_exist(self, document):
        text = (ROOT / document).read_text(encoding="utf-8")
        self.assertEmpty(sorted(set(missing_paths(text))))

    @parameterized.parameters(*SCRIPTS)
    def test_scripts_use_names_that_exist(self, script):
        tree = ast.parse((ROOT / script).read_text(encoding="utf-8"))
        self.assertEmpty(list(missing_attributes(tree)))

    @parameterized.parameters(*documents.FILES)
    def test_problems_and_sets_are_registered(self, document):
        text = (ROOT / document).read_text(encoding="utf-8")
        problems = {a or b for a, b in PROBLEM.findall(text)}
        for path in (ROOT / "examples").glob("*/__init__.py"):
            text += path.read_text(encoding="utf-8")
        own = re.findall(r"^@registry\.register_\w+\ndef (\w+)", text, re.M)
        self.assertContainsSubset(problems, registry.list_problems() + own)
        sets = {
            name.rpartition("=")[2]
            for names in HPARAMS_SETS.findall(text)
            for name in names.split(",")
        }
        self.assertContainsSubset(sets, registry.list_hparams() + own)

    @parameterized.parameters(*documents.FILES)
    def test_links_lead_to_files_and_headings(self, document):
        path = ROOT / document
        links = re.findall(r"\]\(([^)]+)\)", path.read_text(encoding="utf-8"))
        for link in links:
            if link.startswith("http"):
                continue
            file, _, heading = link.partition("#")
            target = path.parent / file if file else path
            self.assertTrue(target.exists(), link)
            if heading:
                headings = re.findall(
                    r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.M
                )
                anchors = [
                    re.sub(r"[^\w -]", "", line).lower().replace(" ", "-")
                    for line in headings
                ]
                self.assertIn(heading, anchors)

    def test_walkthrough_names_what_to_read_in_every_file(self):
        text = WALKTHROUGH.read_text(encoding="utf-8")
        named = [s.split(".") for s in SPAN.findall(text)]
        unnamed = []
        for path in sorted((ROOT / "relpos_tf").rglob("*.py")):
            own = ast.parse(path.read_text(encoding="utf-8")).body
            classes = {x.name for x in own if isinstance(x, ast.ClassDef)}
            if path.name != "__init__.py" and not any(
                first in classes or (first == path.stem and rest)
                for first, *rest in named
                if rest != ["py"]
            ):
                unnamed.append(path.name)
        self.assertEmpty(unnamed)

    def test_picture_of_the_compact_form_is_right(self):
        text = WALKTHROUGH.read_text(encoding="utf-8")
        first, second = re.findall(
            r"^ +key .*\n((?:    (?:query|     ) [0-4] .*\n){5})", text, re.M
        )
        for i, j in itertools.product(range(5), repeat=2):
            row = max(-2, min(2, j - i)) + 2
            self.assertEqual(first.splitlines()[i].split()[-5:][j], str(row))
            number = f"m[{row}]" if row else "0"
            number += "*" if j > i + 2 else ""
            self.assertEqual(second.splitlines()[i].split()[-5:][j], number)


class SearchTest(absltest.TestCase):
    def test_renamed_names_and_files_are_missed(self):
        for name in "shaw.Shaw", "Shaw.logits", "relpos_tf.Translator.load":
            self.assertTrue(exists(name), name)
        for name in "shaw.Shore", "Shaw.logit", "relpos_tf.layers.shaw.Shaw":
            self.assertEqual(list(missing_names(f"`{name}(x)`"))[-1:], [name])
        text = "`relpos_tf/layers/shore.py`, `shaw.py`"
        self.assertEqual(
            set(missing_paths(text)), {"relpos_tf/layers/shore.py"}
        )
