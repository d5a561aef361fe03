"""Tests of finding the lines that models are scored on."""

import pathlib

from absl.testing import absltest

from relpos_tf import errors
from relpos_tf.problems import manifest as manifest_lib
from relpos_tf.problems import test_sets
from relpos_tf.utils import files
from tests.problems import problem_test

LINES = {"dev": ["a"], "test": ["b", "c"], "test_2": ["d", "e", "f"]}


class TestSetsTest(absltest.TestCase):
    def prepare(self, data_dir, *names, **fields):
        """Returns what a run knows of its data, which are prepared."""
        splits = {
            name: lambda tmp_dir, name=name: [(s, s * 2) for s in LINES[name]]
            for name in ("dev", *names)
        }
        made = problem_test.make(**fields)
        made = problem_test.make(splits={**made.splits, **splits}, **fields)
        manifest = made.prepare(data_dir)
        return {
            "problem": made.name,
            "data": manifest_lib.fingerprints(manifest),
            "tokenizer_sha256": files.sha256(made.tokenizer_path(data_dir)),
        }

    def test_a_run_finds_the_sets_of_its_problem(self):
        data_dir = self.create_tempdir().full_path
        run = self.prepare(data_dir, "test", "test_2")
        found = test_sets.of_problem(data_dir, run, ["dev", "all", "test"])
        self.assertEqual([s.name for s in found], ["dev", "test", "test_2"])
        for test_set in found:
            self.assertEqual(test_set.sources, LINES[test_set.name])
            self.assertEqual(
                test_set.references, [s * 2 for s in LINES[test_set.name]]
            )
            folder = test_set.source_path.parent
            self.assertEqual(folder, pathlib.Path(data_dir, "pets"))
        with self.assertRaisesRegex(errors.UserError, "test_2, dev.*test_7"):
            test_sets.of_problem(data_dir, run, ["test_7"])

    def test_data_of_other_runs_are_refused_but_not_more_test_sets(self):
        first, second, third = (self.create_tempdir().full_path for _ in "abc")
        run = self.prepare(first, "test")
        self.prepare(second, "test", "test_2")
        self.prepare(third, "test", vocab_size=290)
        self.assertLen(test_sets.of_problem(second, run), 2)
        # A folder of fewer splits may lie beside that of the run.
        fewer = self.create_tempdir().full_path
        self.prepare(fewer)
        pathlib.Path(first, "pets").rename(pathlib.Path(fewer, "pets-01234567"))
        self.assertLen(test_sets.of_problem(fewer, run), 1)
        # So may one of more, which serves where its sets are asked for.
        pathlib.Path(second, "pets").rename(f"{fewer}/pets-00000000")
        self.assertLen(test_sets.of_problem(fewer, run), 1)
        self.assertLen(test_sets.of_problem(fewer, run, ["test_2"]), 1)
        none = {k: v for k, v in run["data"].items() if k != "test"}
        self.assertLen(test_sets.of_problem(fewer, run | {"data": none}), 1)
        for data_dir, received in ((third, "other data"), ("", "none")):
            with self.assertRaisesRegex(errors.UserError, received):
                test_sets.of_problem(data_dir, run)
