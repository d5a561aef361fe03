"""The figures of a report, read back from matplotlib."""

import contextlib
import io
import statistics
import warnings
from unittest import mock
from xml.etree import ElementTree

from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf.comparison import plots
from relpos_tf.comparison.report import attention_figures
from relpos_tf.comparison.report import figures
from tests import report_sample

# A page of 400 pixels has room for a figure of so many.
NARROWEST = 350
HOSTILE = "_<b>&$\\frac$\x00\n\ud800 漢字 a name that goes on and on"


@contextlib.contextmanager
def drawn():
    """Yields a list that gets every figure made."""
    made = []

    def new_figure(height):
        made.append(original(height))
        return made[-1]

    original = plots.new_figure
    with mock.patch.object(plots, "new_figure", new_figure):
        yield made


def lines_of(axes):
    """Returns the points of the lines that are named, by name."""
    return {
        line.get_label(): line.get_xydata().tolist()
        for line in axes.lines
        if not line.get_label().startswith("_")
    }


def renamed(name):
    """Returns a report whose second label has another name."""
    report = report_sample.report(labels=["relative", name])
    for run in report["runs"][2:]:
        run["label"] = name
    report["attention"][name] = report["attention"].pop("absolute")
    return report


def all_pictures(report):
    """Draws everything that a report has."""
    yield figures.learning_curve(report, "dev", 2, "dev BLEU")
    yield figures.scores(report)
    yield figures.scores_by_length(report)
    for label, described in report["attention"].items():
        yield attention_figures.by_distance(described, label, 0.9)
        if described["tables"]:
            yield attention_figures.table_norms(described, label)
        for stack in ("encoder", "decoder", "cross"):
            yield attention_figures.maps(described, label, stack)


@absltest.skipUnless(plots.is_available(), "matplotlib is not installed.")
class FiguresTest(parameterized.TestCase):
    def test_learning_curve_is_the_mean_of_the_seeds(self):
        report = report_sample.report()
        with drawn() as made:
            picture = figures.learning_curve(report, "dev", 2, "dev BLEU")
        (axes,) = made[0].axes
        self.assertEqual(
            lines_of(axes),
            {
                "relative": [[100, 1.25], [200, 12.5]],
                "absolute": [[100, 0.5], [200, 5.0]],
            },
        )
        points = [line.get_xydata().tolist() for line in axes.lines]
        self.assertIn([[100, 1.0], [200, 10.0]], points)  # a seed
        self.assertLen(points, 6)
        self.assertIn("relative 12.50 at step 200", picture.alternative)

    def test_learning_curve_has_a_band_of_one_standard_deviation(self):
        with drawn() as made:
            figures.learning_curve(report_sample.report(), "dev", 2, "dev BLEU")
        (axes,) = made[0].axes
        self.assertLen(axes.collections, 2)
        # Seeds of 1 and 1.5, of 10 and 15.
        points = axes.collections[0].get_paths()[0].vertices.tolist()
        for step, values in ((100, [1.0, 1.5]), (200, [10.0, 15.0])):
            mean, spread = statistics.fmean(values), statistics.stdev(values)
            found = sorted({y for x, y in points if x == step})
            self.assertAlmostEqual(found[0], mean - spread)
            self.assertAlmostEqual(found[-1], mean + spread)

    def test_one_seed_has_no_band(self):
        report = report_sample.report()
        del report["runs"][1]
        with drawn() as made:
            figures.learning_curve(report, "dev", 2, "dev BLEU")
        self.assertLen(made[0].axes[0].collections, 1)

    def test_mean_is_over_steps_that_all_seeds_have(self):
        report = report_sample.report()
        report["runs"][0]["learning_curve"]["dev"] = [[200, 2.0, 7.0]]
        for row in report["runs"][3]["learning_curve"]["dev"]:
            row[2] = None
        with drawn() as made:
            figures.learning_curve(report, "dev", 2, "dev BLEU")
        self.assertEqual(
            lines_of(made[0].axes[0]),
            {"relative": [[200, 11.0]], "absolute": [[100, 0.5], [200, 5.0]]},
        )

    def test_scores_have_mean_and_standard_deviation(self):
        report = report_sample.report()
        with drawn() as made:
            figures.scores(report)
        (axes,) = made[0].axes
        bars = [
            segment.tolist()
            for collection in axes.collections
            for segment in collection.get_segments()
        ]
        spread = statistics.stdev([20.0, 22.0])
        self.assertEqual(bars, [[[21 - spread, 0], [21 + spread, 0]]])
        words = [text.get_text() for text in axes.texts]
        self.assertEqual(words, ["21.00", "19.00"])
        names = [label.get_text() for label in axes.get_yticklabels()]
        self.assertEqual(names, ["relative", "absolute"])

    def test_scores_by_length_name_the_lines(self):
        report = report_sample.report()
        with drawn() as made:
            figures.scores_by_length(report)
        (axes,) = made[0].axes
        self.assertEqual(
            lines_of(axes),
            {
                "relative": [[0, 23.0], [1, 20.0]],
                "absolute": [[0, 21.0], [1, 18.0]],
            },
        )
        names = [label.get_text() for label in axes.get_xticklabels()]
        self.assertEqual(names, ["up to 10\n(30)", "over 10\n(1,070)"])

    def test_many_learning_curves_have_axes_of_their_own(self):
        report = report_sample.large_report()
        with drawn() as made:
            picture = figures.learning_curve(report, "dev", 2, "dev BLEU")
        shown = [axes for axes in made[0].axes if axes.axison]
        self.assertLen(shown, 9)  # A file has no training.
        for number, axes in enumerate(shown):
            value = 1.0 + number / 10
            self.assertEqual(axes.get_title("left"), f"label-{number}")
            self.assertEqual(
                lines_of(axes),
                {f"label-{number}": [[100, value], [200, 10 * value]]},
            )
            self.assertLen(axes.lines, 9)  # all others, without names
            dashed = [x for x in axes.lines if x.get_linestyle() == "--"]
            self.assertLen(dashed, int(number > 0))
            for line in dashed:  # the first label
                self.assertEqual(line.get_ydata().tolist(), [1.0, 10.0])
        self.assertIn("dashed: the first label", picture.caption)

    def test_curve_of_one_evaluation_is_a_point(self):
        report = report_sample.large_report()
        for run in report["runs"]:
            del run["learning_curve"]["dev"][1:]
        with drawn() as made:
            figures.learning_curve(report, "dev", 2, "dev BLEU")
        for axes in made[0].axes[:9]:
            (own,) = (x for x in axes.lines if x.get_label().startswith("lab"))
            self.assertEqual(own.get_marker(), "o")

    def test_many_scores_by_length_have_axes_of_their_own(self):
        report = report_sample.large_report()
        with drawn() as made:
            figures.scores_by_length(report)
        shown = [axes for axes in made[0].axes if axes.axison]
        self.assertLen(shown, 10)
        self.assertEqual(
            lines_of(shown[9]), {"label-9": [[0, 31.0], [1, 28.0]]}
        )
        names = [label.get_text() for label in shown[9].get_xticklabels()]
        self.assertEqual(names, ["≤10", ">10"])

    def test_many_scores_stand_from_the_highest_on(self):
        with drawn() as made:
            figures.scores(report_sample.large_report())
        names = [t.get_text() for t in made[0].axes[0].get_yticklabels()]
        self.assertEqual(names, [f"label-{n}" for n in range(9, -1, -1)])

    def test_missing_scores_have_no_figure(self):
        report = report_sample.report(attention={})
        for run in report["runs"]:
            run["learning_curve"] = {"train": [], "dev": [[100, 2.0, None]]}
            for bucket in run["bleu_by_length"]:
                bucket["bleu"] = None
        for split in ("train", "dev"):
            self.assertIsNone(figures.learning_curve(report, split, 2, "BLEU"))
        self.assertIsNone(figures.scores_by_length(report))

    def test_any_name_is_shown_inside_and_large_enough(self):
        made = self.check_texts(renamed(HOSTILE))
        names = [text.get_text() for text in made[0].legends[0].get_texts()]
        self.assertEqual(names[0], "relative")
        self.assertStartsWith(names[1], " _<b>&$\\frac$  ? 漢字 a")

    def test_names_of_many_labels_are_shown_inside_and_large_enough(self):
        report = report_sample.large_report()
        report["labels"][3] = HOSTILE
        for run in report["runs"][6:8]:
            run["label"] = HOSTILE
        report["attention"] = {}
        self.check_texts(report)

    def check_texts(self, report):
        """Checks the texts of all figures of a report, and returns these."""
        from matplotlib.backends import backend_svg

        with drawn() as made:
            for picture in all_pictures(report):
                ElementTree.fromstring(picture.svg)
        points_wide = 72 * plots.PAGE_WIDTH
        for figure in made:
            for text in figure.findobj(lambda o: hasattr(o, "get_fontsize")):
                if not text.get_text().strip() or not text.get_visible():
                    continue
                size = text.get_fontsize() * NARROWEST / points_wide
                self.assertGreaterEqual(size, 9, text.get_text())
            # As SVG measures text; on a grid of pixels it is wider.
            figure.set_dpi(72)
            width, height = figure.bbox.size
            renderer = backend_svg.RendererSVG(width, height, io.StringIO())
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Glyph .* missing from")
                box = figure.get_tightbbox(renderer)  # of all, in inches
            self.assertGreaterEqual(min(box.x0, box.y0), 0)
            self.assertLessEqual(box.x1 * 72, width)
            self.assertLessEqual(box.y1 * 72, height)
        return made

    def test_same_report_gives_the_same_figure(self):
        report = report_sample.report()
        self.assertEqual(figures.scores(report), figures.scores(report))


@absltest.skipUnless(plots.is_available(), "matplotlib is not installed.")
class AttentionFiguresTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.described = report_sample.report()["attention"]["relative"]

    def test_rows_are_heads_and_columns_distances(self):
        layer = self.described["encoder"]["by_distance"][0]
        layer[1] = [0.7, 0.2, 0.1]
        with drawn() as made:
            picture = attention_figures.by_distance(self.described, "R", 0.9)
        image = made[0].axes[0].images[0]
        found = image.get_array().filled(-1).tolist()
        self.assertEqual(found, [[0.1, 0.2, -1], [0.7, 0.2, 0.1]])
        self.assertEqual(image.get_extent(), [-1.5, 1.5, 1.5, -0.5])
        self.assertEqual(image.norm.vmax, 0.9)
        ticks = made[0].axes[-1].get_xticks().tolist()
        self.assertEqual(ticks, [0, 0.05, 0.2, 0.4, 0.7])
        names = [t.get_text() for t in made[0].axes[0].get_yticklabels()]
        self.assertEqual(names, ["1.1", "1.2"])
        self.assertIn("encoder layer 1: 0, -1", picture.alternative)
        self.assertIn("1,200 sentences", picture.caption)

    def test_highest_mean_is_of_both_stacks(self):
        self.assertEqual(attention_figures.highest_mean(self.described), 0.9)

    def test_key_of_the_decoder_is_the_target_before(self):
        with drawn() as made:
            attention_figures.maps(self.described, "R", "decoder")
        axes = made[0].axes[0]
        keys, rows = (
            [t.get_text() for t in labels]
            for labels in (
                made[0].axes[0].get_xticklabels(),
                axes.get_yticklabels(),
            )
        )
        self.assertEqual(keys, ["(start)", "▁Hund"])
        self.assertEqual(rows, ["▁Hund", "</s>"])
        self.assertEqual(
            axes.images[0].get_array().tolist(), [[1.0, 0.0], [0.5, 0.5]]
        )

    def test_big_models_and_long_sentences_are_cut(self):
        row = [0.0] * 39 + [1.0]
        self.described["source_pieces"] = ["a"] * 40
        self.described["encoder"]["weights"] = [[[row] * 40] * 4] * 6
        with drawn() as made:
            picture = attention_figures.maps(self.described, "R", "encoder")
        titles = [axes.get_title("left") for axes in made[0].axes]
        self.assertEqual(
            titles,
            [f"layer {n}, head {h}" for n in (1, 6) for h in (1, 2, 3, 4)],
        )
        self.assertEqual(made[0].axes[0].images[0].get_array().shape, (14, 14))
        self.assertIn("first and the last layer", picture.caption)
        self.assertIn("first 14 pieces", picture.caption)

    def test_long_pieces_leave_room_for_the_map(self):
        self.described["source_pieces"] = ["▁Donaudampfschiff", "</s>"]
        with drawn() as made:
            attention_figures.maps(self.described, "R", "encoder")
        (figure,) = made
        box = figure.axes[0].get_position()
        inches = box.height * figure.get_size_inches()[1]
        self.assertGreater(inches, 0.25)  # two rows of text

    def test_tables_are_drawn_as_far_as_they_are_used(self):
        self.described["tables"][0]["norms"] = [
            [1.0, 3.0, 2.0],
            [3.0, 3.0, 4.0],
        ]
        with drawn() as made:
            attention_figures.table_norms(self.described, "R")
        found = {
            axes.get_title("left"): lines_of(axes) for axes in made[0].axes
        }
        self.assertEqual(
            found["encoder, keys"],
            {"layer 1": [[-1, 2.0], [0, 3.0], [1, 3.0]]},
        )
        self.assertEqual(
            found["decoder, values"], {"layer 1": [[-1, 1.0], [0, 3.0]]}
        )

    def test_one_table_for_all_distances_is_a_point(self):
        self.described["tables"] = [
            {"stack": "encoder", "layer": 0, "kind": "keys", "norms": [[2.5]]}
        ]
        with drawn() as made:
            attention_figures.table_norms(self.described, "R")
        lines = lines_of(made[0].axes[0])
        self.assertEqual(lines, {"layer 1": [[0, 2.5]]})

    def test_model_without_tables_has_no_figure_of_norms(self):
        described = report_sample.report()["attention"]["absolute"]
        self.assertIsNone(attention_figures.table_norms(described, "R"))


if __name__ == "__main__":
    absltest.main()
