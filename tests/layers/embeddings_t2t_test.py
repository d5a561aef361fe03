"""Sinusoids are added as tensor2tensor adds them."""

import tensorflow as tf

from relpos_tf.layers import embeddings
from tests import testing


class TimingSignalT2tTest(tf.test.TestCase):
    def test_sum_with_the_signal_is_equal(self):
        ((_, _, arrays),) = testing.t2t_cases("timing_1d_add")
        x = arrays["in/x"]  # [B, L, F]
        signal = embeddings.timing_signal(tf.range(x.shape[1]), x.shape[2])
        self.assertAllClose(
            x + signal, arrays["out/result"], rtol=1e-6, atol=1e-6
        )


if __name__ == "__main__":
    tf.test.main()
