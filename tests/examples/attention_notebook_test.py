"""The notebook on attention runs, with a small model, from load to pictures."""

import json
import os
from unittest import mock

import matplotlib
import numpy as np
from absl.testing import absltest

from tests import examples
from tests import tiny_run

PATH = examples.FOLDER / "attention.ipynb"


class AttentionNotebookTest(absltest.TestCase):
    def test_cells_run_and_draw_the_weights(self):
        from matplotlib import pyplot

        matplotlib.use("Agg")
        cells = [
            cell
            for cell in json.loads(PATH.read_text("utf-8"))["cells"]
            if cell["cell_type"] == "code"
        ]
        names, shown = {}, []
        with (
            mock.patch.object(pyplot, "show", lambda: shown.append(1)),
            mock.patch.dict(os.environ),
        ):
            for cell in cells:
                exec("".join(cell["source"]), names)
                if "parameters" in cell["metadata"].get("tags", ()):
                    names["RUN"] = str(tiny_run.path(2))
                    names["LINES"] = list(tiny_run.TEXT[:5:2])
        self.assertLen(shown, 5)
        self.assertLen(pyplot.get_fignums(), 5)
        pyplot.close("all")
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
