"""The figures of `make headline` are judged rightly."""

import json
import pathlib
import sys

from absl.testing import parameterized

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "benchmarks"
sys.path.insert(0, str(FOLDER))

import headline  # noqa: E402


class HeadlineTest(parameterized.TestCase):
    @parameterized.parameters(
        ({}, 0),
        ({"bleu": headline.BAND["bleu"][0] - 1e-3}, 1),
        ({"loss": headline.BAND["loss"][1] + 1e-3}, 1),
        ({"loss": float("nan")}, 1),
        ({"step": headline.STEP - 1}, 1),
    )
    def test_scores_outside_of_the_band_fail(self, change, code):
        event = {name: sum(band) / 2 for name, band in headline.BAND.items()}
        event |= {"step": headline.STEP, "split": "dev", **change}
        file = self.create_tempfile("metrics.jsonl", json.dumps(event) + "\n")
        folder = pathlib.Path(file.full_path).parent
        self.assertEqual(headline.main(folder), code)
