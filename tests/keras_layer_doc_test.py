"""The code of docs/keras_layer.md runs, and gives what the page says."""

import pathlib
import re

import numpy as np
from absl.testing import absltest

PAGE = pathlib.Path(__file__).resolve().parents[1] / "docs" / "keras_layer.md"


class KerasLayerDocTest(absltest.TestCase):
    def test_code_runs_one_block_after_another(self):
        names = {}
        text = PAGE.read_text(encoding="utf-8")
        blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        for block in blocks:
            exec(compile(block, PAGE.name, "exec"), names)
        ids = np.random.default_rng(1).integers(1, 1000, (2, 5))
        model = names["model"]
        np.testing.assert_allclose(
            model(np.pad(ids, ((0, 0), (0, 3)))), model(ids), atol=1e-5
        )
        x = names["x"]
        self.assertGreater(np.abs(names["rows"][0]).max(), 0.01)
        for result, expected in (
            (names["new"](x, x), names["old"](x, x)),
            (
                np.concatenate(names["rows"], 1),
                names["layer"](x, use_causal_mask=True),
            ),
        ):
            np.testing.assert_allclose(result, expected, 1e-5, 1e-6)
