"""Tests of early stopping."""

from absl.testing import absltest

from relpos_tf import errors
from relpos_tf import settings


def stops_at(values, metric="loss", **options):
    """Returns the step, a multiple of 10, at which training ends, or None."""
    stopping = settings.EarlyStopping(
        settings.Settings(
            eval_early_stopping_metric=metric,
            **{f"eval_early_stopping_{n}": v for n, v in options.items()},
        )
    )
    for number, value in enumerate(values, start=1):
        if stopping.is_over(10 * number, {metric: value}):
            return 10 * number
    return None


class EarlyStoppingTest(absltest.TestCase):
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
        self.assertEqual(
            stops_at(values, "bleu", steps=20, metric_minimize=False), 40
        )

    def test_unknown_metric_lists_the_known(self):
        stopping = settings.EarlyStopping(
            settings.Settings(
                eval_early_stopping_steps=1, eval_early_stopping_metric="blue"
            )
        )
        with self.assertRaisesRegex(errors.UserError, "bleu, loss.*'blue'"):
            stopping.is_over(10, {"loss": 1.0, "bleu": 2.0})


if __name__ == "__main__":
    absltest.main()
