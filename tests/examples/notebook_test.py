"""The maker of notebooks runs their cells and stores their outputs."""

import base64

from absl.testing import absltest

from tools import notebook


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
