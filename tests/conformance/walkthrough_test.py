"""Every file, module and name that documents and scripts mention exists."""

import ast
import functools
import itertools
import pathlib
import re

from absl.testing import absltest
from absl.testing import parameterized

import relpos_tf
import relpos_tf.layers

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCUMENTS = tuple(
    str(path.relative_to(ROOT))
    for pattern in ("*.md", "docs/*.md", "tools/*.md", "benchmarks/peers/*.md")
    for path in sorted(ROOT.glob(pattern))
    if path.name != "CHANGELOG.md"
)
# No test runs most of these scripts.
SCRIPTS = tuple(
    str(path.relative_to(ROOT))
    for folder in ("benchmarks", "examples", "tools")
    for path in sorted((ROOT / folder).rglob("*.py"))
)
FOLDERS = (
    "benchmarks",
    "docs",
    "examples",
    "hparams",
    "relpos_tf",
    "tests",
    "tools",
)
# The first part of a dotted name that belongs to another package.
OTHER_PACKAGES = frozenset({"keras", "opennmt", "tensorflow", "tf"})
FILE_ENDINGS = frozenset(
    {"bin", "data", "extra", "gz", "html", "ids", "index", "json", "jsonl"}
    | {"lengths", "md", "model", "npz", "part", "pb", "py", "sh", "source"}
    | {"subwords", "tar", "target", "tflite", "toml", "txt", "yml", "zip"}
)
SPAN = re.compile(r"`([^`\n]+)`")
PATH = re.compile(rf"(?<![\w./-])(?:{'|'.join(FOLDERS)})/[\w/]*(?:\.\w+)?")
DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
MODULE = re.compile(r"(?<![\w./-])(?:relpos_tf|tests|tools)(?:\.\w+)+")
PROBLEM = re.compile(r"--problem=(\w+)|\b(translate_en\w\w_\w+)")
HPARAMS_SETS = re.compile(r"--hparams_sets?=([\w,]+)")
PUBLIC = {*relpos_tf.__all__, *relpos_tf.layers.__all__}
IMPORT = re.compile(r"from (relpos_tf[\w.]*) import (\w+)")


@functools.cache
def modules():
    """Returns the syntax tree of each module by its dotted name."""
    trees = {}
    for folder in ("relpos_tf", "hparams", "tests", "tools"):
        for path in (ROOT / folder).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            name = ".".join(parts).removesuffix(".__init__")
            trees[name] = ast.parse(path.read_text(encoding="utf-8"))
    return trees


def names_in(body):
    """Returns what a module's or class's body defines, by name."""
    names = {}
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names[node.name] = node
        elif isinstance(node, ast.Assign):
            names |= {t.id: node for t in node.targets if hasattr(t, "id")}
        elif isinstance(node, ast.AnnAssign):
            names[node.target.id] = node
    return names


def base_names(node):
    """Returns the last part of the name of each base of a class."""
    return [ast.unparse(base).split(".")[-1] for base in node.bases]


def members(node):
    """Returns the names that a class defines or inherits in this project."""
    names = set(names_in(node.body))
    for base in base_names(node):
        for inherited in classes().get(base, ()):
            names |= members(inherited)
    return names


@functools.cache
def classes():
    """Returns the classes of the project by name, several for each name."""
    found = {}
    for tree in modules().values():
        for name, node in names_in(tree.body).items():
            if isinstance(node, ast.ClassDef):
                found.setdefault(name, []).append(node)
    return found


def defines(tree, names):
    """Returns whether a module has `function`, `Class` or `Class.method`."""
    if not names:
        return True
    node = names_in(tree.body).get(names[0])
    if len(names) == 1 or not isinstance(node, ast.ClassDef):
        return node is not None and len(names) == 1
    return len(names) == 2 and names[1] in members(node)


def exists(name):
    """Returns whether a dotted name is a module of the project or in one.

    The name may leave out the folders of a module (`shaw.Shaw`), and the module
    of a class (`Shaw.logits`).
    """
    parts = name.split(".")
    public = name.removeprefix("relpos_tf.").removeprefix("layers.").split(".")
    if parts[0] == "relpos_tf" and public[0] in PUBLIC:
        parts = public
        if len(parts) == 1:
            return True
    if parts[0] in classes():
        return len(parts) == 2 and any(
            parts[1] in members(node) for node in classes()[parts[0]]
        )
    for end in range(len(parts), 0, -1):
        prefix = ".".join(parts[:end])
        for module, tree in modules().items():
            same = module == prefix or module.endswith(f".{prefix}")
            if same and defines(tree, parts[end:]):
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
    yield from (name for name in imported.values() if not exists(name))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = imported.get(node.value.id)
            if module in modules() and not exists(f"{module}.{node.attr}"):
                yield f"{module}.{node.attr}"


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


def registered(decorator):
    """Returns the names of the functions with a decorator of `registry`."""
    return {
        node.name
        for tree in modules().values()
        for node in names_in(tree.body).values()
        if isinstance(node, ast.FunctionDef)
        and f"registry.{decorator}" in map(ast.unparse, node.decorator_list)
    }


@functools.cache
def project_files():
    """Returns the Python files of the project."""
    nested = [p for folder in FOLDERS for p in (ROOT / folder).rglob("*.py")]
    return [*ROOT.glob("*.py"), *nested]


class DocumentsTest(parameterized.TestCase):
    @parameterized.parameters(*DOCUMENTS)
    def test_names_exist(self, document):
        text = (ROOT / document).read_text(encoding="utf-8")
        self.assertEmpty(sorted(set(missing_names(text))))

    @parameterized.parameters(*DOCUMENTS)
    def test_paths_exist(self, document):
        text = (ROOT / document).read_text(encoding="utf-8")
        self.assertEmpty(sorted(set(missing_paths(text))))

    @parameterized.parameters(*SCRIPTS)
    def test_scripts_use_names_that_exist(self, script):
        tree = ast.parse((ROOT / script).read_text(encoding="utf-8"))
        self.assertEmpty(list(missing_attributes(tree)))

    @parameterized.parameters(*DOCUMENTS)
    def test_problems_and_sets_are_registered(self, document):
        text = (ROOT / document).read_text(encoding="utf-8")
        problems = {a or b for a, b in PROBLEM.findall(text)}
        self.assertContainsSubset(problems, registered("register_problem"))
        sets = {
            name
            for names in HPARAMS_SETS.findall(text)
            for name in names.split(",")
        }
        self.assertContainsSubset(sets, registered("register_hparams"))

    @parameterized.parameters(*DOCUMENTS)
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

    def test_walkthrough_opens_each_file_once(self):
        text = (ROOT / "docs" / "walkthrough.md").read_text(encoding="utf-8")
        steps = re.findall(r"^\| \d+ \| `([^`]+)` \|", text, re.M)
        self.assertGreater(len(steps), 20)
        self.assertCountEqual(steps, set(steps))
        self.assertEmpty([step for step in steps if not (ROOT / step).exists()])

    def test_picture_of_the_compact_form_is_right(self):
        text = (ROOT / "docs" / "walkthrough.md").read_text(encoding="utf-8")
        first, second = re.findall(
            r"^ +key .*\n((?:    (?:query|     ) [0-4] .*\n){5})", text, re.M
        )
        for i, j in itertools.product(range(5), repeat=2):
            row = max(-2, min(2, j - i)) + 2
            self.assertEqual(first.splitlines()[i].split()[-5:][j], str(row))
            number = f"m[{row}]" if row else "0"
            number += "*" if j > i + 2 else ""
            self.assertEqual(second.splitlines()[i].split()[-5:][j], number)


class SearchTest(parameterized.TestCase):
    @parameterized.parameters(
        "relpos_tf.layers.positions.shaw",
        "relpos_tf.layers.positions.shaw.Shaw",
        "relpos_tf.Translator",
        "relpos_tf.Translator.load",
        "shaw.Shaw",
        "Shaw.logits",
        "EncoderBlock.get_config",  # inherited
    )
    def test_names_that_exist_are_found(self, name):
        self.assertTrue(exists(name))

    @parameterized.parameters(
        "relpos_tf.layers.positions.shore",
        "relpos_tf.layers.shaw.Shaw",
        "relpos_tf.Translater",
        "shaw.Shore",
        "shore.Shaw",
        "Shaw.logit",
        "Shaw.logits.x",
        "shaw.Shaw.logit",
    )
    def test_renamed_names_are_missed(self, name):
        self.assertFalse(exists(name))
        self.assertEqual(list(missing_names(f"`{name}(x)`"))[-1:], [name])

    def test_renamed_files_are_missed(self):
        text = "`relpos_tf/layers/positions/shore.py`, `shore.py`, `shaw.py`"
        self.assertEqual(
            list(missing_paths(text)),
            [
                "relpos_tf/layers/positions/shore.py",
                "relpos_tf/layers/positions/shore.py",
                "shore.py",
            ],
        )


if __name__ == "__main__":
    absltest.main()
