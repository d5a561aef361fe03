"""The compact form builds no tensor with a vector for each pair."""

import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.layers.positions import shaw
from tests import testing

LENGTH, DEPTH, ROWS = 31, 17, 5
PAIRS = LENGTH * LENGTH * DEPTH  # numbers in a vector for each pair


class RelativeMemoryTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters("compact", "auto")
    def test_no_tensor_has_a_vector_for_each_pair(self, form):
        self.assertLess(largest_tensor(form), PAIRS)

    def test_the_reshape_form_has_one_so_the_probe_sees_it(self):
        self.assertGreaterEqual(largest_tensor("reshape"), PAIRS)


def largest_tensor(form):
    arrays = [testing.normal(i, 1, 1, LENGTH, DEPTH) for i in range(3)]
    arrays += [testing.normal(i, ROWS, DEPTH) for i in (3, 4)]
    return testing.largest_tensor(
        lambda *tensors: shaw.relative_attention(*tensors, implementation=form)[
            0
        ],
        *arrays,
    )


if __name__ == "__main__":
    tf.test.main()
