"""Tests of the learning rate, against numbers worked out by hand."""

import tensorflow as tf
from absl.testing import parameterized

from relpos_tf import hparam
from relpos_tf.training import optimizers
from relpos_tf.training import schedules


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
        self.assertAllClose(schedule(step), rate, rtol=1e-6, atol=0)

    def test_hparams_take_the_names_that_there_are(self):
        self.assertCountEqual(hparam.SCHEDULE_FACTORS, schedules.FACTORS)
        for name in optimizers.OPTIMIZERS:
            hparam.HParams(optimizer=name)
