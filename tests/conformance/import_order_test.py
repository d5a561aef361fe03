"""The order of imports: rooms, and who imports libraries, or their secrets.

A room is a folder of the package, or one of the three modules at its root. A
module may import its own room and the rooms that stand before it in `ROOMS`.
There are no import cycles. CONTRIBUTING.md lists private names of libraries.
"""

import ast
import functools
import re

from absl.testing import parameterized

from tests.bin import calls

PACKAGE = calls.ROOT / "relpos_tf"

ROOMS = (
    "errors fields hparam registry utils layers models data problems decoding "
    "training export t2t comparison serving bin"
).split()
# The only modules that may import a library.
IMPORTERS = {
    "tensorflow_text": {"data.graph_tokenizers", "decoding.saved_model_engine"},
    "sentencepiece": {"data.pieces", "data.tokenizer"},
    "sacrebleu": {"training.metrics", "problems.sacrebleu_sets"},
    "sacremoses": {"training.metrics"},
    "matplotlib": {"comparison.figures"},
    "jinja2": {"comparison.report"},
    "scipy": {"comparison.two_way"},
    "ctranslate2": {"decoding.ctranslate2_engine"},
    "ai_edge_litert": {"decoding.litert_engine"},
    "babel": {"utils.languages"},
    "sentencex": {"decoding.sentences"},
    "starlette": {"serving.app"},
    "uvicorn": {"serving.server"},
    "prometheus_client": {"serving.prometheus"},
    "absl": set(),
}
# Names, and modules, of which no document of a library speaks.
PRIVATE = re.compile(r"_[^_]|.*\.(_|src\.|python\.|protocols\.)")
# With an underscore, but public: of named tuples and of `os`.
PUBLIC = {"_asdict", "_fields", "_replace", "_exit"}
# Modules that must not import TensorFlow, which takes seconds and may not be
# installed: what translates and scores with exports for CTranslate2 and LiteRT,
# and what these import.
LIGHT = [
    f"relpos_tf.{name}"
    for name in (
        "decoding.ctranslate2_engine decoding.interactive "
        "decoding.litert_engine training.metrics problems.sacrebleu_sets "
        "comparison.figures bin.average bin.bleu data.plan problems.prepare "
        "bin.decoder bin.serve serving.app serving.server"
    ).split()
]


@functools.cache
def imported(path):
    """Returns the dotted name of everything a file imports, at any depth."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        found += names
    return found


def private_names(path):
    """Returns the names of a file that it reads, and that it defines."""
    text = path.read_text(encoding="utf-8")
    read, defined = set(re.findall(r'getattr\(\w+, "(\w+)"', text)), set()
    for node in ast.walk(ast.parse(text)):
        is_read = isinstance(getattr(node, "ctx", None), ast.Load)
        for kind in ("attr", "id", "name"):
            (read if is_read else defined).add(str(getattr(node, kind, "")))
    return [{x for x in names if PRIVATE.match(x)} for names in (read, defined)]


def package_imports(path):
    """Yields the modules of the package that a file imports."""
    for name in imported(path):
        if name in ("relpos_tf", "relpos_tf.__version__"):
            continue  # The package itself imports nothing.
        if name.split(".")[0] == "relpos_tf":
            yield name.removeprefix("relpos_tf.")


def room(module):
    """Returns the room of a dotted name that omits the package."""
    return module.split(".")[0]


def modules():
    """Returns {dotted name: file} of all modules but the commands."""
    return {
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts): path
        for path in PACKAGE.rglob("*.py")
        if path.name != "__init__.py" and path.parent.name != "bin"
    }


class ImportOrderTest(parameterized.TestCase):
    def test_order_names_every_room(self):
        rooms = {room(name) for name in modules()} | {"bin"}
        self.assertEqual(set(ROOMS), rooms)
        self.assertLen(ROOMS, len(rooms))

    def test_modules_import_their_room_and_those_before_it(self):
        wrong = [
            f"{module} imports {name}"
            for module, path in modules().items()
            for name in package_imports(path)
            if room(name) not in ROOMS[: ROOMS.index(room(module)) + 1]
        ]
        self.assertEmpty(wrong)

    def test_there_are_no_import_cycles(self):
        known = modules()
        arrows = {
            name: {other for other in package_imports(path) if other in known}
            for name, path in known.items()
        }
        while free := [name for name in arrows if not arrows[name]]:
            for name in free:
                del arrows[name]
            for others in arrows.values():
                others.difference_update(free)
        self.assertEmpty(arrows)

    def test_package_imports_nothing_that_is_not_installed_with_it(self):
        outside = {"hparams", "tests", "benchmarks", "examples", "tools"}
        wrong = [
            f"{path.relative_to(PACKAGE)} imports {name}"
            for path in PACKAGE.rglob("*.py")
            for name in imported(path)
            if name.split(".")[0] in outside
        ]
        self.assertEmpty(wrong)

    @parameterized.parameters(*IMPORTERS)
    def test_heavy_library_is_imported_in_one_place(self, library):
        wrong = [
            f"{module} imports {name}"
            for module, path in modules().items()
            if module not in IMPORTERS[library]
            for name in imported(path)
            if name.split(".")[0] == library
        ]
        self.assertEmpty(wrong)

    def test_contributing_lists_the_private_names_of_libraries(self):
        used, all_defined = [], set(PUBLIC)
        for path in PACKAGE.rglob("*.py"):
            read, defined = private_names(path)
            names = read.union(filter(PRIVATE.match, imported(path)))
            used += [(x, str(path.relative_to(calls.ROOT))) for x in names]
            all_defined |= defined
        page = (calls.ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
        rows = re.findall(r"^\| \w+ \| (.*) \| `(.*)` \|$", page, re.M)
        self.assertCountEqual(
            [
                (x, file)
                for row, file in rows
                for x in re.findall(r"[\w.]+", row)
            ],
            [(x, file) for x, file in used if x not in all_defined],
        )

    def test_light_modules_need_no_tensorflow(self):
        code = f"""
import importlib, sys
for name in {LIGHT}:
    importlib.import_module(name)
from relpos_tf import registry
registry.list_hparams(), registry.list_problems()
heavy = "tensorflow", "tensorflow_text", "keras", "google.protobuf"
print([name for name in heavy if name in sys.modules])
"""
        done = calls.python("-c", code, TF_CPP_MIN_LOG_LEVEL="3")
        self.assertEqual((done.stdout, done.stderr), ("[]\n", ""))
