"""The figures, read back from matplotlib."""

from unittest import mock
from xml.etree import ElementTree

from absl.testing import absltest

from relpos_tf.comparison import figures
from tests.comparison import content_test

HOSTILE = "_<b>&$\\frac$\x00\n\ud800 漢字 a name that goes on and on"


def drawn():
    """Returns a patch whose mock is called with every figure."""
    from matplotlib import figure  # may be missing

    save = figure.Figure.savefig
    return mock.patch.object(
        figure.Figure, "savefig", autospec=True, side_effect=save
    )


def lines_of(axes):
    """Returns the points of the lines that are named, by name."""
    return {
        line.get_label(): line.get_xydata().tolist()
        for line in axes.lines
        if not line.get_label().startswith("_")
    }


@absltest.skipUnless(figures.is_available(), "matplotlib is not installed.")
class FiguresTest(content_test.ContentTestCase):
    def curve(self, report):
        with drawn() as made:
            picture = figures.learning_curve(report, "dev", 2, "dev BLEU")
        return picture, made.call_args[0][0].axes[0]

    def test_learning_curve_is_the_mean_of_the_seeds(self):
        _, axes = self.curve(self.sample())
        self.assertEqual(
            lines_of(axes),
            {"rel": [[2, 1.25], [5, 12.5]], "abs": [[2, 0.5], [5, 5.0]]},
        )

    def test_no_axis_of_a_measure_goes_below_zero(self):
        report = self.sample()
        for run in report["runs"]:
            run["learning_curve"]["dev"] = [[2, 2.0, 0.0], [5, 2.0, 0.0]]
            run["bleu"] = 0.0
        for row in report["summary"]:
            row |= {"bleu_mean": 0.0, "bleu_spread": 0.0}
        _, axes = self.curve(report)
        self.assertEqual(axes.get_ylim()[0], 0.0)
        with drawn() as made:
            figures.scores(report)
        (axes,) = made.call_args[0][0].axes
        self.assertEqual(axes.get_xlim()[0], 0.0)

    def test_mean_is_over_steps_that_all_seeds_have(self):
        report = self.sample()
        report["runs"][0]["learning_curve"]["dev"] = [[5, 2.0, 7.0]]
        for row in report["runs"][3]["learning_curve"]["dev"]:
            row[2] = None
        _, axes = self.curve(report)
        self.assertEqual(lines_of(axes)["rel"], [[5, 11.0]])
        for run in report["runs"]:
            run["learning_curve"] = {"train": [], "dev": [[2, 2.0, None]]}
        for split in ("train", "dev"):
            self.assertIsNone(figures.learning_curve(report, split, 2, "BLEU"))

    def test_scores_have_mean_and_deviation_and_numbers_of_lines(self):
        report = self.sample()
        report["summary"][1]["bleu_by_length"][0]["bleu"] = None
        with drawn() as made:
            figures.scores_by_length(report)
            figures.scores(report)
        by_length, (axes,) = (x[0][0].axes for x in made.call_args_list)
        means = [x["bleu"] for x in report["summary"][0]["bleu_by_length"]]
        found = lines_of(by_length[0])
        self.assertEqual(found["rel"], [[0, means[0]], [1, means[1]]])
        names = [x.get_text() for x in by_length[0].get_xticklabels()]
        self.assertEqual(names, ["≤ 3\n(2)", "more\n(2)"])
        bars = [
            segment.tolist()
            for collection in axes.collections
            for segment in collection.get_segments()
        ]
        rel = report["summary"][0]
        mean, spread = rel["bleu_mean"], rel["bleu_spread"]
        self.assertEqual(bars[0], [[mean - spread, 0], [mean + spread, 0]])
        names = [label.get_text() for label in axes.get_yticklabels()]
        self.assertEqual(names, ["rel  94.60", "abs  29.06"])

    def test_any_name_is_shown_as_it_is(self):
        report = self.sample() | {"labels": ["rel", HOSTILE]}
        for row in (*report["runs"][2:], report["summary"][1]):
            row["label"] = HOSTILE
        picture, axes = self.curve(report)
        ElementTree.fromstring(picture.svg)
        names = [text.get_text() for text in axes.figure.legends[0].texts]
        self.assertStartsWith(names[1], " _<b>&$\\frac$  ? 漢字 a")
