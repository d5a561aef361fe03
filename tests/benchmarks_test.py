"""The figures of `make bench` and `make headline` are judged rightly."""

import json
import pathlib
import sys

from absl.testing import parameterized

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "benchmarks"
sys.path.insert(0, str(FOLDER))

import headline  # noqa: E402
import summary  # noqa: E402


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


class SummaryTest(parameterized.TestCase):
    def test_a_figure_is_reached_up_to_its_bound(self):
        figures = summary.Summary(args=None)
        for measured, bound, expected in (
            (1.02, {"at_most": 1.02}, "reached"),
            (1.021, {"at_most": 1.02}, "not reached"),
            (1.5, {"at_least": 1.5}, "reached"),
            (1.49, {"at_least": 1.5}, "not reached"),
            (7.0, {}, "-"),
            (None, {"at_most": 2}, "-"),
        ):
            figures.add("a", measured, **bound)
            self.assertEqual(figures.rows[-1][-1], expected)
        self.assertEqual(figures.table().count("| not reached |"), 2)
