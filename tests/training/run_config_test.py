"""Tests of early stopping."""

import itertools
import math

from absl.testing import parameterized

from relpos_tf.training import run_config


class EarlyStoppingTest(parameterized.TestCase):
    @parameterized.parameters(
        ([1.0, 2.0, 3.0, 4.0], "loss", 0, None, None),  # no patience is given
        # Patience counts from the best.
        ([5.0, 3.0, 4.0, 3.5, 2.0, 2.5, 2.4, 2.3], "loss", 30, None, 80),
        # A change below delta is no improvement.
        ([3.0, 2.95, 2.92, 2.91], "loss", 30, 0.1, 40),
        ([3.0, 2.95, 2.92, 2.91], "loss", 30, 0.01, None),
        ([10.0, 20.0, 19.0, 18.0], "bleu", 20, None, 40),
        ([3.0, 2.0, 1.0], "loss", 20, None, None),
        ([1.0, 2.0, 3.0], "loss", 20, None, 30),
        *(
            case
            for metric in ("bleu", "chrf", "exact_match")
            for case in (
                ([0.18, 1.51, 1.84], metric, 20, None, None),
                ([1.84, 1.51, 0.18], metric, 20, None, 30),
            )
        ),
        # A fraction, of which 0.01 is a large step.
        ([0.60, 0.61, 0.62], "teacher_forced_accuracy", 20, None, None),
        ([0.62, 0.61, 0.60], "teacher_forced_accuracy", 20, None, 30),
        # Any number is better than none.
        ([math.nan, 3.0, 2.0, 1.0], "loss", 20, None, None),
        ([3.0, math.nan, math.nan], "loss", 20, None, 30),
        # The user says which direction is better.
        ([3.0, 2.0, 1.0], "loss", 20, None, 30, False),
        ([1.0, 2.0, 3.0], "loss", 20, None, None, False),
        ([0.18, 1.51, 1.84], "bleu", 20, None, 30, True),
        ([1.84, 1.51, 0.18], "bleu", 20, None, None, True),
    )
    def test_training_ends_once_nothing_was_better_for_so_many_steps(
        self, values, metric, steps, delta, end, minimize=None
    ):
        stopping = run_config.EarlyStopping(
            run_config.RunConfig(
                eval_early_stopping_metric=metric,
                eval_early_stopping_steps=steps,
                eval_early_stopping_metric_delta=delta,
                eval_early_stopping_metric_minimize=minimize,
            )
        )
        ends = [
            step
            for step, value in zip(itertools.count(10, 10), values)
            if stopping.is_over(step, {metric: value})
        ]
        self.assertEqual(ends[:1], [end] if end else [])
        text = f"no better {metric} for {steps} steps"
        self.assertEqual(str(stopping), text)
