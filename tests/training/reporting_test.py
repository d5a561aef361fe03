"""Tests of progress lines, with a clock that the test moves."""

import os
import pathlib
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import absltest
from absl.testing import parameterized
from tensorflow.core.util import event_pb2

from relpos_tf.models import run_dir
from relpos_tf.training import reporting
from tests import folders


def made(loss=6.0, target_tokens=3.0, source_tokens=4.0):
    """Returns the result of an update."""
    return {
        "is_made": True,
        "loss": loss,
        "target_tokens": target_tokens,
        "source_tokens": source_tokens,
    }


SKIPPED = made(loss=np.nan) | {"is_made": False}


def scalars(folder):
    """Returns (step, tag, value) of all files of events."""
    return [
        (event.step, value.tag, float(tf.make_ndarray(value.tensor)))
        for path in sorted(folder.glob("*tfevents*"))
        for record in tf.data.TFRecordDataset(str(path))
        for event in [event_pb2.Event.FromString(record.numpy())]
        for value in event.summary.value
    ]


class ProgressTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.now = 1000.0
        clock = mock.Mock(monotonic=lambda: self.now)
        self.enter_context(mock.patch.object(reporting, "time", clock))

    def test_sums_and_speed_of_the_interval(self):
        progress = reporting.Progress(100, 500)
        for loss in (1000.0, 2250.0):
            self.assertTrue(progress.add(made(loss, 650.0, 850.0)))
            self.now += 5.0
            with progress.paused():
                self.now += 30.0  # an evaluation does not count
        event = progress.report(120, 0.001)
        self.assertGreater(event.pop("peak_memory_mb"), 10.0)
        self.assertEqual(
            event,
            {
                "loss": 2.5,
                "steps_per_second": 2.0,
                "tokens_per_second": 300.0,
                "learning_rate": 0.001,
                "target_tokens": 1300.0,
                "skipped_steps": 0,
            },
        )
        self.assertEqual(progress.sums(), [0.0] * 4)

    def test_a_line_has_the_speed_of_the_latest_updates_from_the_tenth_on(self):
        progress, self.lines = reporting.Progress(100, 2000), []

        def update(step, seconds):
            self.now += seconds
            progress.add(made(loss=10.0, target_tokens=4.0))
            with progress.paused():
                self.now += 30.0  # an evaluation does not count
            self.lines.append(progress.line(step, step / 40))

        update(101, 60.0)  # builds the graph
        for step in range(102, 111):
            update(step, 2.0)
        begin = "step 109/2,000  loss 2.50"
        self.assertEqual(self.lines[-2], f"{begin}  epoch 2.7")
        speed = "0.5 steps/s  epoch 2.8  1 h 3 min left"
        self.assertEqual(self.lines[-1], f"step 110/2,000  loss 2.50  {speed}")
        progress.report(110, 0.001)
        for step in range(111, 120):
            update(step, 0.5)
        self.assertIn("  0.5 steps/s", self.lines[-2])
        self.assertIn("  2.0 steps/s  epoch 3.0  16 min left", self.lines[-1])
        progress.add(made(loss=1e30))
        for _ in range(123456):
            progress.add(SKIPPED)
        line = progress.line(2000, 123456.7)
        self.assertEndsWith(line, "steps/s  123456 skipped")
        self.assertLess(len(line), 80)

    def test_skipped_updates_are_counted_apart(self):
        progress = reporting.Progress(100, 500)
        for _ in range(2):
            for _ in range(9):
                self.assertFalse(progress.add(SKIPPED))
            self.assertEqual(progress.skipped_in_a_row, 9)
            progress.add(made())
            self.assertEqual(progress.skipped_in_a_row, 0)
        self.now += 10.0
        self.assertEndsWith(progress.line(102, 0.5), "loss 2.00  18 skipped")
        event = progress.report(102, 0.001)
        self.assertEqual(event["skipped_steps"], 18)
        self.assertEqual(event["loss"], 2.0)
        event = progress.report(103, 0.001)
        self.assertEqual((event["skipped_steps"], event["loss"]), (0, 0.0))

    def test_sums_of_an_earlier_process_do_not_count_for_the_speed(self):
        first = reporting.Progress(7, 9)
        first.add(made())
        first.add(SKIPPED)
        self.assertEqual(first.sums(), [6.0, 3.0, 4.0, 1.0])
        second = reporting.Progress(8, 9, first.sums())
        second.add(made(6.0, 5.0, 2.0))
        self.assertEqual(second.sums(), [12.0, 8.0, 6.0, 1.0])
        self.now += 1.0
        event = second.report(9, 0.001)
        self.assertEqual(event["loss"], 1.5)
        self.assertEqual(event["target_tokens"], 8.0)
        # This process has taken the time of its own 5 + 2 only.
        self.assertEqual(event["tokens_per_second"], 7.0)


class SummaryWriterTest(folders.TestCase):
    EVENT = {"step": 7, "split": "dev", "loss": 1.25, "signature": "x"}

    def setUp(self):
        super().setUp()
        self.run_dir = run_dir.RunDir(self.folder)
        self.begin()

    def begin(self):
        """Stands for the start of another process."""
        self.writer = reporting.SummaryWriter(self.run_dir)

    def record(self, **values):
        """Records an event as the trainer does."""
        event = self.EVENT | {"bleu": 3.0} | values
        self.run_dir.append_metrics(event)
        self.writer.write(event)

    def test_a_resumed_run_adds_to_what_is_there(self):
        self.record()
        self.begin()
        self.record(step=8, averaged=2, bleu=5.0)
        expected = [(7, "dev/loss", 1.25), (7, "dev/bleu", 3.0)]
        expected += [
            (8, "dev_average/loss", 1.25),
            (8, "dev_average/bleu", 5.0),
        ]
        self.assertCountEqual(
            [x for x in scalars(self.folder) if "averaged" not in x[1]],
            expected,
        )

    def test_without_tensorboard_nothing_is_written(self):
        with mock.patch.object(
            reporting.importlib.util, "find_spec", return_value=None
        ):
            self.record()
        self.assertEqual(os.listdir(self.folder), ["metrics.jsonl"])


class ProfileTest(parameterized.TestCase):
    @parameterized.parameters((0, 0), (10, 0), (11, 1), (20, 1), (25, 1))
    def test_a_profile_is_written_once_ten_updates_were_made(self, made, found):
        folder = pathlib.Path(self.create_tempdir().full_path)
        profile = reporting.profile(str(folder))
        with self.assertLogs("relpos_tf") as logs:
            reporting._log.info("begins")
            for _ in range(1 + made):
                next(profile)
            profile.close()
        self.assertLen(list(folder.rglob("*.xplane.pb")), found)
        is_told = "No profile: it begins after ten " in logs.output[-1]
        self.assertEqual(is_told, not found)
