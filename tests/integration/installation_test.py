"""An installation from the wheel of the source distribution.

The distributions are built once, without an index: the packages that they need
are those of the tests. `make package` installs them, and translates.
"""

import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import zipfile

from absl.testing import absltest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = "benchmarks docs examples hparams relpos_tf tests tools".split()
FILES = (
    "CHANGELOG.md CONTRIBUTING.md LICENSE MANIFEST.in Makefile README.md "
    "constraints.txt decoder.py pyproject.toml setup.py trainer.py"
).split()
BUILD = "import sys; from setuptools import build_meta as b; "
PIP = ("-m", "pip", "--disable-pip-version-check")
EXTRAS = "relpos_tf[translate,plots,tensorboard]"
# The layers, and then each command, where translation is not installed. `make
# test-oldest` computes with the layers there.
LAYERS_ONLY = """
import contextlib, importlib, io, json, sys

missing = "tensorflow_text", "sentencepiece", "sacrebleu", "sacremoses"
sys.modules |= dict.fromkeys(missing)  # None: cannot be imported

import relpos_tf.layers
from relpos_tf.bin import command
from relpos_tf.decoding import search  # works on ids

try:
    relpos_tf.Translator
except ImportError as error:
    message = str(error)
messages = {}
for name, *words in json.load(sys.stdin):
    main = importlib.import_module("relpos_tf.bin." + name).main
    with contextlib.redirect_stderr(io.StringIO()) as error:
        code = command.execute(main, words)
    messages[name] = code, error.getvalue()
print(json.dumps([relpos_tf.__file__, message, messages]))
"""


def execute(*words, **kwargs):
    """Runs Python; returns what it wrote."""
    done = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, **kwargs
    )
    if done.returncode:
        raise RuntimeError(f"{words}: {done.stdout}{done.stderr}")
    return done.stdout


def copy_sources(folder):
    """Copies what belongs to the project, so that building changes nothing."""
    for name in FOLDERS:
        shutil.copytree(
            ROOT / name,
            folder / name,
            ignore=shutil.ignore_patterns("__pycache__", ".*"),
        )
    for name in FILES:
        shutil.copy(ROOT / name, folder)


def names_in(folder):
    """Returns the names of all files of a folder."""
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file()
    }


class InstallationTest(absltest.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        root = pathlib.Path(cls.create_tempdir(cls()).full_path)
        cls.source, cls.folder = root / "source", root / "installed"
        cls.source.mkdir()
        copy_sources(cls.source)
        cls.names = names_in(cls.source)
        execute("-c", f"{BUILD} b.build_sdist('..')", cwd=cls.source)
        (cls.sdist,) = root.glob("*.tar.gz")
        execute(
            *(*PIP, "wheel", "--no-index", "--no-deps", "--wheel-dir", root),
            *("--no-build-isolation", cls.sdist),
        )
        (cls.wheel,) = root.glob("*.whl")
        execute(
            *(*PIP, "install", "--no-index", "--no-deps", "--no-compile"),
            *("--target", cls.folder, cls.wheel),
        )
        cls.environment = os.environ | {"PYTHONPATH": str(cls.folder)}

    def run_installed(self, *words, input):
        """Runs Python with the installed package, elsewhere."""
        folder = self.create_tempdir().full_path
        return execute(*words, input=input, cwd=folder, env=self.environment)

    def test_the_source_distribution_has_every_file(self):
        with tarfile.open(self.sdist) as archive:
            names = {name.partition("/")[2] for name in archive.getnames()}
        self.assertEmpty(self.names - names)

    def test_the_wheel_has_the_package_and_its_types_and_nothing_else(self):
        package = names_in(self.source / "relpos_tf")
        self.assertIn("py.typed", package)
        expected = {f"relpos_tf/{name}" for name in package} | {
            f"relpos_tf/{name}" for name in self.names if "hparams/" in name
        }
        with zipfile.ZipFile(self.wheel) as archive:
            names = set(archive.namelist())
            for name in sorted(expected):
                path = self.source / name
                if "relpos_tf/hparams/" in name:
                    path = self.source / name.removeprefix("relpos_tf/")
                self.assertEqual(archive.read(name), path.read_bytes(), name)
        self.assertEmpty(
            [name for name in names - expected if ".dist-info/" not in name]
        )

    def test_extras_of_an_installed_package_need_no_index(self):
        # What messages advise: the package itself was never published.
        extras = EXTRAS
        if importlib.util.find_spec("ctranslate2"):
            extras = extras.replace("[", "[ctranslate2,")
        text = execute(
            *(*PIP, "install", "--no-index", "--dry-run", extras),
            env=self.environment,
        )
        self.assertNotIn("does not provide the extra", text)
        self.assertNotIn("Would install", text)

    def test_layers_need_no_package_of_translation(self):
        calls = [
            ["trainer"],
            ["decoder", "--output_dir=runs/none"],
            ["bleu", "--translation=test.de", "--reference=test.de"],
            [
                "compare",
                "--problem=translate_ende_phrases",
                "--hparams_sets=transformer_relative_tiny,transformer_tiny",
                "--output_dir=runs/compared",
            ],
        ]
        text = self.run_installed("-c", LAYERS_ONLY, input=json.dumps(calls))
        file, message, messages = json.loads(text)
        self.assertStartsWith(file, str(self.folder))
        says = (
            r"Expected the package \w+, which (translation|scoring|this "
            r"command) needs. Received: none. Install it: pip install "
            r"'relpos_tf\[translate\]' "
            r"\(in a clone: '\.\[translate\]'\)"
        )
        self.assertRegex(message, rf"\A{says}\Z")
        for name, *_ in calls:
            code, error = messages[name]
            self.assertEqual(code, 1, name)
            self.assertRegex(error, rf"\Arelpos-{name}: {says}\n\Z")
