"""The commands in the documents that need a clone of the project.

tests/integration/installation_test.py has the installed commands.
"""

import importlib
import json
import os
import pathlib
import re

from absl.testing import absltest
from absl.testing import parameterized

import relpos_tf
from relpos_tf import layers
from tests import documents
from tests.bin import calls
from tests.conformance import packaging_test

ROOT = pathlib.Path(__file__).resolve().parents[2]
OTHER_PACKAGES = frozenset({"tensorflow-serving-api"})
# This one has no arguments.
WITHOUT_PARSER = ("tools.full_disk",)
# Runs each command up to its arguments; a line names one that is refused.
PARSE = """
import argparse, json, os, runpy, sys
known, path = argparse.ArgumentParser.parse_known_args, [*sys.path]
def parse(*args, **kwargs):
    _, rest = known(*args, **kwargs)
    sys.exit(rest)
argparse.ArgumentParser.parse_known_args = parse
for words in json.load(sys.stdin):
    sys.path[:] = os.path.dirname(words[0]), *path
    sys.argv = words[words[0] == "-m" :]
    run = runpy.run_module if words[0] == "-m" else runpy.run_path
    try:
        run(sys.argv[0], run_name="__main__")
        print(words, "has no arguments")
    except SystemExit as end:
        if end.code:
            print(words, end.code)
"""


def scripts():
    """Returns the arguments of Python in the documents, each once."""
    found = [
        words[1:]
        for words in documents.all_commands()
        if words[0] == "python"
        and words[1] != "-c"
        and not {"trainer.py", "decoder.py"} & set(words)
        and not any("relpos_tf.bin" in word for word in words)
        and not set(WITHOUT_PARSER) & set(words)
    ]
    return [words for i, words in enumerate(found) if words not in found[:i]]


class DocumentedCommandsTest(parameterized.TestCase):
    def test_scripts_take_their_arguments(self):
        found = scripts()
        self.assertGreater(len(found), 20)
        named = {word.split("=")[-1] for words in found for word in words}
        files = set(os.listdir(ROOT))
        wrong = ["benchmarks/attention.py", "--stops=3"]
        done = calls.python("-c", PARSE, input=json.dumps([*found, wrong]))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout, f"{wrong} ['--stops=3']\n")
        # Other tests write here as well.
        self.assertEmpty(named & set(os.listdir(ROOT)) - files)

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
