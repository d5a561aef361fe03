"""Tests of Adam, against its definition in NumPy."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf import hparam
from relpos_tf.training import optimizers

RATES = (0.5, 0.25, 0.125)


def adam(values, gradients, *, beta1=0.9, beta2=0.98, epsilon=1e-9):
    """Kingma and Ba (2014), algorithm 1, with epsilon hat of section 2."""
    mean, square = np.zeros_like(values), np.zeros_like(values)
    for t, gradient in enumerate(gradients, start=1):
        mean = beta1 * mean + (1 - beta1) * gradient
        square = beta2 * square + (1 - beta2) * gradient**2
        rate = RATES[t - 1] * np.sqrt(1 - beta2**t) / (1 - beta1**t)
        values = values - rate * mean / (np.sqrt(square) + epsilon)
    return values


def decayed_adam(weights, gradients, decay, limit):
    """Adam with a limit of the norm, and decay of all but the vectors."""
    weights = dict(weights)
    means = {name: np.zeros_like(w) for name, w in weights.items()}
    squares = {name: np.zeros_like(w) for name, w in weights.items()}
    for t, update in enumerate(gradients, start=1):
        norm = np.sqrt(sum(np.sum(g**2) for g in update.values()))
        for name, weight in weights.items():
            gradient = update[name] * min(1.0, limit / norm)
            means[name] = 0.9 * means[name] + 0.1 * gradient
            squares[name] = 0.98 * squares[name] + 0.02 * gradient**2
            rate = RATES[t - 1] * np.sqrt(1 - 0.98**t) / (1 - 0.9**t)
            step = rate * means[name] / (np.sqrt(squares[name]) + 1e-9)
            if weight.ndim > 1:
                step = step + RATES[t - 1] * decay * weight
            weights[name] = weight - step
    return weights


class AdamTest(tf.test.TestCase, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        random = np.random.default_rng(5)
        self.start = random.normal(size=(2, 3)).astype(np.float32)
        self.gradients = random.normal(size=(3, 2, 3)).astype(np.float32)
        self.variable = tf.Variable(self.start)

    def make(self):
        return optimizers.Adam(
            hparam.HParams(),
            {"w": self.variable},
            lambda step: tf.gather(RATES, step),
        )

    def test_three_updates_equal_the_definition(self):
        optimizer = self.make()
        for gradient in self.gradients:
            optimizer.apply([tf.constant(gradient)])
        expected = adam(self.start, self.gradients)
        self.assertAllClose(self.variable, expected, rtol=1e-5)
        self.assertEqual(int(optimizer.step), 3)

    def test_clipping_bounds_the_norm_over_all_variables(self):
        other = tf.Variable([0.0])
        optimizer = optimizers.Adam(
            hparam.HParams(clip_grad_norm=1.0),
            {"w": self.variable, "b": other},
            lambda step: 0.1,
        )
        optimizer.apply([tf.fill([2, 3], 4.0), tf.constant([-2.0])])
        # The norm is sqrt(6 * 16 + 4) = 10, so everything is divided by 10.
        self.assertAllClose(optimizer.state["mean/w"], tf.fill([2, 3], 0.04))
        self.assertAllClose(optimizer.state["mean/b"], [-0.02])

    @parameterized.parameters(
        (np.nan, True),
        (np.inf, True),
        (-np.inf, True),
        (1e20, True),  # finite, but its square is infinite in float32
        (1.0, False),
    )
    def test_a_bad_gradient_or_a_skipped_update_changes_nothing(
        self, value, allowed
    ):
        for clip_norm in (0.0, 1.0):
            other = tf.Variable([0.5, -0.0])
            optimizer = optimizers.Adam(
                hparam.HParams(clip_grad_norm=clip_norm),
                {"w": self.variable, "b": other},
                lambda step: 0.1,
            )
            good = [tf.constant(self.gradients[0]), tf.constant([3.0, -0.0])]
            self.assertTrue(optimizer.apply(good))
            variables = [self.variable, other, *optimizer.state.values()]
            before = [v.numpy().tobytes() for v in variables]
            bad = [good[0], tf.constant([3.0, value])]
            made = optimizer.apply(bad, tf.constant(allowed))
            self.assertFalse(made)
            self.assertEqual([v.numpy().tobytes() for v in variables], before)
            self.assertTrue(optimizer.apply(good, tf.constant(True)))
            self.assertEqual(int(optimizer.step), 2)

    def test_weights_decay_as_in_the_definition(self):
        # Loshchilov and Hutter (2019), algorithm 2, in float64.
        random = np.random.default_rng(11)
        shapes = {"matrix": (2, 3), "table": (2, 3, 5), "scale": (7,)}
        start = {n: random.normal(size=s) for n, s in shapes.items()}
        gradients = [
            {n: random.normal(size=s) for n, s in shapes.items()} for _ in RATES
        ]
        variables = {
            name: tf.Variable(value, dtype=tf.float32)
            for name, value in start.items()
        }
        optimizer = optimizers.Adam(
            hparam.HParams(clip_grad_norm=2.0, weight_decay=0.3),
            variables,
            lambda step: tf.gather(RATES, step),
        )
        apply = tf.function(optimizer.apply)
        for update in gradients:
            tensors = [tf.constant(g, tf.float32) for g in update.values()]
            before = [v.numpy().tobytes() for v in variables.values()]
            self.assertFalse(apply([*tensors[:2], tensors[2] * np.nan]))
            self.assertFalse(apply(tensors, tf.constant(False)))
            after = [v.numpy().tobytes() for v in variables.values()]
            self.assertEqual(after, before)
            self.assertTrue(apply(tensors, tf.constant(True)))
        for name, values in decayed_adam(start, gradients, 0.3, 2.0).items():
            self.assertAllClose(variables[name], values, rtol=1e-5, msg=name)

    def test_not_finite_names_nan_and_infinite_variables(self):
        variables = {
            "good": tf.Variable([1.0, -3e38]),
            "nan": tf.Variable([1.0, np.nan]),
            "step": tf.Variable(3, dtype=tf.int64),
            "infinite": tf.Variable([[-np.inf]]),
        }
        self.assertEqual(optimizers.not_finite(variables), ["nan", "infinite"])
