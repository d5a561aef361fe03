"""Tests of the whole model, against NumPy and against itself.

Shapes: B batch, S source length, T target length, V vocabulary, F features,
H heads, R rows of a relative table.
"""

import itertools
import json
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.layers import dropout
from relpos_tf.layers.positions import scheme
from relpos_tf.models import transformer
from relpos_tf.utils import graphs
from tests import oracles
from tests import testing
from tests.models import example

V = example.V


class TransformerTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        ("per_head", 4, [2, 5, 6]),
        ("shared", 4, [5, 6]),
        ("t5_bias", 2, [8, 2]),
        ("learned", 2, [4, 12]),
    )
    def test_positions_have_variables_that_sinusoids_do_not_need(
        self, name, number, shape
    ):
        found, absolute = (
            {
                (v.path, *v.shape)
                for v in transformer.Transformer(
                    example.small(kind, num_hidden_layers=1)
                ).variables
            }
            for kind in (name, "absolute")
        )
        shapes = [one for _, *one in found - absolute]
        self.assertEqual(shapes, [shape] * number)

    @parameterized.parameters(*example.VARIANTS)
    def test_logits_equal_the_whole_model_in_numpy(self, name):
        model = example.made(name)
        with tf.GradientTape() as tape:
            logits = model(*example.BATCH)
            loss = tf.reduce_sum(tf.square(logits))
        variables = [v.value for v in model.trainable_variables]
        self.assertLen(variables, len(model.variables))
        for v, gradient in zip(
            model.variables, tape.gradient(loss, variables), strict=True
        ):
            self.assertIsNotNone(gradient, v.path)
            if "relative_positions" in v.path:
                self.assertIsInstance(gradient, tf.Tensor, v.path)
            gradient = tf.convert_to_tensor(gradient)
            self.assertGreater(float(tf.norm(gradient)), 1e-4, v.path)
        expected = oracles.transformer_logits(
            testing.named_weights(model),
            model.hparams,
            example.INPUTS,
            example.TARGETS,
        )
        self.assertEqual(logits.dtype, tf.float32)
        self.assertAllClose(logits, expected, rtol=1e-4, atol=1e-4)

    @parameterized.parameters("per_head", "learned", "untied")
    def test_copy_from_its_config_is_equal(self, name):
        model = example.made(name)
        config = json.loads(json.dumps(model.get_config()))
        copy = transformer.Transformer.from_config(config)
        self.assertEqual(copy.hparams, model.hparams)
        copy.set_weights(model.get_weights())
        self.assertAllEqual(copy(*example.BATCH), model(*example.BATCH))


class ShiftTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters("absolute", "relative_and_absolute")
    def test_training_sees_the_sinusoids_from_a_drawn_position_on(self, name):
        model = transformer.Transformer(
            example.small(
                name,
                num_hidden_layers=1,
                max_position_shift=2,
                layer_prepostprocess_dropout=0.0,
            )
        )
        testing.randomize(model)
        by_shifts = {
            shifts: oracles.transformer_logits(
                testing.named_weights(model),
                model.hparams,
                example.INPUTS,
                example.TARGETS,
                shifts,
            )
            for shifts in itertools.product(range(3), repeat=2)
        }
        self.assertAllClose(model(*example.BATCH), by_shifts[0, 0], 1e-4, 1e-4)
        found = []
        for seed in range(13):
            with dropout.seed_scope(tf.constant([seed, 5])):
                logits = model(*example.BATCH, training=True)
            for row in range(len(example.INPUTS)):
                distances = {
                    shifts: np.max(np.abs(logits[row] - expected[row]))
                    for shifts, expected in by_shifts.items()
                }
                nearest, next_one = sorted(distances, key=distances.get)[:2]
                self.assertLess(distances[nearest], 1e-4)
                self.assertGreater(distances[next_one], 1e-3)
                found.append(nearest)
        # 39 rows have 8 or 9 of the 9 pairs, unless shifts were the same for
        # all rows of a batch, or for source and target.
        self.assertGreater(len(set(found)), 7, found)


class DropoutTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        "layer_prepostprocess_dropout", "attention_dropout", "relu_dropout"
    )
    def test_each_rate_acts_in_training_and_nowhere_else(self, name):
        rates = dict.fromkeys(
            (
                "layer_prepostprocess_dropout",
                "attention_dropout",
                "relu_dropout",
            ),
            0.0,
        )
        hparams = example.small("per_head", num_hidden_layers=1, **rates)
        plain = transformer.Transformer(hparams)
        model = transformer.Transformer(hparams.replace(**{name: 0.5}))
        model.set_weights(plain.get_weights())
        expected = plain(*example.BATCH)
        self.assertAllEqual(plain(*example.BATCH, training=True), expected)
        self.assertAllEqual(model(*example.BATCH), expected)
        results = []
        for seed in (3, 5), (3, 5), (3, 6):
            with dropout.seed_scope(tf.constant(seed)):
                results.append(model(*example.BATCH, training=True))
        self.assertNotAllClose(results[0], expected, atol=0.01)
        self.assertAllEqual(results[0], results[1])
        self.assertNotAllClose(results[0], results[2], atol=0.01)

    @parameterized.parameters("target_space", "untied")
    def test_dropped_symbols_have_zero_embeddings_and_are_attended(self, name):
        rates = {"layer_prepostprocess_dropout": 0.0, "symbol_dropout": 0.4}
        model = transformer.Transformer(example.small(name, **rates))
        inputs, targets = example.BATCH
        shifted = tf.pad(targets, [[0, 0], [1, 0]])[:, :-1]
        seed = tf.constant([3, 7])
        with dropout.seed_scope(seed):
            found = model.features(inputs, targets, training=True)
        # The layer alone draws the same masks: the source's, the target's.
        layer = dropout.SymbolDropout(0.4)
        with dropout.seed_scope(seed):
            kept = [
                layer(tf.ones([*ids.shape, 1]), training=True).numpy()
                for ids in (inputs, targets)
            ]
        # A dropped id is as another one whose embedding is zero.
        zero = 21  # not in the batch
        for layer in (model.source_embedding, model.target_embedding):
            table = layer.embeddings.value
            table.assign(tf.where(tf.range(V)[:, None] == zero, 0.0, table))
        inputs, shifted = (
            tf.where((ids != 0) & (mask[:, :, 0] == 0), zero, ids)
            for ids, mask in zip((inputs, shifted), kept, strict=True)
        )
        for ids in (inputs, shifted):
            self.assertBetween(tf.math.count_nonzero(ids == zero), 1, 9)
        # No feature depends on the last target.
        expected = model.features(inputs, tf.roll(shifted, -1, axis=1))
        self.assertAllClose(found, expected, rtol=1e-5, atol=1e-6)


class CacheTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters("reshape", "gather")
    def test_layers_that_look_up_together_equal_layers_alone(self, name):
        model = example.made(name)
        tables = [v.value for v in model.variables if "relative" in v.path]

        def compute(*batch):
            with tf.GradientTape() as tape:
                logits = model(*batch, training=True)  # without dropout
                loss = tf.reduce_sum(tf.square(logits))
            return logits, tape.gradient(loss, tables)

        def run():
            graph = graphs.function(compute).get_concrete_function(
                *example.BATCH
            )
            ops = graph.graph.get_operations()
            products = [op for op in ops if "MatMul" in op.type]
            return graph(*example.BATCH), len(products)

        together, products = run()
        with mock.patch.object(scheme, "share"):
            alone, more_products = run()
        self.assertAllClose(together, alone, 1e-5, 1e-5)
        self.assertLess(products, more_products)

    @parameterized.parameters(
        *("per_head", "absolute", "learned", "pre_norm", "t5_bias"),
        *("localness_layer", "k_apart", "relative_decoder", "kerple"),
        *("fire", "transformer_xl"),
    )
    def test_steps_equal_rows_of_the_full_pass(self, name):
        model = example.made(name)
        inputs, targets = example.BATCH
        before = tf.pad(targets, [[0, 0], [1, 0]])[:, :-1]
        # Cache that grows or not; end of each step, after a prefix or none.
        for max_length, ends in ((None, (1, 2, 5, 7)), (7, (3, 4, 7))):
            cache = model.init_cache(inputs, max_length)
            rows, start = [], 0
            for end in ends:
                logits, cache = model.step(before[:, start:end], cache, start)
                rows.append(logits)
                start = end
            self.assertAllClose(
                tf.concat(rows, 1),
                example.logits(name),
                atol=2e-5,
                msg=f"{max_length}",
            )
