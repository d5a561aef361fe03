"""Tests of ALiBi's slopes; `attention_test` has its attention."""

import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.layers.positions import alibi


class SlopesTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        (1, [2**-8]),
        (8, [2**-1, 2**-2, 2**-3, 2**-4, 2**-5, 2**-6, 2**-7, 2**-8]),
        # Those of 4 heads, then two of 8: 1/2 and 1/8.
        (6, [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3]),
    )
    def test_slopes_are_those_of_the_paper(self, heads, expected):
        self.assertAllClose(alibi.slopes(heads), expected, 1e-12, atol=1e-12)
