"""An installation from the wheel of the source distribution.

The distributions are built once, without an index: the packages that they need
are those of the tests.
"""

import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile

from absl.testing import absltest

from tests import commands
from tests import documents
from tests import t2t_checkpoint
from tests import tiny_run

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = "benchmarks docs examples hparams relpos_tf tests tools".split()
FILES = (
    "CHANGELOG.md CITATION.cff CONTRIBUTING.md LICENSE MANIFEST.in Makefile "
    "README.md SECURITY.md constraints.txt decoder.py mkdocs.yml "
    "pyproject.toml setup.py trainer.py"
).split()
BUILD = "import sys; from setuptools import build_meta as b; "
EXTRAS = "relpos_tf[translate,plots,tensorboard]"
# Small, so that a step takes no time and a graph little.
SMALL = (
    "--vocab_size=300",
    "--hparams=max_length=128,hidden_size=16,filter_size=24,num_heads=2,"
    "num_hidden_layers=1,batch_size=256,beam_size=1,extra_length=2,"
    "self_attention_type=dot_product,pos=timing",
    "--train_steps=1",
    "--schedule=train",
    "--test_source=test.en",
    "--test_target=test.de",
)
# Parses the flags of commands, and makes what their values name.
PARSE = """
import importlib, json, sys
from relpos_tf import errors
from relpos_tf.bin import command

for name, *words in json.load(sys.stdin):
    module = importlib.import_module("relpos_tf.bin." + name)
    try:
        command.parse(module.FLAGS, words)
        for function in ("make_problem", "make_hparams"):
            if hasattr(module, function):
                getattr(module, function)()
    except errors.UserError as error:
        print(name, words, error)
"""
# The layers, and then each command, where translation is not installed.
LAYERS_ONLY = """
import contextlib, importlib, io, json, sys

missing = "tensorflow_text", "sentencepiece", "sacrebleu", "sacremoses"
for name in list(sys.modules):
    if name.split(".")[0] in ("relpos_tf", *missing):
        del sys.modules[name]
sys.modules |= dict.fromkeys(missing)  # None: cannot be imported

import numpy as np
import relpos_tf
from relpos_tf.bin import command
from relpos_tf.decoding import search  # works on ids

x = np.ones([2, 3, 8], np.float32)
outputs = (
    relpos_tf.RelativeMultiHeadAttention(2, 4)(x, x),
    relpos_tf.TransformerAttention(8, 2)(x),
    relpos_tf.RelationAttention(8, 2, num_relations=1)(
        x, relations=np.zeros([2, 3, 3], int)
    ),
)
text = io.StringIO()
with contextlib.redirect_stdout(text):
    help(relpos_tf)
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
shapes = [output.shape.as_list() for output in outputs]
print(json.dumps([shapes, text.getvalue(), message, messages]))
"""


def execute(*words, **kwargs):
    """Runs Python in an ordinary process; returns what it wrote."""
    done = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, **kwargs
    )
    if done.returncode:
        raise RuntimeError(f"{words}: {done.stdout}{done.stderr}")
    return done.stdout + done.stderr


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
        pip = ("-m", "pip", "--disable-pip-version-check")
        cls.pip = pip
        execute(
            *(*pip, "wheel", "--no-index", "--no-deps", "--wheel-dir", root),
            *("--no-build-isolation", cls.sdist),
        )
        (cls.wheel,) = root.glob("*.whl")
        execute(
            *(*pip, "install", "--no-index", "--no-deps", "--no-compile"),
            *("--target", cls.folder, cls.wheel),
        )
        cls.work = root / "work"
        cls.work.mkdir()
        for name in ("train", "dev", "test", "mono"):
            for language, start in (("en", 0), ("de", 1)):
                lines = "\n".join(tiny_run.TEXT[start::2]) + "\n"
                (cls.work / f"{name}.{language}").write_text(lines * 5)

    def run_installed(self, *words, input=""):
        """Runs a command of the installation in a folder of its own."""
        done = commands.run(
            [sys.executable, *map(str, words)],
            input=input,
            capture_output=True,
            cwd=self.work,
            folder=self.folder,
            text=True,
        )
        self.assertNotIn("Traceback", done.stderr)
        return done

    def documented(self, file="README.md"):
        """Returns the installed commands of a document, without `relpos-`."""
        text = (ROOT / file).read_text(encoding="utf-8")
        return [
            [words[0].removeprefix("relpos-"), *words[1:]]
            for words in documents.commands(text)
            if words[0].startswith("relpos-")
        ]

    def run_documented(self, start, *more, file="README.md", **kwargs):
        """Runs the command of a document that begins with these words."""
        found = [
            words
            for words in self.documented(file)
            if " ".join(words).startswith(start)
        ]
        self.assertNotEmpty(found, start)
        name, *words = found[0]
        script = self.folder / "bin" / f"relpos-{name}"
        done = self.run_installed(script, *words, *more, **kwargs)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

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
            *(*self.pip, "install", "--no-index", "--dry-run", extras),
            env=os.environ | {"PYTHONPATH": str(self.folder)},
        )
        self.assertNotIn("does not provide the extra", text)
        self.assertNotIn("Would install", text)

    def test_layers_need_no_package_of_translation(self):
        self.train_as_documented()  # The decoder looks for a run first.
        calls = [
            ["trainer"],
            ["decoder"],
            ["datagen", "--problem=translate_ende_phrases", "--data_dir=none"],
            ["bleu", "--translation=test.de", "--reference=test.de"],
            ["export", "--output_dir=runs/none"],
            [
                "compare",
                "--problem=translate_ende_phrases",
                "--hparams_sets=transformer_relative_tiny,transformer_tiny",
                "--output_dir=runs/compared",
            ],
            ["import_t2t", "--t2t_dir=none", "--output_dir=runs/d"],
        ]
        done = self.run_installed("-c", LAYERS_ONLY, input=json.dumps(calls))
        self.assertEqual(done.returncode, 0, done.stderr)
        shapes, text, message, messages = json.loads(done.stdout)
        self.assertEqual(shapes, [[2, 3, 8]] * 3)
        self.assertIn("Where to begin:", text[:400])
        for name in ("RelativeMultiHeadAttention", "TransformerAttention"):
            self.assertRegex(text, rf"(?m)^    class {name}\(")
        self.assertIn(str(self.folder), text)  # the installation's own file
        says = (
            r"Expected the package \w+, which (translation|scoring) needs. "
            r"Received: none. Install it: pip install 'relpos_tf\[translate\]'"
        )
        self.assertRegex(message, rf"\A{says}\Z")
        for name, *_ in calls:
            code, error = messages[name]
            self.assertEqual(code, 1, name)
            self.assertRegex(error, rf"\Arelpos-{name}: {says}\n\Z")

    def test_documented_commands_have_flags_and_names_that_exist(self):
        found = [
            words
            for file in documents.FILES
            for words in self.documented(file)
            if not any(
                "..." in word or re.fullmatch(r"--[a-z_0-9]+", word)
                for word in words
            )
        ]
        self.assertGreater(len(found), 50)
        wrong = ["trainer", "--hparams_set=transformer_giant"]
        done = self.run_installed(
            "-c", PARSE, input=json.dumps([*found, wrong])
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"\A.*transformer_giant.*\n\Z")

    def train_as_documented(self):
        """Trains for a step; runs/mine and runs/relative are there then."""
        runs = self.work / "runs"
        if not runs.exists():
            done = self.run_documented(
                "trainer --problem=translate_files", *SMALL
            )
            self.assertIn(
                "Translate with: relpos-decoder --output_dir=runs/mine\n",
                done.stderr,
            )
            shutil.copytree(runs / "mine", runs / "relative")
            shutil.copytree(runs / "mine", runs / "absolute")
        return runs

    def test_commands_that_train_translate_and_score(self):
        runs = self.train_as_documented()
        self.run_documented("decoder --output_dir=runs/relative --test_set")
        self.assertLen((self.work / "out.de").read_text().splitlines(), 20)
        self.assertIn("bleu", (self.work / "score.json").read_text())
        shutil.copy(self.work / "out.de", self.work / "reference.de")
        shutil.copy(self.work / "out.de", self.work / "test.de")
        done = self.run_documented("bleu", file="docs/results.md")
        self.assertIn("BLEU", done.stdout)
        done = self.run_documented(
            "average --output_dir=runs/mine --n",
            "--n=1",
            file="relpos_tf/bin/average.py",
        )
        self.assertEqual(done.stdout, f"{runs.name}/mine/average/ckpt-1\n")
        done = self.run_documented(
            "translate_all --output_dir=runs/mine",
            file="relpos_tf/bin/translate_all.py",
        )
        self.assertIn("average 1", done.stdout)
        self.run_documented(
            "datagen --problem=translate_ende_wmt14",
            "--problem=translate_ende_lists",
            file="relpos_tf/bin/datagen.py",
        )
        prepared = self.work / "data" / "translate_ende_lists"
        self.assertTrue((prepared / "train.ids").is_file())

    def test_commands_that_export(self):
        self.train_as_documented()
        formats = {"relative": "export --output_dir=runs/relative"}
        if importlib.util.find_spec("ctranslate2"):
            formats["int8"] = f"{formats['relative']} --format=ctranslate2"
        if importlib.util.find_spec("ai_edge_litert"):
            formats["litert"] = f"{formats['relative']} --format=litert"
        for name, start in formats.items():
            folder = f"--export_dir=exported/{name}"
            self.run_documented(start, folder)
            script = self.folder / "bin" / "relpos-decoder"
            done = self.run_installed(script, folder, input="seven\ntwo days\n")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stdout.count("\n"), 2, name)

    def test_commands_that_import(self):
        hparams = t2t_checkpoint.hparams_dict(num_hidden_layers=1)
        vocab = t2t_checkpoint.subtokens(59)
        t2t_checkpoint.write(
            self.work / "t2t_train" / "mine",
            t2t_checkpoint.random_variables(hparams, len(vocab), 5),
            hparams,
            vocab=vocab,
        )
        self.run_documented("import_t2t")
        done = self.run_documented(
            "decoder --output_dir=runs/imported", input="a dog\n"
        )
        self.assertEqual(done.stdout.count("\n"), 1)

    def test_commands_that_compare(self):
        self.train_as_documented()
        (self.work / "marian.de").write_bytes(
            (self.work / "test.de").read_bytes()
        )
        done = self.run_documented(
            "compare --runs=runs/relative,runs/absolute",
            "--runs=runs/relative",  # of two equal ones
            file="docs/comparing.md",
        )
        self.assertIn("marian", done.stdout)


if __name__ == "__main__":
    absltest.main()
