"""What a search must not choose, against lists worked out by hand."""

import types

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.decoding import constraints

LOG_PROBS = tf.constant(np.log(np.full([3, 7], 1 / 7)), tf.float32)


def allowed(log_probs):
    """Returns the ids that may follow, by row."""
    return [np.flatnonzero(np.isfinite(row)).tolist() for row in log_probs]


class ConstraintsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        (0, [[5], [2], list(range(7))]),
        (1, [[3], list(range(7)), list(range(7))]),
        (2, [list(range(7))] * 3),
        (9, [list(range(7))] * 3),
    )
    def test_prefix_is_the_only_choice_until_its_own_end(self, i, expected):
        prefix = tf.constant([[5, 3], [2, 0], [0, 0]])
        found = constraints.force_prefix(
            LOG_PROBS, tf.constant(i), prefix, LOG_PROBS
        )
        self.assertEqual(allowed(found), expected)
        # What stays allowed keeps its probability.
        kept = np.isfinite(found)
        self.assertAllEqual(found[kept], LOG_PROBS[kept])

    def test_end_is_forbidden_until_the_least_length(self):
        for i, is_allowed in ((0, False), (3, False), (4, True), (5, True)):
            found = constraints.forbid_end(LOG_PROBS, tf.constant(i), 4)
            self.assertEqual(
                [1 in row for row in allowed(found)], [is_allowed] * 3
            )
            self.assertAllEqual(found[:, 2:], LOG_PROBS[:, 2:])

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

    def test_what_is_forced_is_never_forbidden(self):
        limits = constraints.Constraints(
            tf.constant([9, 9, 9]),
            # The n-gram 5 3 again; the end too early; nothing.
            tf.constant([[5, 3, 5, 3], [2, 2, 2, 1], [0, 0, 0, 0]]),
            min_length=6,
            no_repeat_ngram_size=2,
        )
        shared = types.SimpleNamespace(prefix=limits.prefix)
        ids = tf.constant([[0, 5, 3, 5], [0, 2, 2, 2], [0, 5, 3, 5]])
        found = limits.constrain(ids, tf.constant(3), LOG_PROBS, shared)
        self.assertEqual(allowed(found), [[3], [1], [0, 2, 4, 5, 6]])
        kept = np.isfinite(found)
        self.assertAllEqual(found[kept], LOG_PROBS[kept])
