"""The contents of an installation, without building a wheel."""

import contextlib
import functools
import importlib
import os
import pathlib
import re
from unittest import mock

import setuptools
from absl.testing import parameterized
from packaging import requirements

import relpos_tf
from tests.conformance import help_test

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHONS = ("3.10", "3.11", "3.12", "3.13")


@functools.cache
def distribution():
    """Returns what setuptools reads in setup.py and pyproject.toml."""
    with contextlib.ExitStack() as stack:
        stack.callback(os.chdir, os.getcwd())
        stack.enter_context(mock.patch.dict(os.environ))  # It sets PLAT.
        os.chdir(ROOT)
        # Its own, since Python 3.12 has no distutils.
        core = setuptools.distutils.core
        return core.run_setup("setup.py", stop_after="config")


def read_lines(path):
    """Yields the lines of a file that are neither empty nor comments."""
    for line in (ROOT / path).read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            yield line


def pins(python):
    """Returns {name: version} as constraints.txt has it for one Python."""
    found = {}
    for line in read_lines("constraints.txt"):
        pin = requirements.Requirement(line)
        if not applies(pin, python):
            continue
        name = pin.name.lower().replace("_", "-")
        if name in found:
            raise ValueError(f"{name} is pinned twice for Python {python}.")
        (specifier,) = pin.specifier
        if specifier.operator != "==" or pin.url:
            raise ValueError(f"Expected an exact version. Received: {line}")
        found[name] = specifier.version
    return found


def applies(requirement, python):
    """Whether a requirement applies to a version of Python."""
    environment = {"python_version": python}
    return not requirement.marker or requirement.marker.evaluate(environment)


class PackagingTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.setup = distribution()

    def test_versions_agree(self):
        version = self.setup.metadata.version
        self.assertEqual(version, relpos_tf.__version__)
        self.assertIn(f"version: {version}", read_lines("CITATION.cff"))

    def test_console_scripts_point_at_functions_and_miss_no_command(self):
        scripts = self.setup.entry_points["console_scripts"]
        names = []
        for script in scripts:
            name, target = script.split(" = ")
            module, function = target.split(":")
            self.assertTrue(
                callable(getattr(importlib.import_module(module), function))
            )
            self.assertEqual(name, f"relpos-{module.rsplit('.', 1)[1]}")
            names.append(module.rsplit(".", 1)[1])
        self.assertCountEqual(names, help_test.COMMANDS)

    @parameterized.parameters(*PYTHONS)
    def test_constraints_satisfy_the_requirements(self, python):
        extras = self.setup.extras_require.values()
        wanted = [*self.setup.install_requires, *sum(extras, [])]
        pinned = pins(python)
        wrong = []
        for line in wanted:
            wish = requirements.Requirement(line)
            if not applies(wish, python) or wish.name == "relpos_tf":
                continue
            version = pinned.get(wish.name.lower(), "none")
            if version == "none" or version not in wish.specifier:
                wrong.append(f"{line}: pinned to {version}")
        self.assertEmpty(wrong)

    def test_layers_allow_the_versions_that_make_test_oldest_installs(self):
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        layers = self.setup.extras_require["layers"]
        wishes = {
            wish.name: wish.specifier
            for wish in map(
                requirements.Requirement,
                [*self.setup.install_requires, *layers],
            )
        }
        self.assertCountEqual(
            wishes, ["tensorflow", "keras", "numpy", "absl-py"]
        )
        for name in ("tensorflow", "keras", "numpy"):
            oldest = re.search(rf"^{name.upper()} \?= (.*)$", makefile, re.M)[1]
            floor = [s.version for s in wishes[name] if s.operator == ">="]
            self.assertEqual(floor, [oldest.rpartition(".")[0]])
            self.assertIn(pins("3.11")[name], wishes[name])
