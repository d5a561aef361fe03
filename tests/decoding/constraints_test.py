"""N-grams; `search_options_test` has the constraints of searches."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.decoding import constraints


def allowed(log_probs):
    """Returns the ids that may follow, by row."""
    return [np.flatnonzero(np.isfinite(row)).tolist() for row in log_probs]


class ConstraintsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(1, 2, 3, 4)
    def test_repetition_agrees_with_a_search_through_sets(self, size):
        random = np.random.default_rng(size)
        ids = np.concatenate(
            [np.zeros([40, 1]), random.integers(1, 4, [40, 12])], axis=1
        ).astype(np.int32)
        found = constraints.forbid_repetition(
            tf.zeros([40, 5]), tf.constant(ids), size
        )
        for row, may in zip(ids[:, 1:].tolist(), allowed(found), strict=True):
            seen = {
                tuple(row[j : j + size]) for j in range(len(row) - size + 1)
            }
            last = tuple(row[len(row) - size + 1 :])
            self.assertEqual(
                may, [v for v in range(5) if (*last, v) not in seen]
            )
