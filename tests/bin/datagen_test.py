"""The datagen command: it prepares a problem, once."""

import pathlib
import re

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
        pairs = sum(1 for _ in problem.splits["train"](None))
        self.assertLen(problem.tokens(folder, "train"), pairs)
        for more, is_prepared in ((), False), (("--generate_data",), True):
            code, _, err = calls.execute(datagen.main, *arguments, *more)
            self.assertEqual(code, 0)
            self.assertEqual("Preparing" in err, is_prepared)

    def test_registry_help_has_a_line_for_each_problem_and_set(self):
        code, out, err = calls.execute(datagen.main, "--registry_help")
        self.assertEqual((code, err), (0, ""))
        names = [*registry.list_problems(), *registry.list_hparams()]
        found = [word for word in out.decode().split() if word in names]
        self.assertEqual(found, names)
        *_, sets = out.decode().split("Hparams sets:\n")
        # Tests register others, without docstrings.
        for line in re.findall("(?m)^transformer_.*", sets):
            self.assertRegex(
                line, r"\. \d \+ \d layers of \d+\. Cost: .* Score: .*\."
            )
        self.assertIn(
            "\ntransformer_tiny  Two layers of 128, for minutes on a CPU and "
            "for tests. 2 + 2 layers of 128. Cost: three to five minutes on "
            "one core. Score: 95.87 % of the built-in phrases exact.\n",
            out.decode(),
        )
