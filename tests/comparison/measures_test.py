"""Measures of a training run, and lines by length."""

from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf.comparison import measures


def train(step, **values):
    event = {
        "step": step,
        "split": "train",
        "loss": 1.0,
        "steps_per_second": 2.0,
        "tokens_per_second": 20.0,
        "target_tokens": 5.0,
        "peak_memory_mb": None,
    }
    return event | values


class OfTrainingTest(absltest.TestCase):
    def test_medians_sums_and_curves(self):
        rates = ((100, 2.0), (200, 4.0), (300, 1.0), (400, 9.0))
        events = [
            train(
                step,
                loss=8.0 / rate,
                steps_per_second=rate,
                tokens_per_second=10 * rate,
                target_tokens=float(step + 1),
                peak_memory_mb=700.0 - step,
            )
            for step, rate in rates
        ]
        dev = {"step": 200, "split": "dev", "loss": 3.0, "bleu": 7.0}
        events[2:2] = [
            dev | {"bleu": 6.0},  # scored again below
            dev | {"step": 100, "bleu": 5.0},
            dev,
            dev | {"step": 250, "conditions": {"beam_size": 1}},
            dev | {"averaged": 2, "bleu": 9.0},
            dev | {"split": "test", "bleu": 8.0},
        ]
        self.assertEqual(
            measures.of_training(events, 300),
            {
                "steps_per_second": 2.0,
                "tokens_per_second": 20.0,
                # 100 steps at 2 a second, at 4, at 1.
                "minutes": (50 + 25 + 100) / 60,
                "target_tokens": 603,
                "peak_memory_mb": 600.0,
                "learning_curve": {
                    "train": [[100, 4.0], [200, 2.0], [300, 8.0]],
                    "dev": [[100, 3.0, 5.0], [200, 3.0, 7.0]],
                },
            },
        )


class LengthTest(parameterized.TestCase):
    @parameterized.parameters(
        ([5, 9, 2, 7, 3, 8, 1, 6], [2, 5, 7]),
        ([4, 4, 4, 4, 4, 9], [4]),
        ([3, 3, 3, 3], []),
        ([1, 2, 3], []),
        ([], []),
    )
    def test_quartiles_leave_about_a_quarter_in_each(self, lengths, expected):
        self.assertEqual(measures.quartiles(lengths), expected)
