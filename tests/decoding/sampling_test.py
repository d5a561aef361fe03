"""Drawing at random: the shares are right, and a row is its own affair."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.decoding import sampling

PROBS = np.array([0.05, 0.4, 0.1, 0.25, 0.2])


def shares(draws=20000, **options):
    """Returns how often each id is drawn, over evenly spread numbers."""
    log_probs = tf.constant(np.log([PROBS]).repeat(draws, 0), tf.float32)
    uniform = tf.constant((np.arange(draws) + 0.5) / draws, tf.float32)
    options = {"temperature": 1.0} | options
    ids = sampling.draw(log_probs, uniform, **options).numpy()
    return np.bincount(ids, minlength=5) / draws


class DrawTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        ({}, PROBS),
        # Squares, over their sum.
        ({"temperature": 0.5}, PROBS**2 / (PROBS**2).sum()),
        ({"temperature": np.float32(1e-38)}, [0, 1, 0, 0, 0]),
        ({"temperature": 1e-3}, [0, 1, 0, 0, 0]),
        ({"temperature": np.float32(3e38)}, [0.2] * 5),
        ({"top_k": 1}, [0, 1, 0, 0, 0]),
        ({"top_k": 3}, np.array([0, 0.4, 0, 0.25, 0.2]) / 0.85),
        ({"top_k": 9}, PROBS),
        # .4 is not enough for .5, .4 + .25 is.
        ({"top_p": 0.5}, np.array([0, 0.4, 0, 0.25, 0]) / 0.65),
        ({"top_p": 0.35}, [0, 1, 0, 0, 0]),
        ({"top_p": 1e-6}, [0, 1, 0, 0, 0]),
        # First the three, of which .4 + .25 are .76.
        ({"top_k": 3, "top_p": 0.75}, np.array([0, 0.4, 0, 0.25, 0]) / 0.65),
    )
    def test_shares(self, options, expected):
        self.assertAllClose(shares(**options), expected, atol=2e-3)

    @parameterized.parameters((1.0, 49999), (0.9, 44999), (0.5, 24999))
    def test_as_many_ids_are_drawn_from_as_top_p_says(self, top_p, last):
        # All are as probable, the first comes first.
        log_probs = tf.fill([1, 50000], -np.log(50000).astype(np.float32))
        uniform = tf.constant([1.0 - 2**-23])
        found = sampling.draw(log_probs, uniform, 1.0, top_p=top_p)
        self.assertAllClose(found, [last], atol=3)
        if top_p == 1.0:
            self.assertAllEqual(found, [last])

    def test_many_improbable_ids_are_drawn_as_often_as_one(self):
        # One has half of the probability, a hundred thousand the rest; each
        # of them is lost in a sum of float32.
        size = 100_000
        log_probs = np.full([1, size + 2], np.log(0.001 / size), np.float32)
        log_probs[0, :2] = np.log([0.5, 0.499])
        uniform = tf.constant([0.4999, 0.998, 0.9991, 0.9995, 0.9999])
        ids = sampling.draw(tf.repeat(log_probs, 5, 0), uniform, 1.0).numpy()
        self.assertAllEqual(ids[:2], [0, 1])
        self.assertAllClose(ids[2:], [10_000, 50_000, 90_000], atol=300)

    @parameterized.parameters(1e-38, 1.0, 3e38)
    def test_forbidden_ids_are_never_drawn(self, temperature):
        log_probs = tf.constant([[-np.inf, -90.0, -np.inf, -92.0]] * 3)
        uniform = tf.constant([0.0, 0.49, 1.0 - 2**-24])
        ids = sampling.draw(log_probs, uniform, temperature).numpy().tolist()
        self.assertEqual(ids, [1, 1, 1 if temperature < 0.1 else 3])


class UniformsTest(tf.test.TestCase):
    def test_a_row_knows_its_number_and_sample_and_nothing_else(self):
        numbers = tf.constant([4, 9, 2])
        many = sampling.uniforms(3, numbers, 2, 7)
        self.assertEqual(many.shape, (6, 7))
        one = sampling.uniforms(3, numbers[1:2], 3, 5)
        self.assertAllEqual(one[:2], many[2:4, :5])
        self.assertLen(np.unique(many), 42)
        other = sampling.uniforms(4, numbers, 2, 7)
        self.assertFalse(np.any(np.isin(other, many)))
