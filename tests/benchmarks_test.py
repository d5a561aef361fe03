"""The table of `make bench` says which figures are reached."""

import pathlib
import sys

from absl.testing import absltest

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "benchmarks"
sys.path.insert(0, str(FOLDER))

import summary  # noqa: E402


class SummaryTest(absltest.TestCase):
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
