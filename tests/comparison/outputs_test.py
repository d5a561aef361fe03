"""Files of translations of other systems."""

import os
import pathlib

from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf.comparison import outputs
from relpos_tf.problems import test_sets


class OutputsTestCase(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)
        before = os.getcwd()
        os.chdir(self.folder)
        self.addCleanup(os.chdir, before)
        for number, name in enumerate(
            ("a.txt", "b.txt", "k=2.txt", "s-1.txt", "s-2.txt", "[s-3.txt")
        ):
            (self.folder / name).write_text(f"one\ntwo {number}\n")
        (self.folder / "copy.txt").write_text("one\ntwo 0\n")
        self.sets = [
            test_sets.TestSet(
                name, ["x", "y"], ["u", "v"], self.folder, self.folder
            )
            for name in ("test", "test_2017_flickr")
        ]


class ParseTest(OutputsTestCase):
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


class ReadTest(OutputsTestCase):
    def read(self, *items):
        (one,) = outputs.parse(items)
        return outputs.read(one, self.sets)

    def test_each_set_has_its_lines(self):
        result = self.read("x=b.txt", "x:test_2017_flickr=a.txt")
        first, second = ["one", "two 1"], ["one", "two 0"]
        self.assertEqual(
            result.translations, {"test": first, "test_2017_flickr": second}
        )
        for item in ("x:test=b.txt", "x=b.txt"):
            self.assertEqual(self.read(item).translations, {"test": first})
        self.assertEqual(result.record, {})


if __name__ == "__main__":
    absltest.main()
