"""The benchmarks run, and measure what they say."""

import contextlib
import io
import pathlib
import sys
from unittest import mock

from absl.testing import absltest

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "benchmarks"
sys.path.insert(0, str(FOLDER))

import position_schemes  # noqa: E402
import summary  # noqa: E402

TINY = ("--hidden=8", "--filter=12", "--heads=2", "--layers=1", "--vocab=17")
TINY += ("--batch=2", "--len=3", "--steps=2", "--warmup=1")


def run_here(module, *flags):
    """Runs a benchmark in this process; returns the lines that it prints."""
    with (
        mock.patch.object(sys, "argv", [module.__file__, *flags]),
        contextlib.redirect_stdout(io.StringIO()) as output,
    ):
        module.main()
    return output.getvalue().splitlines()


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


class RunTest(absltest.TestCase):
    def test_schemes_are_compared_with_sinusoids(self):
        flags = *TINY, "--schemes=rotary"
        *_, rotary, base = run_here(position_schemes, *flags)
        self.assertRegex(rotary, r"^\| rotary +\| [\d.]+ +\| [\d.]+ +\|$")
        self.assertRegex(base, r"^\| sinusoids +\| [\d.]+ +\| 1.0 +\|$")
