"""The notebook on attention runs, with a small model, from load to pictures."""

import os
from unittest import mock

import numpy as np
from absl.testing import absltest

from tests import examples
from tests import tiny_run
from tests.examples import notebook_test
from tools import notebook


class AttentionNotebookTest(absltest.TestCase):
    def test_cells_run_and_draw_the_weights(self):
        book = notebook.read(examples.FOLDER / "attention.ipynb")
        sizes = {
            "RUN": str(tiny_run.path(2)),
            "LINES": list(tiny_run.TEXT[:5:2]),
        }
        with mock.patch.dict(os.environ):
            names = notebook.execute(book, examples.FOLDER, sizes)
        self.assertLen(notebook_test.images_of(book), 5)
        source, target = names["source"], names["target"]
        sizes = {
            "encoder": (len(source), len(source)),
            "decoder": (len(target), len(target)),
            "cross": (len(target), len(source)),
        }
        for part, (queries, keys) in sizes.items():
            (first, *_) = weights = names["attention"](
                names["LINES"][0], names["translations"][0]
            )[2][part]
            self.assertLen(weights, tiny_run.HPARAMS.num_hidden_layers)
            self.assertEqual(
                first.shape, (tiny_run.HPARAMS.num_heads, queries, keys)
            )
            np.testing.assert_allclose(first.sum(axis=-1), 1, atol=1e-5)
        # A mean by hand: the weights of the key before, of the first head.
        maps = [one["encoder"][0][0] for one in names["found"]]
        values = [m[i, i - 1] for m in maps for i in range(1, len(m))]
        place = names["DISTANCES"].index(-1)
        np.testing.assert_allclose(
            names["by_distance"]["encoder"][0, place], np.mean(values), 1e-5
        )
        # The decoder sees nothing to the right.
        self.assertEqual(names["by_distance"]["decoder"][0, -1], 0)
        self.assertLen(names["norms"], 2 * 2 * 2)
