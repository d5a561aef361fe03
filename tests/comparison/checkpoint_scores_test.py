"""Translations of checkpoints: found, scored, tabulated."""

import contextlib
import io
import json
import pathlib
from unittest import mock

from absl.testing import absltest

from relpos_tf import errors
from relpos_tf.bin import command
from relpos_tf.comparison import checkpoint_scores
from relpos_tf.comparison import figures

REFERENCE = ("a b c d e", "f g h i j")
HALF = ("a b c d e", "f g h i x")
NONE = ("k l m n o", "p q r s t")


class FilesTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)

    def touch(self, *names):
        for name in names:
            (self.folder / name).touch()

    def found(self, *arguments):
        return [
            (one.step, one.is_average, one.name, one.path.name)
            for one in checkpoint_scores.find_translations(
                self.folder, *arguments
            )
        ]

    def test_translations_are_found_by_step_and_nothing_else(self):
        self.touch("new-test.en-900", "new-test.en-1000", "new-test.en-20")
        self.touch("new-test.en-average-900", "new-test.en.bleu.json")
        self.touch("new-test.en-3.part", "new-test.en-", "-5", "notes-2a")
        (self.folder / "new-test.en-7").mkdir()
        self.assertEqual(
            self.found("", 21),
            [
                (900, False, "new-test.en", "new-test.en-900"),
                (900, True, "new-test.en", "new-test.en-average-900"),
                (1000, False, "new-test.en", "new-test.en-1000"),
            ],
        )

    def test_several_texts_need_a_name(self):
        self.touch("dev-1", "test-1", "test-2")
        with self.assertRaisesRegex(errors.UserError, "dev, test"):
            self.found()
        self.assertEqual([one[0] for one in self.found("test")], [1, 2])

    def test_file_name_is_found_again(self):
        for is_average in (False, True):
            one = checkpoint_scores.translation_of(
                self.folder, "dev", 30, is_average
            )
            one.path.touch()
            self.assertIn(one, checkpoint_scores.find_translations(self.folder))


class ReportTestCase(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)
        self.reference = self.write("reference", *REFERENCE)

    def write(self, name, *lines):
        path = self.folder / name
        path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
        return path

    def report(self, *names, **settings):
        """Returns a report on translations written before, and messages."""
        messages = io.StringIO()
        with contextlib.redirect_stderr(messages):
            command.logger()
            report = checkpoint_scores.CheckpointScores(
                "dev",
                self.reference,
                self.folder / "scores.json",
                self.folder / "scores.png",
                **settings,
            )
            for one in checkpoint_scores.find_translations(self.folder):
                report.add(one)
            report.save()
        return report, messages.getvalue()


class ReportTest(ReportTestCase):
    def test_table_marks_the_best(self):
        self.write("dev-20", *NONE)
        self.write("dev-3", *HALF)
        self.write("dev-average-20", *REFERENCE)
        table = self.report()[0].table().splitlines()
        # See bleu_test for the value.
        half = 100 * (9 / 10 * 7 / 8 * 5 / 6 * 3 / 4) ** 0.25
        self.assertEqual(
            [line.split()[:2] for line in table[:4]],
            [["step", "BLEU"], ["3", f"{half:.2f}"]]
            + [["20", table[2].split()[1]], ["average", "20"]],
        )
        self.assertRegex(table[1], r" 50\.00$")
        self.assertRegex(table[3], "100.00 +100.00 +100.00 +best$")
        self.assertStartsWith(table[4], "BLEU signature: nrefs:1|case:mixed")
        self.assertStartsWith(table[5], "chrF signature: nrefs:1|")

    def test_of_equals_the_first_is_best(self):
        for name in ("dev-7", "dev-10", "dev-average-7"):
            self.write(name, *HALF)
        best = self.report()[0].best()
        self.assertEqual((best.step, best.is_average), (7, False))

    def test_json_has_all_scores(self):
        self.write("dev-3", *HALF)
        self.write("dev-average-20", *REFERENCE)
        self.report()
        found = json.loads((self.folder / "scores.json").read_text())
        self.assertEqual(found["best"], {"step": 20, "is_average": True})
        self.assertEqual(found["name"], "dev")
        self.assertEqual(
            [(s["step"], s["exact_match"]) for s in found["scores"]],
            [(3, 50.0), (20, 100.0)],
        )
        self.assertIn("bleu_signature", found["scores"][0])

    def test_other_number_of_lines_is_refused_with_the_file(self):
        path = self.write("dev-3", "a")
        with self.assertRaisesRegex(
            errors.UserError, f"Expected 2 lines.*: {path} with 1"
        ):
            self.report()

    def test_warnings_come_once(self):
        self.reference = self.write("reference", "a , b , c", "d , e , f")
        for name in ("dev-1", "dev-2"):
            self.write(name, *HALF)
        _, messages = self.report()
        self.assertEqual(messages.count("of 4 commas in the references"), 1)

    def test_plot_has_both_kinds(self):
        self.write("dev-3", *HALF)
        self.write("dev-20", *REFERENCE)
        self.write("dev-average-20", *HALF)
        drawn = []
        with (
            mock.patch.object(figures, "is_available", lambda: True),
            mock.patch.object(
                figures, "scores_by_step", lambda *a, **k: drawn.append((a, k))
            ),
        ):
            report, _ = self.report()
        ((path, series), words) = drawn[0]
        self.assertEqual([path], report.paths()[1:])
        half = 100 * (9 / 10 * 7 / 8 * 5 / 6 * 3 / 4) ** 0.25
        self.assertEqual(
            {
                name: [(step, round(score, 6)) for step, score in points]
                for name, points in series.items()
            },
            {
                "checkpoint": [(3, round(half, 6)), (20, 100.0)],
                "average": [(20, round(half, 6))],
            },
        )
        self.assertStartsWith(words["caption"], "sacreBLEU nrefs:1|")


if __name__ == "__main__":
    absltest.main()
