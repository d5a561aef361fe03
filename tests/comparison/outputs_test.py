"""Files of translations of other systems."""

from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf.comparison import outputs
from relpos_tf.problems import test_sets
from tests import folders


class OutputsTest(folders.TestCase):
    def setUp(self):
        super().setUp()
        self.enter_folder()
        for number, name in enumerate(
            ("a.txt", "b.txt", "k=2.txt", "s-1.txt", "s-2.txt", "[s-3.txt")
        ):
            self.write(name, "one", f"two {number}")

    @parameterized.parameters(
        (["x=a.txt"], [("x", None, {"": "a.txt"})]),
        (["x=k=2.txt"], [("x", None, {"": "k=2.txt"})]),
        (["x=[s-3.txt", " "], [("x", None, {"": "[s-3.txt"})]),
        (
            ["x=a.txt", "y=a.txt", "x:test_2017_flickr=b.txt"],
            [
                ("x", None, {"": "a.txt", "test_2017_flickr": "b.txt"}),
                ("y", None, {"": "a.txt"}),
            ],
        ),
        (
            ["x=a.txt", "x=b.txt", "x:test_2=s-*.txt"],
            [
                ("x", "file 1", {"": "a.txt", "test_2": "s-1.txt"}),
                ("x", "file 2", {"": "b.txt", "test_2": "s-2.txt"}),
            ],
        ),
    )
    def test_labels_sets_and_models(self, items, expected):
        found = [
            (one.label, one.seed, {k: str(v) for k, v in one.paths.items()})
            for one in outputs.parse(items)
        ]
        self.assertEqual(found, expected)

    def test_a_set_has_one_file_of_a_model(self):
        one_set = test_sets.TestSet("test", [*"xy"], [*"uv"], self.folder, "")
        (one,) = outputs.parse(["x=a.txt", "x:test=b.txt"])
        with self.assertRaisesRegex(errors.UserError, "one file of x for test"):
            outputs.read(one, [one_set])

        with self.assertRaisesRegex(errors.UserError, "2 files 1 are new"):
            outputs.parse(["x=s-2.txt", "x=./s-*.txt"])

    def test_each_set_has_its_lines(self):
        sets = [
            test_sets.TestSet(x, ["x", "y"], ["u", "v"], self.folder, "")
            for x in ("test", "flickr")
        ]
        lines = {"test": ["one", "two 1"], "flickr": ["one", "two 0"]}
        for first in ("x:test=b.txt", "x=b.txt"):
            (one,) = outputs.parse([first, "x:flickr=a.txt"])
            self.assertEqual(outputs.read(one, sets).translations, lines)
