"""The plot of scores by step, read back from matplotlib."""

import os
import pathlib
import sys
from unittest import mock

from absl.testing import absltest

from relpos_tf.comparison import plots

SERIES = {
    "checkpoint": [(500, 7.5), (1000, 30.25), (1500, 30.25)],
    "average": [(1500, 29.0)],
}
WORDS = {"title": "dev: BLEU", "score": "BLEU", "caption": "nrefs:1|tok:13a"}


@absltest.skipUnless(plots.is_available(), "matplotlib is not installed.")
class ScoresByStepTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)

    def draw(self, series, name="scores.png"):
        """Draws, and returns the figure."""
        from matplotlib import figure

        made = []

        class Recorded(figure.Figure):
            def __init__(self, *arguments, **settings):
                super().__init__(*arguments, **settings)
                made.append(self)

        with mock.patch.object(figure, "Figure", Recorded):
            plots.scores_by_step(self.folder / name, series, **WORDS)
        return made[0]

    def test_points_are_drawn_and_the_first_highest_is_marked(self):
        (axes,) = self.draw(SERIES).axes
        lines = [line.get_xydata().tolist() for line in axes.lines]
        self.assertEqual(
            lines,
            [
                [[500.0, 7.5], [1000.0, 30.25], [1500.0, 30.25]],
                [[1500.0, 29.0]],
                [[1000.0, 30.25]],
            ],
        )
        words = [text.get_text() for text in axes.texts]
        self.assertEqual(words, ["30.25 at step 1,000 (checkpoint)"])
        labels = [text.get_text() for text in axes.get_legend().get_texts()]
        self.assertEqual(labels, ["checkpoint", "average"])

    def test_figure_has_title_axes_and_caption(self):
        drawing = self.draw(SERIES)
        (axes,) = drawing.axes
        self.assertEqual(axes.get_title("left"), "dev: BLEU")
        self.assertEqual(axes.get_xlabel(), "step")
        self.assertEqual(axes.get_ylabel(), "BLEU")
        self.assertEqual(drawing.get_supxlabel(), "nrefs:1|tok:13a")

    def test_single_series_needs_no_legend(self):
        (axes,) = self.draw({"checkpoint": [(7, 0.0)]}).axes
        self.assertIsNone(axes.get_legend())
        self.assertEqual(axes.texts[0].get_text(), "0.00 at step 7")

    def test_words_stay_in_the_figure(self):
        for step in (500, 1500):
            points = [(s, 9.0 + (s == step)) for s in (500, 1000, 1500)]
            drawing = self.draw({"checkpoint": points, "average": points})
            (axes,) = drawing.axes
            box = axes.texts[0].get_window_extent()
            self.assertGreaterEqual(box.x0, drawing.bbox.x0)
            self.assertLessEqual(box.x1, drawing.bbox.x1)
            self.assertLessEqual(box.y1, drawing.bbox.y1)

    def test_file_has_the_format_of_its_name_and_nothing_is_left(self):
        starts = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}
        self.assertCountEqual(starts, plots.FORMATS)
        for ending, start in starts.items():
            self.draw(SERIES, f"scores.{ending}")
            content = (self.folder / f"scores.{ending}").read_bytes()
            self.assertStartsWith(content, start)
        self.assertLen(os.listdir(self.folder), len(starts))


class ImportTest(absltest.TestCase):
    def test_looking_for_matplotlib_does_not_import_it(self):
        with mock.patch.dict(sys.modules):
            for name in [n for n in sys.modules if n.startswith("matplotlib")]:
                del sys.modules[name]
            plots.is_available()
            self.assertNotIn("matplotlib", sys.modules)


if __name__ == "__main__":
    absltest.main()
