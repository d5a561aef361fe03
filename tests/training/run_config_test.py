"""Tests of early stopping."""

import math

from absl.testing import parameterized

from relpos_tf.training import run_config


def stops_at(values, metric="loss", **options):
    """Returns the step, a multiple of 10, at which training ends, or None."""
    stopping = run_config.EarlyStopping(
        run_config.RunConfig(
            eval_early_stopping_metric=metric,
            **{f"eval_early_stopping_{n}": v for n, v in options.items()},
        )
    )
    for number, value in enumerate(values, start=1):
        if stopping.is_over(10 * number, {metric: value}):
            return 10 * number
    return None


class EarlyStoppingTest(parameterized.TestCase):
    def test_never_without_patience(self):
        self.assertIsNone(stops_at([1.0, 2.0, 3.0, 4.0], steps=0))

    def test_patience_counts_from_the_best(self):
        values = [5.0, 3.0, 4.0, 3.5, 2.0, 2.5, 2.4, 2.3]
        self.assertEqual(stops_at(values, steps=30), 80)

    def test_a_change_below_delta_is_no_improvement(self):
        values = [3.0, 2.95, 2.92, 2.91]
        self.assertEqual(stops_at(values, steps=30, metric_delta=0.1), 40)
        self.assertIsNone(stops_at(values, steps=30, metric_delta=0.01))

    def test_more_may_be_better(self):
        values = [10.0, 20.0, 19.0, 18.0]
        self.assertEqual(stops_at(values, "bleu", steps=20), 40)

    @parameterized.parameters(
        ("loss", [3.0, 2.0, 1.0], [1.0, 2.0, 3.0]),
        ("bleu", [0.18, 1.51, 1.84], [1.84, 1.51, 0.18]),
        ("chrf", [11.0, 12.0, 13.0], [13.0, 12.0, 11.0]),
        ("exact_match", [0.0, 5.0, 7.0], [7.0, 5.0, 0.0]),
        # A fraction, of which 0.01 is a large step.
        ("teacher_forced_accuracy", [0.60, 0.61, 0.62], [0.62, 0.61, 0.60]),
    )
    def test_a_metric_that_gets_better_goes_on(self, metric, better, worse):
        self.assertIsNone(stops_at(better, metric, steps=20))
        self.assertEqual(stops_at(worse, metric, steps=20), 30)
        opposite = {"metric_minimize": metric != "loss"}
        self.assertEqual(stops_at(better, metric, steps=20, **opposite), 30)
        self.assertIsNone(stops_at(worse, metric, steps=20, **opposite))

    def test_any_number_is_better_than_none(self):
        self.assertIsNone(stops_at([math.nan, 3.0, 2.0, 1.0], steps=20))
        self.assertEqual(stops_at([3.0, math.nan, math.nan], steps=20), 30)
