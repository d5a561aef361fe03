"""The notebook on attention runs, with a small model, from load to pictures."""

import json

import matplotlib
import numpy as np
from absl.testing import absltest

from tests import examples
from tests import tiny_run

matplotlib.use("agg")  # draws without a screen
from matplotlib import pyplot


def run_cells(path, changes):
    """Runs a notebook; returns its names.

    Args:
        path: The notebook.
        changes: dict. Names that get other values after the first cell.
    """
    cells = json.loads(path.read_text("utf-8"))["cells"]
    codes = ["".join(c["source"]) for c in cells if c["cell_type"] == "code"]
    names = {}
    for number, code in enumerate(codes):
        exec(compile(code, f"cell {number}", "exec"), names)
        if number == 0:
            names |= changes
    return names


class AttentionNotebookTest(absltest.TestCase):
    def test_cells_run_and_draw_the_weights(self):
        self.addCleanup(pyplot.close, "all")
        sizes = {
            "RUN": str(tiny_run.path(2)),
            "LINES": list(tiny_run.TEXT[:5:2]),
        }
        names = run_cells(examples.FOLDER / "attention.ipynb", sizes)
        self.assertLen(pyplot.get_fignums(), 5)
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
            names["by_distance"]["encoder"][0, place],
            np.mean(values),
            1e-5,
            atol=1e-6,
        )
