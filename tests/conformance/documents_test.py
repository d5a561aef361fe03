"""The commands in the documents that need a clone of the project.

tests/integration/installation_test.py has the installed commands.
"""

import importlib
import pathlib
import re

from absl.testing import absltest
from absl.testing import parameterized

import relpos_tf
from relpos_tf import layers
from tests import documents
from tests.conformance import packaging_test

ROOT = pathlib.Path(__file__).resolve().parents[2]
OTHER_PACKAGES = frozenset({"tensorflow-serving-api"})


def scripts():
    """Returns the arguments of Python in the documents, each once."""
    found = [
        words[1:]
        for words in documents.all_commands()
        if words[0] == "python"
        and words[1] != "-c"
        and not {"trainer.py", "decoder.py"} & set(words)
        and not any("relpos_tf.bin" in word for word in words)
    ]
    return [words for i, words in enumerate(found) if words not in found[:i]]


class DocumentedCommandsTest(parameterized.TestCase):
    def test_scripts_take_their_arguments(self):
        found = scripts()
        self.assertGreater(len(found), 20)
        for words in found:
            path = words[0]
            if path == "-m":
                path = f"{words[1].replace('.', '/')}.py"
            # Some of their modules define the arguments for others.
            modules = (ROOT / path).parent.glob("*.py")
            text = "".join(m.read_text(encoding="utf-8") for m in modules)
            for word in words:
                if word.startswith("--"):
                    self.assertIn(f'"{word.partition("=")[0]}"', text, words)

    def test_goals_of_make_exist(self):
        text = (ROOT / "Makefile").read_text(encoding="utf-8")
        goals = set(re.search(r"^\.PHONY: (.*)$", text, re.M)[1].split())
        named = {
            word
            for words in documents.all_commands()
            if words[0] == "make"
            for word in words[1:]
            if "=" not in word
        }
        self.assertContainsSubset(named, goals)
        self.assertContainsSubset({"demo", "test", "test-oldest"}, named)

    def test_pip_installs_what_there_is(self):
        setup = packaging_test.distribution()
        extras = setup.extras_require
        version = setup.metadata.version
        wheel = re.escape(f"relpos_tf-{version}-py3-none-any.whl")
        number = 0
        for words in documents.all_commands():
            if words[:2] != ["pip", "install"]:
                continue
            number += 1
            self.assertEmpty({"relpos_tf", "relpos-tf"} & set(words), words)
            rest = iter(words[2:])
            for word in rest:
                if word == "-c":
                    self.assertTrue((ROOT / next(rest)).is_file())
                elif word not in ("-e", "--no-deps", *OTHER_PACKAGES):
                    target, names = re.fullmatch(
                        rf"(\.|{wheel})(?:\[(.*)\])?", word
                    ).groups()
                    self.assertContainsSubset(
                        filter(None, (names or "").split(",")), extras
                    )
        self.assertGreater(number, 4)


class ReferenceTest(absltest.TestCase):
    def test_every_public_name_has_its_docstring_on_the_page(self):
        page = (ROOT / "docs" / "reference" / "api.md").read_text("utf-8")
        shown = re.findall(r"^::: (relpos_tf[\w.]*)\.(\w+)$", page, re.M)
        for module, name in shown:
            self.assertTrue(getattr(importlib.import_module(module), name))
        public = {*relpos_tf.__all__, *layers.__all__}
        self.assertContainsSubset(public, {name for _, name in shown})
