"""Tests of updates with two passes of each batch (R-Drop)."""

import functools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.models import transformer
from tests import testing
from tests.campaigns import breakable
from tests.campaigns import replicas

testing.use_two_cpus()

R_DROP = replicas.HPARAMS.replace(r_drop_alpha=5.0)
DROPPED = R_DROP.replace(layer_prepostprocess_dropout=0.3)
RANDOM = np.random.default_rng(1)


@functools.cache  # Tracing takes seconds.
def machine(count, number, hparams, kind=breakable.BagOfWords, **options):
    return replicas.Machine(count, number, hparams, kind, **options)


class TwoPassesTest(tf.test.TestCase, parameterized.TestCase):
    def test_without_dropout_an_update_is_that_of_one_pass(self):
        for kind in (breakable.BagOfWords, transformer.Transformer):
            found, results = replicas.compare(
                machine(1, 1, R_DROP, kind),
                machine(1, 1, replicas.HPARAMS, kind),
                "equal",
            )
            self.assertLess(found, replicas.TOLERANCE, kind)
            self.assertLen(results, replicas.UPDATES)


if __name__ == "__main__":
    tf.test.main()
