"""Tests of dropout: its rate, its scale, and where its masks come from."""

import contextlib
import itertools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.layers import dropout
from tests import testing
from tests.layers.schemes import floats

SHAPE = (101, 103)  # an odd number of numbers: masks are drawn in pairs


def mask(layer, scope=None):
    """Returns the mask of a dropout, True where numbers are kept."""
    with scope or contextlib.nullcontext():
        return layer(tf.ones(SHAPE), training=True).numpy() != 0


def scope(*seed):
    return dropout.seed_scope(tf.constant(seed or (3, 5)))


def assert_rate(case, kept, rate):
    """Checks the rate of each row and column; returns how far it may be off.

    Five standard deviations of a draw.
    """
    slack = 5 * np.sqrt(rate * (1 - rate))
    case.assertAllClose(np.mean(~kept), rate, atol=slack / 101)
    for axis in (0, 1):
        case.assertAllClose(
            np.mean(~kept, axis), [rate] * SHAPE[1 - axis], atol=slack / 10
        )
    return slack


class DropoutTest(testing.LayerTestCase):
    @parameterized.parameters(0.1, 0.3, 0.5, 0.9)
    def test_drops_its_rate_of_each_row_and_column(self, rate):
        kept = mask(dropout.Dropout(rate), scope())
        slack = assert_rate(self, kept, rate)
        # Neighbours are drawn as halves of one number: they must not agree.
        both = kept[:, :-1] & kept[:, 1:]
        self.assertAllClose(np.mean(both), (1 - rate) ** 2, atol=slack / 50)

    def test_kept_numbers_and_gradients_are_scaled_to_keep_the_mean(self):
        x = tf.constant(1.0 + np.abs(testing.normal(2, *SHAPE)), tf.float32)
        with tf.GradientTape() as tape:
            tape.watch(x)
            with scope():
                y = dropout.Dropout(0.25)(x, training=True)
        kept = y.numpy() != 0
        self.assertAllClose(y[kept], x[kept] / 0.75, rtol=1e-6, atol=1e-6)
        self.assertAllClose(np.mean(y), np.mean(x), rtol=0.03, atol=1e-6)
        self.assertAllClose(tape.gradient(y, x), kept / 0.75, atol=1e-6)

    @parameterized.parameters(dropout.Dropout, dropout.SymbolDropout)
    def test_nothing_is_dropped_without_training_or_rate(self, kind):
        x = floats(3, 5, 7, 2)
        self.assertAllEqual(kind(0.5)(x), x)
        self.assertAllEqual(kind(0.0)(x, training=True), x)

    def test_every_site_in_a_scope_draws_its_own_mask(self):
        layers = [dropout.Dropout(0.5) for _ in range(2)]
        with scope():
            # One layer that is called twice is two sites.
            masks = [mask(layer) for layer in (*layers, layers[0])]
        for one, other in itertools.combinations(masks, 2):
            self.assert_independent(one, other)

    def test_outside_a_scope_every_call_draws_another_mask(self):
        layer = dropout.Dropout(0.5)
        self.assert_independent(mask(layer), mask(layer))
        function = tf.function(lambda x: layer(x, training=True))
        ones = tf.ones(SHAPE)
        self.assert_independent(
            function(ones).numpy() != 0, function(ones).numpy() != 0
        )

    def test_a_graph_draws_the_masks_of_its_seed_argument(self):
        layer = dropout.Dropout(0.5)

        @tf.function
        def drop(x, seed):
            with dropout.seed_scope(seed):
                return layer(x, training=True)

        for seed in (3, 5), (3, 6):
            dropped = drop(tf.ones(SHAPE), tf.constant(seed)).numpy()
            self.assertAllEqual(dropped != 0, mask(layer, scope(*seed)))

    def test_replicas_draw_different_masks(self):
        cpus = [cpu.name for cpu in tf.config.list_logical_devices("CPU")]
        self.assertLen(cpus, 2)
        strategy = tf.distribute.MirroredStrategy(
            cpus, cross_device_ops=tf.distribute.ReductionToOneDevice()
        )
        layer = dropout.Dropout(0.5)

        @tf.function
        def drop():
            replica = tf.distribute.get_replica_context()
            seed = tf.random.experimental.stateless_fold_in(
                tf.constant([3, 5]), replica.replica_id_in_sync_group
            )
            ones = tf.ones(SHAPE)
            with dropout.seed_scope(seed):
                first = layer(ones, training=True)
                # Each replica is traced in a thread of its own, in turns that
                # change here: each must come back to its own scope.
                replica.merge_call(lambda strategy: None)
                return first, layer(ones, training=True)

        dropped = [
            strategy.experimental_local_results(site)
            for site in strategy.run(drop)
        ]
        for replica in range(2):
            seed = tf.random.experimental.stateless_fold_in(
                tf.constant([3, 5]), replica
            )
            with dropout.seed_scope(seed):
                for site in dropped:
                    self.assertAllEqual(
                        site[replica], layer(tf.ones(SHAPE), training=True)
                    )
        for site in dropped:
            self.assert_independent(*[replica.numpy() != 0 for replica in site])

    @parameterized.parameters("float32", "bfloat16", "float16")
    def test_a_rate_just_below_1_stays_finite(self, dtype):
        layer = dropout.Dropout(np.nextafter(1.0, 0.0), dtype=dtype)
        x = tf.fill([1009, 1013], tf.cast(0.01, dtype))
        with tf.GradientTape() as tape:
            tape.watch(x)
            with scope():
                y = layer(x, training=True)
        gradient = tf.cast(tape.gradient(y, x), tf.float64)
        y = tf.cast(y, tf.float64).numpy()
        # One in 32,768 is kept at the least: 31 here, give or take.
        kept = y[y != 0]
        self.assertBetween(len(kept), 10, 60)
        self.assertAllClose(
            kept, np.full(len(kept), 327.68), rtol=0.01, atol=1e-6
        )
        self.assertAllEqual(gradient, np.where(y != 0, 32768.0, 0.0))

    def assert_independent(self, first, second):
        """Two fair masks agree in half of the places, give or take."""
        self.assertAllClose(np.mean(first == second), 0.5, atol=0.03)


class SymbolDropoutTest(testing.LayerTestCase):
    @parameterized.parameters(0.1, 0.5, 0.9)
    def test_drops_its_rate_of_whole_vectors_of_each_row(self, rate):
        x = 1.0 + np.abs(testing.normal(2, *SHAPE, 7)).astype(np.float32)
        with scope():
            y = dropout.SymbolDropout(rate)(x, training=True).numpy()
        kept = y[:, :, 0] != 0
        self.assertAllEqual(y, x * kept[:, :, np.newaxis])
        assert_rate(self, kept, rate)

    def test_the_first_symbols_of_a_row_may_be_kept(self):
        layer, x = dropout.SymbolDropout(0.9), tf.ones([*SHAPE, 2])
        kept = np.arange(SHAPE[0]) % 3
        with scope():
            plain = layer(x, training=True).numpy()
        with scope():
            y = layer(x, training=True, kept=tf.constant(kept)).numpy()
        is_first = np.arange(SHAPE[1]) < kept[:, np.newaxis]
        self.assertAllEqual(y, np.where(is_first[..., np.newaxis], x, plain))
        self.assertGreater((y != plain).sum(), 50)

    def test_without_a_rate_it_leaves_the_seeds_of_later_layers_alone(self):
        found = []
        for number in range(2):
            with scope():
                y = tf.ones([2, *SHAPE])
                for _ in range(number):
                    y = dropout.SymbolDropout(0.0)(y, training=True)
                found.append(dropout.Dropout(0.5)(y, training=True))
        self.assertAllEqual(*found)
