"""The learning rates of tensor2tensor's sets of hparams, step by step."""

import tensorflow as tf
from absl.testing import parameterized

from relpos_tf import hparam
from relpos_tf.training import schedules
from tests import testing

CASES = testing.t2t_cases("lr", "t2t_training.npz")


class LearningRateT2tTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.named_parameters(*CASES)
    def test_rates_are_equal(self, settings, arrays):
        rate = schedules.learning_rate(
            hparam.HParams().replace(
                learning_rate_schedule=settings["schedule"],
                learning_rate=settings["learning_rate"],
                learning_rate_constant=settings["constant"],
                learning_rate_warmup_steps=settings["warmup"],
                hidden_size=settings["hidden_size"],
            )
        )
        found = [float(rate(tf.constant(step))) for step in arrays["in/steps"]]
        # Steps beside both peaks are among them, and the rate 0 of step 0.
        self.assertAllClose(found, arrays["out/lr"], rtol=1e-6, atol=0)

    def test_both_kinds_of_schedule_are_among_the_cases(self):
        schedules_seen = {settings["schedule"] for _, settings, _ in CASES}
        self.assertLen(CASES, 12)
        self.assertIn("legacy", schedules_seen)
        self.assertIn("constant*linear_warmup*rsqrt_decay", schedules_seen)
