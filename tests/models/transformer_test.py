"""Tests of the whole model, against NumPy and against itself.

Shapes: B batch, S source length, T target length, V vocabulary, F features,
H heads, R rows of a relative table.
"""

import itertools
import json

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.layers import dropout
from relpos_tf.models import transformer
from relpos_tf.utils import graphs
from tests import oracles
from tests import testing
from tests.models import example

V, F, H, R = example.V, example.F, example.H, example.R
LONGEST = example.LONGEST
TABLES = "relative_positions_keys", "relative_positions_values"


def of_both_stacks(shape, *names):
    """Returns the shapes of variables of self-attention, by path."""
    return {
        f"{stack}_layer_0/self_attention/{name}": shape
        for stack in ("encoder", "decoder")
        for name in names
    }


# Variables that the model with sinusoids does not have.
OTHER_VARIABLES = {
    "per_head": of_both_stacks((H, R, F // H), *TABLES),
    "shared": of_both_stacks((R, F // H), *TABLES),
    "t5_bias": of_both_stacks((8, H), "relative_attention_bias"),
    "learned": {
        f"{side}_positions/embeddings": (LONGEST, F)
        for side in ("source", "target")
    },
}


class TransformerTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(*OTHER_VARIABLES)
    def test_positions_have_their_variables(self, name):
        found, absolute = (
            {
                (v.path, *v.shape)
                for v in transformer.Transformer(
                    example.small(kind, num_hidden_layers=1)
                ).variables
            }
            for kind in (name, "absolute")
        )
        self.assertEqual(
            found - absolute,
            {
                (f"transformer/{path}", *shape)
                for path, shape in OTHER_VARIABLES[name].items()
            },
        )

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

    @parameterized.parameters("per_head", "learned", "pre_norm")
    def test_half_precision_is_close_and_keeps_float32_where_it_counts(
        self, name
    ):
        half = example.made(name, dtype="mixed_bfloat16")
        expected = example.logits(name)
        logits = half(*example.BATCH)
        self.assertEqual(logits.dtype, tf.float32)
        self.assertEqual({v.dtype for v in half.variables}, {"float32"})
        self.assertEqual(
            {part.compute_dtype for part in half._flatten_layers()},
            {"bfloat16"},
        )
        self.assertEqual(half.encode(example.BATCH[0]).dtype, tf.bfloat16)
        error = tf.norm(logits - expected) / tf.norm(expected)
        self.assertBetween(float(error), 1e-5, 0.05)


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
    @parameterized.parameters(
        *("per_head", "absolute", "learned", "pre_norm", "t5_bias"),
        *("localness_layer", "k_apart", "relative_decoder"),
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

    def test_a_step_of_one_position_writes_no_diagonals_in_any_layer(self):
        model = example.made("per_head")

        def diagonals(positions):
            def step(ids, inputs):
                cache = model.init_cache(inputs, max_length=11)
                return model.step(ids, cache, 0)[0]

            graph = graphs.function(step).get_concrete_function(
                tf.TensorSpec([None, positions], tf.int32),
                tf.TensorSpec([None, None], tf.int32),
            )
            kinds = [one.type for one in graph.graph.get_operations()]
            return kinds.count("MatrixSetDiagV3")

        self.assertEqual(diagonals(1), 0)
        # One in each layer, which shows that they are seen.
        self.assertEqual(diagonals(5), model.hparams.num_hidden_layers)
