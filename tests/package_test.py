"""The public names of the package."""

import pathlib
import sys

from absl.testing import absltest
from absl.testing import parameterized

import relpos_tf
from tests import commands

ROOT = pathlib.Path(__file__).resolve().parents[1]


class PublicNamesTest(parameterized.TestCase):
    @parameterized.parameters(*relpos_tf.__all__)
    def test_public_names_are_there_and_described(self, name):
        self.assertIn(name, dir(relpos_tf))
        self.assertIn(f"relpos_tf.{name}", relpos_tf.__doc__)
        found = getattr(relpos_tf, name)
        self.assertEqual(found.__name__, name)
        self.assertNotEmpty(found.__doc__)

    def test_other_names_are_refused(self):
        with self.assertRaisesRegex(AttributeError, "no attribute 'Trainer'"):
            _ = relpos_tf.Trainer

    def test_help_shows_where_to_begin(self):
        done = commands.run(
            [sys.executable, "-c", "import relpos_tf; help(relpos_tf)"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        self.assertIn("Where to begin:", done.stdout[:400])

    def test_types_are_declared(self):
        self.assertTrue((ROOT / "relpos_tf" / "py.typed").is_file())
        setup = (ROOT / "setup.py").read_text(encoding="utf-8")
        self.assertIn('"relpos_tf": ["py.typed"]', setup)


if __name__ == "__main__":
    absltest.main()
