"""Runs with text of one's own: whether the flags name that text."""

import pathlib

from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf import hparam
from relpos_tf.comparison import own_text
from relpos_tf.comparison import runs as runs_lib
from relpos_tf.problems import manifest as manifest_lib
from relpos_tf.problems import own_files
from relpos_tf.problems import translate
from tests import tiny_run

TEXTS = {
    "train": "one two\nthree\nfour five six\n" * 7,
    "dev": "two three\nsix\n",
    "test": "five\nthree four\none\n",
    "more": "six five\nfour\none\n",
}


class OwnTextTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)
        for name, text in TEXTS.items():
            for side in ("en", "de"):
                (self.folder / f"{name}.{side}").write_text(text)
        self.run_of_a = runs_lib.Run("a", 1, self.folder / "a-seed1")

    def problem(self, test="test", vocab_size=300):
        def paths(names):
            return own_files.Sides(
                *(
                    ",".join(f"{self.folder}/{n}.{s}" for n in names.split(","))
                    for s in ("en", "de")
                )
            )

        return translate.files_problem(
            own_files.Training(*paths("train")),
            paths("dev"),
            paths(test),
            vocab_size,
        )

    def train(self, problem):
        """Leaves the files of a run that are checked."""
        manifest = problem.prepare(self.folder / "data")
        self.run_of_a.files.write_hparams(hparam.HParams())
        data = manifest_lib.fingerprints(manifest)
        self.run_of_a.files.write_problem(tiny_run.PROBLEM | {"data": data})

    def check(self, problem):
        own_text.check([self.run_of_a], self.folder / "data", problem)

    def test_text_of_the_runs_is_found_in_any_place(self):
        self.check(self.problem())  # nothing has begun
        self.train(self.problem())
        self.check(self.problem())
        for path in self.folder.glob("test.*"):
            path.rename(path.with_stem("moved"))
        self.check(self.problem("moved"))

    @parameterized.parameters(
        ({"test": "more"}, "--test_source, --test_target named"),
        ({"test": "test,more"}, "--test_source, --test_target named"),
        ({"vocab_size": 275}, "--vocab_size named"),
    )
    def test_other_text_is_refused(self, given, message):
        self.train(self.problem())
        other = self.problem(**given)
        for _ in range(2):  # whether it is prepared or not
            with self.assertRaisesRegex(
                errors.UserError, f"The run .*/a-seed1 was .*: {message} "
            ):
                self.check(other)
            other.prepare(self.folder / "data")

    def test_files_of_new_content_are_refused(self):
        self.train(self.problem())
        (self.folder / "dev.de").write_text("six\nsix\n")
        with self.assertRaisesRegex(errors.UserError, "text: --dev_target nam"):
            self.check(self.problem())

    def test_runs_whose_text_is_unknown_are_not_refused(self):
        self.train(self.problem())
        (self.run_of_a.path / "problem.json").unlink()
        self.check(self.problem("more"))


if __name__ == "__main__":
    absltest.main()
