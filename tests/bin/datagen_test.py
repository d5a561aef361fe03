"""The datagen command: it prepares a problem, once."""

import pathlib
import subprocess
import sys

from absl.testing import absltest

from relpos_tf import registry
from relpos_tf.bin import datagen
from tests.bin import calls


class DatagenTest(absltest.TestCase):
    def test_a_problem_is_prepared_once(self):
        folder = pathlib.Path(self.create_tempdir().full_path)
        arguments = ("--problem=algorithmic_copy", f"--data_dir={folder}")
        code, out, err = calls.execute(datagen.main, *arguments)
        self.assertEqual((code, out), (0, b""))
        self.assertEndsWith(err, f"algorithmic_copy is prepared in {folder}.\n")
        # Its sides are equal, as they should be.
        self.assertNotIn("warning", err)
        problem = registry.problem("algorithmic_copy")
        pairs = sum(1 for _ in problem.pairs("train"))
        self.assertLen(problem.tokens(folder, "train"), pairs)
        for more, expected in ((), "already "), (("--generate_data",), ""):
            code, _, err = calls.execute(datagen.main, *arguments, *more)
            self.assertEqual(code, 0)
            self.assertEndsWith(
                err, f"algorithmic_copy is {expected}prepared in {folder}.\n"
            )

    def test_registry_help_lists_problems_and_sets(self):
        code, out, err = calls.execute(datagen.main, "--registry_help")
        self.assertEqual((code, err), (0, ""))
        self.assertEqual(
            out.decode().split(),
            [
                "Problems:",
                *registry.list_problems(),
                "Hparams",
                "sets:",
                *registry.list_hparams(),
            ],
        )

    def test_problem_of_ones_own_folder_is_found(self):
        folder = pathlib.Path(self.create_tempdir().full_path, "my_problems")
        folder.mkdir()
        (folder / "__init__.py").write_text(
            "from relpos_tf import registry\n"
            "from relpos_tf.problems import algorithmic\n\n\n"
            "@registry.register_problem\n"
            "def of_the_datagen_test():\n"
            "    return algorithmic.algorithmic_copy()\n",
            encoding="utf-8",
        )
        # In a process of its own: registrations stay for good.
        module = ["-m", "relpos_tf.bin.datagen"]
        done = subprocess.run(
            [sys.executable, *module, f"--usr_dir={folder}", "--registry_help"],
            capture_output=True,
            check=True,
            text=True,
        )
        self.assertIn("  of_the_datagen_test\n", done.stdout)


if __name__ == "__main__":
    absltest.main()
