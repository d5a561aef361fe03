"""Tests of Adam, against its definition in NumPy."""

from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf import hparam
from relpos_tf.training import optimizers
from relpos_tf.training import schedules
from relpos_tf.utils import graphs

RATES = (0.5, 0.25, 0.125)


def adam(weights, gradients, decay, limit):
    """Kingma and Ba (2014), algorithm 1, with epsilon hat of section 2.

    With a limit of the norm, and with decay of all but the vectors: Loshchilov
    and Hutter (2019), algorithm 2.
    """
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


def adam_of(rate, variables, **fields):
    """Returns the optimizer with a learning rate of its own."""
    with mock.patch.object(schedules, "learning_rate", return_value=rate):
        return optimizers.Adam(hparam.HParams(**fields), variables)


class AdamTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.product(
        limits=((0.0, 0.0), (2.0, 0.3)), is_compiled=(False, True)
    )
    def test_updates_are_those_of_the_definition(self, limits, is_compiled):
        clip, decay = limits
        random = np.random.default_rng(11)
        shapes = {"matrix": (2, 3), "table": (2, 3, 5), "scale": (7,)}
        start = {n: random.normal(size=s) for n, s in shapes.items()}
        start["scale"][0] = -0.0
        gradients = [
            {n: random.normal(size=s) for n, s in shapes.items()} for _ in RATES
        ]
        variables = {
            name: tf.Variable(value, dtype=tf.float32)
            for name, value in start.items()
        }
        optimizer = adam_of(
            lambda step: tf.gather(RATES, step),
            variables,
            clip_grad_norm=clip,
            weight_decay=decay,
        )
        apply = graphs.function(optimizer.apply)
        if is_compiled:
            apply = optimizer.compiled()

        def bits():
            state = *variables.values(), *optimizer.state.values()
            return [v.numpy().tobytes() for v in state]

        for update in gradients:
            tensors = [tf.constant(g, tf.float32) for g in update.values()]
            before = bits()
            # The last one is finite, but its square is infinite in float32.
            for bad in (np.nan, np.inf, -np.inf, 1e20):
                broken = [*tensors[:2], tf.fill(7, bad)]
                self.assertFalse(apply(broken, tf.constant(True)), bad)
            self.assertFalse(apply(tensors, tf.constant(False)))
            self.assertEqual(bits(), before)
            self.assertTrue(apply(tensors, tf.constant(True)))
        self.assertEqual(int(optimizer.step), len(RATES))
        expected = adam(start, gradients, decay, clip or np.inf)
        for name, values in expected.items():
            self.assertAllClose(
                variables[name], values, rtol=1e-5, msg=name, atol=1e-6
            )

    def test_not_finite_names_nan_and_infinite_variables(self):
        variables = {
            "good": tf.Variable([1.0, -3e38]),
            "nan": tf.Variable([1.0, np.nan]),
            "step": tf.Variable(3, dtype=tf.int64),
            "infinite": tf.Variable([[-np.inf]]),
        }
        self.assertEqual(optimizers.not_finite(variables), ["nan", "infinite"])
