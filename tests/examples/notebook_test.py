"""The notebook runs, its stored outputs are its own, and their maker works."""

import base64
import copy
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import absltest

from tests import examples
from tools import notebook

PATH = examples.FOLDER / "tunes.ipynb"
SIZES = {"EPOCHS": 1, "NUMBER": 3}
SMALL = {"UPDATES": 2, "LONG": 3}  # in the module of the tunes


def outputs_of(book):
    """Returns the kinds of the outputs of each cell of code."""
    return [
        [
            (output["output_type"], *sorted(output.get("data", ())))
            for output in cell["outputs"]
        ]
        for cell in notebook.code_cells(book)
    ]


def images_of(book):
    """Returns the pictures, as bytes."""
    return [
        base64.b64decode(output["data"]["image/png"])
        for cell in notebook.code_cells(book)
        for output in cell["outputs"]
        if "image/png" in output.get("data", ())
    ]


def book_of(*sources):
    """Returns a notebook of cells of code."""
    cells = [
        {
            "cell_type": "code",
            "execution_count": None,
            "metadata": {"tags": [notebook.PARAMETERS] if i == 0 else []},
            "outputs": [],
            "source": source.splitlines(keepends=True),
        }
        for i, source in enumerate(sources)
    ]
    return {"cells": cells, "metadata": {}}


class TunesTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.stored = notebook.read(PATH)

    def test_cells_run_from_training_to_pictures(self):
        book = copy.deepcopy(self.stored)
        tf.config.run_functions_eagerly(True)  # quicker than graphs
        self.addCleanup(tf.config.run_functions_eagerly, False)
        tunes = examples.load("tunes")
        with mock.patch.multiple(tunes, **SMALL):
            names = notebook.execute(book, examples.FOLDER, SIZES)
        self.assertEqual(names["composed"].shape, (3, 3 * 9))
        np.testing.assert_allclose(names["logits"], names["whole"], atol=1e-4)
        for curve in names["curves"].values():
            self.assertEqual(curve.shape, (1, 2))
        # As stored: the same text, values and pictures in each cell.
        self.assertEqual(outputs_of(book), outputs_of(self.stored))
        self.assertLen(images_of(book), 5)

    def test_stored_outputs_are_those_of_the_code(self):
        self.assertEqual(
            self.stored["metadata"]["checksum_of_code"],
            notebook.checksum(self.stored),
            "Run: python -m tools.notebook examples/tunes.ipynb",
        )
        cells = notebook.code_cells(self.stored)
        numbers = [cell["execution_count"] for cell in cells]
        self.assertEqual(numbers, list(range(1, len(cells) + 1)))
        for image in images_of(self.stored):
            self.assertStartsWith(image, b"\x89PNG")
            self.assertGreater(len(image), 5000)

    def test_it_has_the_format_of_version_4_5(self):
        book = self.stored
        self.assertEqual((book["nbformat"], book["nbformat_minor"]), (4, 5))
        ids = [cell["id"] for cell in book["cells"]]
        self.assertCountEqual(ids, set(ids))
        for cell in book["cells"]:
            keys = {"cell_type", "id", "metadata", "source"}
            if cell["cell_type"] == "code":
                keys |= {"execution_count", "outputs"}
            self.assertEqual(set(cell), keys)


class MakerTest(absltest.TestCase):
    def test_cells_share_names_and_show_text_values_and_figures(self):
        book = book_of(
            "size = 3",
            "print('two', 'words')\nsize + 1",
            "size + 1;",
            "import matplotlib.pyplot as plt\nplt.plot([1, 2]);",
        )
        folder = self.create_tempdir().full_path
        names = notebook.execute(book, folder, {"size": 4})
        self.assertEqual(names["size"], 4)
        first, second, third, fourth = (
            cell["outputs"] for cell in notebook.code_cells(book)
        )
        self.assertEqual((first, third), ([], []))
        self.assertEqual([o["output_type"] for o in second][0], "stream")
        self.assertEqual(second[0]["text"], ["two words\n"])
        self.assertEqual(second[1]["data"], {"text/plain": ["5"]})
        self.assertEqual(second[1]["execution_count"], 2)
        self.assertLen(fourth, 1)
        self.assertStartsWith(images_of(book)[0], b"\x89PNG")
        self.assertEmpty(names["plt"].get_fignums())

    def test_a_cell_imports_from_the_folder_and_an_error_is_not_hidden(self):
        folder = self.create_tempdir()
        folder.create_file("a_neighbour.py", "number = 7")
        book = book_of("from a_neighbour import number\nnumber")
        notebook.execute(book, folder.full_path)
        (cell,) = book["cells"]
        self.assertEqual(cell["outputs"][0]["data"], {"text/plain": ["7"]})
        with self.assertRaisesRegex(ZeroDivisionError, "by zero"):
            notebook.execute(book_of("1 / 0"), folder.full_path)

    def test_the_file_stays_as_it_is_if_nothing_changes(self):
        path = self.create_tempfile().full_path
        notebook.write(notebook.read(PATH), path)
        with open(path, "rb") as copied:
            self.assertEqual(copied.read(), PATH.read_bytes())

    def test_the_checksum_depends_on_the_code_alone(self):
        book = book_of("a = 1", "b = 2")
        first = notebook.checksum(book)
        book["cells"][0]["outputs"] = [1]
        self.assertEqual(notebook.checksum(book), first)
        book["cells"][1]["source"] = ["b = 3"]
        self.assertNotEqual(notebook.checksum(book), first)


if __name__ == "__main__":
    absltest.main()
