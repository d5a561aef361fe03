"""Tests of the promises of docs/reliability.md about foreign models."""

import os
import pathlib
import re
import shutil
import sys

from absl.testing import absltest

import relpos_tf
from tests import folders
from tests import tiny_run

ROOT = pathlib.Path(__file__).resolve().parents[1]


class PromisesTest(absltest.TestCase):
    def test_each_promise_names_tests_that_there_are(self):
        text = (ROOT / "docs" / "reliability.md").read_text("utf-8")
        (table,) = re.findall(r"^\| file \| read by .*?\n\n", text, re.M | re.S)
        promises = [row.split(" | ") for row in table.strip().splitlines()[2:]]
        self.assertGreater(len(promises), 9)
        for file, _, worst, names in promises:
            named = re.findall(r"`(\S+_test\.py)::(test_\w+)`", names)
            # Where anything can happen, there is nothing to test.
            self.assertEqual(not named, worst.startswith("**any"), file)
            for path, name in named:
                tests = (ROOT / "tests" / path).read_text("utf-8")
                self.assertIn(f"def {name}(", tests)


class RunTest(absltest.TestCase):
    opened = None

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        sys.addaudithook(cls.hear)  # which nothing takes off again

    @classmethod
    def hear(cls, event, arguments):
        if event == "open" and cls.opened is not None:
            path, mode, flags = arguments
            if isinstance(path, str | bytes):
                writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
                cls.opened.append((os.fsdecode(path), mode, bool(writes)))

    def test_loading_a_run_opens_its_own_files_and_writes_none(self):
        folder = pathlib.Path(self.create_tempdir().full_path, "run")
        shutil.copytree(tiny_run.path(), folder)
        program = "raise SystemExit('executed')\n"
        for name in ("sitecustomize.py", "__init__.py", "hparams.py"):
            (folder / name).write_text(program)

        def state():
            times = {x: x.stat().st_mtime_ns for x in folder.rglob("*")}
            return folders.checksums(folder), times

        before = state()
        relpos_tf.Translator.load(tiny_run.path())  # imports all modules
        type(self).opened = opened = []
        relpos_tf.Translator.load(folder)
        type(self).opened = None
        self.assertEqual(state(), before)
        names = {
            pathlib.Path(path).name
            for path, _, _ in opened
            if path.startswith(str(folder))
        }
        self.assertEqual(
            names,
            # The second is looked for; a run need not have it.
            {"hparams.json", "problem.json", "ckpt-7.npz", "tokenizer.model"},
        )
        written = [path for path, _, writes in opened if writes]
        self.assertEqual(written, [])
        outside = [p for p, _, _ in opened if not p.startswith(str(folder))]
        self.assertEqual(outside, [])
