"""Tests of progress lines, with a clock that the test moves."""

import importlib.util
import pathlib
from unittest import mock

import tensorflow as tf
from absl.testing import absltest
from absl.testing import parameterized
from tensorflow.core.util import event_pb2

from relpos_tf.training import reporting


class ThroughputTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.now = 1000.0

    def test_speed_of_the_interval(self):
        throughput = reporting.Throughput(100, 500, lambda: self.now)
        self.now += 10.0
        line, event = throughput.report(
            120,
            loss=2.5,
            tokens=3000.0,
            learning_rate=0.001,
            target_tokens=1300.0,
        )
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
        # 380 steps at 2 steps a second.
        self.assertEqual(
            line,
            "step 120/500  loss 2.5000  2.00 steps/s  300 tokens/s  "
            "rate 1.00e-03  0:03:10 left",
        )

    def test_skipped_updates_are_shown(self):
        throughput = reporting.Throughput(100, 500, lambda: self.now)
        self.now += 10.0
        line, event = throughput.report(
            120, loss=2.5, tokens=30.0, learning_rate=0.001, skipped_steps=3
        )
        self.assertEqual(event["skipped_steps"], 3)
        self.assertEndsWith(line, "rate 1.00e-03  3 skipped  0:03:10 left")

    def test_evaluations_do_not_count(self):
        throughput = reporting.Throughput(0, 100, lambda: self.now)
        self.now += 5.0
        throughput.report(10, loss=1.0, tokens=1.0, learning_rate=1.0)
        with throughput.paused():
            self.now += 60.0  # an evaluation
        self.now += 5.0
        _, event = throughput.report(
            20, loss=1.0, tokens=50.0, learning_rate=1.0
        )
        self.assertEqual(event["steps_per_second"], 2.0)
        self.assertEqual(event["tokens_per_second"], 10.0)

    def test_updates_before_a_pause_keep_their_time(self):
        throughput = reporting.Throughput(0, 1000, lambda: self.now)
        self.now += 50.0  # 50 updates
        with throughput.paused():
            self.now += 30.0
        self.now += 50.0  # 50 updates
        _, event = throughput.report(
            100, loss=1.0, tokens=700.0, learning_rate=1.0
        )
        self.assertEqual(event["steps_per_second"], 1.0)
        self.assertEqual(event["tokens_per_second"], 7.0)

    def test_a_low_speed_is_not_rounded_to_zero(self):
        throughput = reporting.Throughput(0, 10, lambda: self.now)
        self.now += 400.0
        line, _ = throughput.report(1, loss=1.0, tokens=70.0, learning_rate=1.0)
        self.assertIn("  0.0025 steps/s  0.17 tokens/s  ", line)

    def test_a_short_line_does_not_end_the_interval(self):
        throughput = reporting.Throughput(100, 500, lambda: self.now)
        self.now += 6.0  # the first update builds the graph
        first = throughput.short_line(101, 3.0)
        self.assertEqual(first, "step 101/500  loss 3.0000")
        self.now += 3.0
        self.assertEqual(
            throughput.short_line(107, 2.5),
            "step 107/500  loss 2.5000  2.00 steps/s  0:03:16 left",
        )
        self.now += 1.0
        _, event = throughput.report(
            120, loss=2.5, tokens=30.0, learning_rate=0.001
        )
        self.assertEqual(event["steps_per_second"], 2.0)
        line = throughput.short_line(121, 3.0)
        self.assertEqual(line, "step 121/500  loss 3.0000")

    def test_time_left_is_unknown_without_progress(self):
        throughput = reporting.Throughput(7, 10, lambda: self.now)
        self.now += 5.0
        line, _ = throughput.report(7, loss=1.0, tokens=0.0, learning_rate=1.0)
        self.assertEndsWith(line, "? left")


class SummaryWriterTest(absltest.TestCase):
    EVENT = {"step": 7, "split": "dev", "loss": 1.25, "signature": "x"}

    def test_scalars_are_in_the_file(self):
        folder = self.create_tempdir().full_path
        writer = reporting.SummaryWriter(folder)
        writer.write(self.EVENT)
        writer.close()
        writer.write(self.EVENT)  # closed: nothing happens
        (path,) = pathlib.Path(folder).iterdir()
        found = [
            (event.step, value.tag, float(tf.make_ndarray(value.tensor)))
            for record in tf.data.TFRecordDataset(str(path))
            for event in [event_pb2.Event.FromString(record.numpy())]
            for value in event.summary.value
        ]
        self.assertEqual(found, [(7, "dev/loss", 1.25)])

    def test_nothing_is_written_without_tensorboard(self):
        folder = self.create_tempdir().full_path
        with mock.patch.object(importlib.util, "find_spec", return_value=None):
            writer = reporting.SummaryWriter(folder)
        writer.write(self.EVENT)
        writer.close()
        self.assertEmpty(list(pathlib.Path(folder).iterdir()))


class ProfilerTest(parameterized.TestCase):
    @parameterized.parameters((9, 0), (10, 0), (11, 1), (20, 1), (25, 1))
    def test_a_profile_is_written_once_ten_steps_were_made(self, steps, found):
        folder = pathlib.Path(self.create_tempdir().full_path)
        profiler = reporting.Profiler(folder)
        for step in range(1, steps + 1):
            profiler.count(step == steps)
        self.assertLen(list(folder.rglob("*.xplane.pb")), found)


class LinesTest(absltest.TestCase):
    def test_duration(self):
        self.assertEqual(reporting.duration(0.4), "0:00:00")
        self.assertEqual(reporting.duration(59.6), "0:01:00")
        self.assertEqual(reporting.duration(36061), "10:01:01")

    def test_evaluation_line(self):
        event = {
            "split": "dev",
            "step": 7,
            "loss": 1.25,
            "teacher_forced_accuracy": 0.5,
            "exact_match": 12.5,
            "chrf": 40.0,
            "bleu": 20.125,
            "bleu_signature": "nrefs:1|case:mixed",
        }
        self.assertEqual(
            reporting.evaluation_line(event | {"averaged": 5}),
            "dev at step 7, 5 checkpoints averaged: loss 1.2500  "
            "teacher-forced accuracy 50.00%  exact match 12.50 %  chrF 40.00  "
            "BLEU 20.12 (nrefs:1|case:mixed)",
        )


if __name__ == "__main__":
    absltest.main()
