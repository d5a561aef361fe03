"""Scores of lines from files, compared as BLEU is."""

import statistics

from relpos_tf import errors
from relpos_tf.comparison import report as report_lib
from relpos_tf.comparison import segment_scores
from tests.comparison import content_test


class SegmentScoresTest(content_test.ContentTestCase):
    def items(self, **lines):
        """Writes a file for each model; returns the flag's values."""
        keys = {"rel_1": "rel/1", "rel_2": "rel/2", "x": "x"}
        keys |= {"abs_1": "abs/1", "abs_2": "abs/2"}
        self.number = getattr(self, "number", 0) + 1  # of a folder
        return [
            f"COMET:{keys[name]}="
            f"{self.write(f'{name}.{self.number}', *map(str, own))}"
            for name, own in lines.items()
        ]

    def read(self, *items):
        models = [one.run for one in self.four()]
        models.append(self.file("x", test=content_test.REFERENCES).run)
        return segment_scores.read(items, models, 4)

    def test_means_differences_and_jackknife_are_those_of_the_lines(self):
        values = {
            "rel_1": [0.5, 0.7, 0.9, 0.3],
            "rel_2": [0.6, 0.8, 0.9, 0.5],
            "abs_1": [0.4, 0.5, 0.6, 0.5],
            "abs_2": [0.1, 0.5, 0.6, 0.8],
        }
        report = self.two(segments=self.read(*self.items(**values)))
        (pair,) = report["pairs_by_measure"]["COMET"]
        means = {name: statistics.fmean(own) for name, own in values.items()}
        self.assertAlmostEqual(pair["score_a"], 0.65)
        self.assertAlmostEqual(pair["score_b"], 0.5)
        for number, found in zip((1, 2), pair["by_seed"], strict=True):
            expected = means[f"rel_{number}"] - means[f"abs_{number}"]
            self.assertAlmostEqual(found, expected)
        # Over sentences alone: the normal interval of the mean difference.
        by_line = [
            (a + b - c - d) / 2
            for a, b, c, d in zip(*values.values(), strict=True)
        ]
        half = 1.959964 * statistics.stdev(by_line) / 2
        self.assertAlmostEqual(pair["sentences_low"], 0.15 - half, places=5)
        self.assertAlmostEqual(report["summary"][0]["segment_COMET_mean"], 0.65)
        self.assertIn("COMET", [x["name"] for x in report["measures"]])
        _, row = report_lib.differences([pair])
        self.assertEqual(
            row[:6], ["rel", "abs", "COMET", "0.6500", "0.5000", "+0.1500"]
        )

    def test_labels_without_files_are_not_compared(self):
        files = self.items(rel_1=[1, 2, 3, 4], rel_2=[1, 2, 3, 4])
        report = self.two(segments=self.read(*files))
        self.assertEmpty(report["pairs_by_measure"]["COMET"])
        rows = {row["label"]: row for row in report["summary"]}
        self.assertIsNone(rows["abs"]["segment_COMET_mean"])

    def test_metrics_keep_their_scores_and_names(self):
        (one,), (other,) = self.items(x=[1] * 4), self.items(x=[5] * 4)
        own = self.read(one, other.replace("COMET", "comet-2.1"))
        file = self.file("x", test=content_test.REFERENCES)
        report = self.make(self.result("rel", 1), file, segments=own)
        self.assertIn("comet-2.1: mean of", report_lib.page(report))
        row = report["summary"][-1]
        found = [row[f"{measure.field}_mean"] for measure in own]
        self.assertEqual(found, [1, 5])

    def test_what_does_not_fit_is_refused(self):
        good = self.items(rel_1=[1, 2, 3, 4], rel_2=[1, 2, 3, 4], x=[1] * 4)
        self.read(*good)
        path = good[0].partition("=")[2]
        for items, words in (
            ([f"COMET:rel/3={path}"], "rel/1, rel/2, abs/1, abs/2, x"),
            ([f"BLEU:rel/1={path}"], "a name other than BLEU"),
            ([f"rel/1={path}"], "NAME:LABEL/SEED=FILE"),
            (good[:1], "COMET for rel seed 2"),
            ([*good, good[0]], "each once, with .*Received: COMET:rel/1="),
            (self.items(x=[1, 2, 3]), "Expected 4 lines"),
            (self.items(x=[1, 2, "1_0", 3]), "line 3"),
            (self.items(x=[1, "nan", 2, 3]), "line 2"),
            (self.items(x=[1, 2, 3, "-1e308"]), "below 1e.30.*line 4"),
        ):
            with self.assertRaisesRegex(errors.UserError, words):
                self.read(*items)

    def test_a_key_of_two_models_is_refused(self):
        system = self.file("rel/1", test=content_test.REFERENCES).run
        models = self.result("rel", 1).run, system
        with self.assertRaisesRegex(errors.UserError, "one of rel/1, rel/1"):
            segment_scores.read(self.items(rel_1=[1, 2, 3, 4]), models, 4)
