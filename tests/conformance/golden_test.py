"""Every hparams set equals its golden file, and all are in the reference.

A changed default then shows in review, as changed lines in every set that it
touches. `make golden` writes the files again, as it runs this module.
"""

import json
import pathlib
import re

from absl.testing import parameterized

from relpos_tf import hparam
from relpos_tf import registry
from tools import reference

GOLDEN = pathlib.Path(__file__).resolve().parent / "golden"


def resolved(name):
    """Returns a set with all its values as JSON."""
    return json.dumps(registry.hparams(name).to_dict(), indent=2) + "\n"


def write():
    """Replaces the golden files by the sets of today."""
    for path in GOLDEN.glob("*.json"):
        path.unlink()
    for name in registry.list_hparams():
        (GOLDEN / f"{name}.json").write_text(resolved(name), encoding="utf-8")
    reference.PAGE.write_text(reference.page(), encoding="utf-8")


class GoldenTest(parameterized.TestCase):
    def test_sets_and_golden_files_have_the_same_names(self):
        self.assertEqual(
            sorted(path.stem for path in GOLDEN.glob("*.json")),
            registry.list_hparams(),
            "Run `make golden`.",
        )

    @parameterized.parameters(registry.list_hparams())
    def test_set_equals_its_golden_file(self, name):
        path = GOLDEN / f"{name}.json"
        self.assertEqual(
            resolved(name),
            path.read_text(encoding="utf-8"),
            "If the change is intended, run `make golden`.",
        )

    def test_reference_has_every_set_and_describes_every_field(self):
        page = reference.PAGE.read_text(encoding="utf-8")
        self.assertEqual(page, reference.page(), "Run `make golden`.")
        rows = re.findall(r"^\| (\w+) \| .+ \| (\S*).* \|$", page, re.M)
        names = {*hparam.field_types(), *registry.list_hparams()}
        self.assertEqual({name for name, _ in rows} - {"field", "set"}, names)
        self.assertTrue({"", "Needs"}.isdisjoint(dict(rows).values()))


if __name__ == "__main__":
    write()
