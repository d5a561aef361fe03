"""Translations of checkpoints: found, awaited, scored, tabulated."""

import contextlib
import importlib.util
import io
import json
import pathlib
import time
from unittest import mock

from absl.testing import absltest

from relpos_tf import errors
from relpos_tf.bin import command
from relpos_tf.comparison import checkpoint_scores
from relpos_tf.comparison import plots

REFERENCE = ("a b c d e", "f g h i j")
HALF = ("a b c d e", "f g h i x")
NONE = ("k l m n o", "p q r s t")


class EarlyCheckTest(absltest.TestCase):
    """Errors come before the translation, which takes long."""

    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)

    def report(self, content, name="scores.json"):
        reference = self.folder / "reference"
        reference.write_text(content)
        return checkpoint_scores.CheckpointScores(
            "dev", reference, self.folder / name, self.folder / "plot.png"
        )

    def test_files_that_cannot_be_written_are_refused(self):
        (self.folder / "folder").mkdir()
        with self.assertRaisesRegex(errors.UserError, "a folder"):
            self.report("a\n", "folder")
        with self.assertRaisesRegex(errors.UserError, "not a directory"):
            self.report("a\n", "reference/scores.json")
        self.report("a\n")

    def test_a_reference_without_text_is_refused(self):
        for content in ("", "\n \n"):
            with self.assertRaisesRegex(errors.UserError, "without any text"):
                self.report(content)


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

    def test_no_folder_has_no_translations(self):
        self.folder /= "missing"
        self.assertEqual(self.found(), [])

    def test_file_name_is_found_again(self):
        for is_average in (False, True):
            one = checkpoint_scores.translation_of(
                self.folder, "dev", 30, is_average
            )
            one.path.touch()
            self.assertIn(one, checkpoint_scores.find_translations(self.folder))


class PollNewTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.now = 1000.0
        self.slept = []
        self.enter_context(
            mock.patch.object(time, "monotonic", lambda: self.now)
        )
        self.enter_context(mock.patch.object(time, "sleep", self.sleep))

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds

    def test_each_result_comes_once_unless_it_disappears(self):
        there = [[1, 3, 4], [2, 3, 5], [1, 2, 3, 5], [5], []]
        found = checkpoint_scores.poll_new(lambda: there.pop(0))
        self.assertEqual(list(found), [1, 2, 3, 5])
        self.assertEqual(self.slept, [])

    def test_each_new_result_restarts_the_wait(self):
        came = {1: 1000.0, 2: 1050.0, 3: 1100.0, 4: 1161.0}

        def find():
            return [n for n, moment in came.items() if moment <= self.now]

        found = list(checkpoint_scores.poll_new(find, wait_minutes=1))
        self.assertEqual(found, [1, 2, 3])
        self.assertEqual(self.now, 1160.0)

    def test_first_result_is_awaited(self):
        def find():
            return [1] if self.now >= 1025.0 else []

        found = list(checkpoint_scores.poll_new(find, wait_minutes=0.5))
        self.assertEqual(found, [1])


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
        self.assertEndsWith(table[1], "  50.00 %")
        self.assertEndsWith(table[3], "100.00  100.00     100.00 %  best")
        self.assertLen({row.index("%") for row in table[1:4]}, 1)
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

    def test_missing_matplotlib_is_reported_once(self):
        self.write("dev-3", *HALF)
        with mock.patch.object(plots, "is_available", lambda: False):
            report, messages = self.report()
            report.save()
            self.assertEqual(report.paths(), [self.folder / "scores.json"])
        self.assertIn("No plot, because matplotlib is not", messages)
        self.assertIn("pip install 'relpos_tf[plots]'\n", messages)
        self.assertFalse((self.folder / "scores.png").exists())

    def test_plot_has_both_kinds(self):
        self.write("dev-3", *HALF)
        self.write("dev-20", *REFERENCE)
        self.write("dev-average-20", *HALF)
        drawn = []
        with (
            mock.patch.object(plots, "is_available", lambda: True),
            mock.patch.object(
                plots, "scores_by_step", lambda *a, **k: drawn.append((a, k))
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

    def test_missing_tensorboard_is_reported(self):
        with (
            mock.patch("importlib.util.find_spec", lambda name: None),
            self.assertRaisesRegex(errors.UserError, r"relpos_tf\[tensorb"),
        ):
            self.report(event_dir=self.folder / "events")


@absltest.skipUnless(
    importlib.util.find_spec("tensorboard"),
    "tensorboard is not installed.",
)
class EventsTest(ReportTestCase):
    def read(self, folder):
        """Returns {tag: [(step, value)]} of all that lies in a folder."""
        import tensorflow as tf

        def written(path):
            # events.out.tfevents.SECONDS.HOST.PROCESS.COUNT.v2: of two files
            # of one second, the 10th comes after the 9th.
            return path.name.split(".")[3], int(path.name.split(".")[-2])

        found = {}
        for path in sorted(folder.glob("events.*"), key=written):
            for record in tf.data.TFRecordDataset(str(path)):
                event = tf.compat.v1.Event.FromString(record.numpy())
                for value in event.summary.value:
                    number = float(tf.make_ndarray(value.tensor))
                    found.setdefault(value.tag, []).append((event.step, number))
        return found

    def test_events_are_written_once_each(self):
        events = self.folder / "events"
        self.write("dev-3", *HALF)
        self.report(event_dir=events)
        self.write("dev-20", *REFERENCE)
        self.write("dev-average-20", *HALF)
        self.report(event_dir=events)
        found = self.read(events)
        self.assertEqual(found["dev/exact_match"], [(3, 50.0), (20, 100.0)])
        self.assertEqual(found["dev-average/exact_match"], [(20, 50.0)])
        self.assertLen(found["dev/bleu"], 2)
        self.assertLen(found["dev/chrf"], 2)

    def test_damaged_record_of_the_last_steps_is_replaced(self):
        events = self.folder / "events"
        events.mkdir()
        (events / "last_evaluated_steps.json").write_text('{"test": "x"}')
        self.write("dev-3", *HALF)
        self.report(event_dir=events)
        self.assertLen(self.read(events)["dev/bleu"], 1)


if __name__ == "__main__":
    absltest.main()
