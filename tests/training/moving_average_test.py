"""Tests of moving averages, against loops in NumPy."""

from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.decoding import loading
from relpos_tf.decoding import translator
from relpos_tf.training import devices
from relpos_tf.training import evaluation
from relpos_tf.training import optimizers
from relpos_tf.utils import graphs
from relpos_tf.utils import signals
from relpos_tf.utils import terminal
from tests.training import optimizers_test
from tests.training import tiny_runs


def averages(weights, decay):
    """Returns the averages after each of the weights but the first.

    Polyak averaging with the warm-up of TensorFlow, in float64.
    """
    average, found = np.float64(weights[0]), []
    for t, weight in enumerate(weights[1:], start=1):
        d = min(decay, (1 + t) / (10 + t))
        average = d * average + (1 - d) * np.float64(weight)
        found.append(average)
    return found


class MovingAverageTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.product(decay=(0.3, 0.999), is_compiled=(False, True))
    def test_every_update_moves_the_averages_and_a_skipped_one_does_not(
        self, decay, is_compiled
    ):
        random = np.random.default_rng(3)
        start = random.normal(size=(2, 3)).astype(np.float32)
        variable = tf.Variable(start)
        optimizer = optimizers_test.adam_of(
            lambda step: 0.5, {"w": variable}, moving_average_decay=decay
        )
        average = optimizer.averages.variables["w"]
        apply = graphs.function(optimizer.apply)
        if is_compiled:  # as on a GPU
            apply = optimizer.compiled()
        weights, found = [start], []
        for _ in range(7):
            gradient = tf.constant(random.normal(size=(2, 3)), tf.float32)
            self.assertTrue(apply([gradient], tf.constant(True)))
            weights.append(variable.numpy())
            found.append(average.numpy())
            self.assertFalse(apply([gradient * np.inf], tf.constant(True)))
            self.assertFalse(apply([gradient], tf.constant(False)))
            self.assertAllEqual(average, found[-1])
        self.assertAllClose(
            found, averages(weights, decay), rtol=1e-5, atol=1e-6
        )

    def test_averages_take_the_place_of_the_weights_and_leave_it_exactly(self):
        for strategy in (tf.distribute.get_strategy(), devices.strategy()):
            with strategy.scope():
                weight = tf.Variable([0.1, -0.0])
                object_ = optimizers.MovingAverage({"w": weight}, 0.9)
            object_.variables["w"].assign([0.3, 0.7])

            def values(variable, strategy=strategy):
                copies = strategy.experimental_local_results(variable)
                return [copy.numpy().tobytes() for copy in copies]

            both = weight, object_.variables["w"]
            before = [values(v) for v in both]
            with self.assertRaises(KeyboardInterrupt):
                with object_.in_place():
                    self.assertEqual([values(v) for v in both], before[::-1])
                    raise KeyboardInterrupt
            self.assertEqual([values(v) for v in both], before)

    def test_a_signal_in_the_exchange_waits_for_its_end(self):
        weight = tf.Variable([0.1])
        object_ = optimizers.MovingAverage({"w": weight}, 0.9)
        object_.variables["w"].assign([0.7])
        exchange = optimizers._exchange

        def interrupted(*variables):
            signals._handle(2, None)
            exchange(*variables)

        with (
            signals.caught(),
            self.assertRaises(KeyboardInterrupt),
            mock.patch.object(optimizers, "_exchange", interrupted),
            object_.in_place(),
        ):
            self.fail("The signal was lost.")
        self.assertAllClose(weight, [0.1], atol=1e-6)
        self.assertAllClose(object_.variables["w"], [0.7], atol=1e-6)


class RunTest(tiny_runs.TestCase):
    hparams = tiny_runs.HPARAMS.replace(
        learning_rate_warmup_steps=20,
        learning_rate_constant=3.0,
        moving_average_decay=0.7,
    )
    config = {"local_eval_frequency": 1}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # One run serves all tests.
        cls.trainer("whole", 4).train()

    def group(self, name, step, group):
        return {
            key.removeprefix(f"{group}/"): value
            for key, value in self.values_in(f"{name}/ckpt-{step}").items()
            if key.startswith(f"{group}/")
        }

    def test_all_but_training_use_the_averages(self):
        prefix = self.folder / "whole" / "ckpt-4"
        model = loading.load_model(prefix)
        averages_ = self.group("whole", 4, "moving_average")
        # Another run starts from the averages, weights and averages alike.
        other = self.trainer("warm", 4, warm_start_from=str(prefix))
        for variables in (
            {v.path: v for v in model.variables},
            {v.path: v for v in other.model.variables},
            other._state.optimizer.averages.variables,
        ):
            found = {name: v.numpy() for name, v in variables.items()}
            self.assert_equal_values(found, averages_)

    def test_an_evaluation_scores_the_averages_and_changes_nothing(self):
        scored = []

        def forced(model, dataset):
            del dataset
            scored.append({v.path: v.numpy() for v in model.variables})
            return {"loss": 1.0, "teacher_forced_accuracy": 0.5}

        def translate(own, lines, progress):
            return [mock.Mock(texts=["a b"])] * len(lines)

        with (
            mock.patch.object(evaluation, "teacher_forced", forced),
            mock.patch.object(translator.Translator, "translations", translate),
            mock.patch.object(terminal, "_LOG_SECONDS", 0),
            self.assertLogs("relpos_tf") as logs,
        ):
            trainer = self.trainer(
                "evaluated", 4, "average_checkpoints=2", **tiny_runs.EVALUATES
            )
            trainer.train()
            trainer.average()
        for step in range(1, 5):
            self.assert_equal_values(
                scored[step - 1],
                self.group("evaluated", step, "moving_average"),
            )
        self.assertIn("Evaluating dev: line 0/", "\n".join(logs.output))
        self.assert_same_values("evaluated/ckpt-4", "whole/ckpt-4")
        two = [self.group("whole", step, "moving_average") for step in (3, 4)]
        for name, value in scored[4].items():
            self.assertAllClose(
                value, (two[0][name] + two[1][name]) / 2, atol=1e-6
            )
