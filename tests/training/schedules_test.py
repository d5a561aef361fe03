"""Tests of the learning rate: by hand, and against tensor2tensor's sets."""

import tensorflow as tf
from absl.testing import parameterized

from relpos_tf import hparam
from relpos_tf.training import optimizers
from relpos_tf.training import schedules
from tests import testing


class LearningRateTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        # 512**-0.5 * 4000**-1.5 for the first update.
        (0, 1.7469281e-07),
        # The peak, 512**-0.5 * 4000**-0.5.
        (3999, 6.9877124e-04),
        # Four times as many updates, half the rate.
        (15999, 3.4938562e-04),
    )
    def test_the_papers_schedule(self, step, rate):
        schedule = schedules.learning_rate(hparam.HParams())
        self.assertAllClose(schedule(step), rate, rtol=1e-6, atol=1e-12)

    def test_hparams_take_the_names_that_there_are(self):
        self.assertCountEqual(hparam.SCHEDULE_FACTORS, schedules.FACTORS)
        for name in optimizers.OPTIMIZERS:
            hparam.HParams(optimizer=name)


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
        self.assertAllClose(found, arrays["out/lr"], rtol=1e-6, atol=1e-12)
