"""Tests of updates with two passes of each batch (R-Drop)."""

import functools

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.layers import dropout
from relpos_tf.layers import losses
from relpos_tf.models import transformer
from relpos_tf.training import train_step
from relpos_tf.utils import graphs
from tests import testing
from tests.campaigns import breakable
from tests.campaigns import replicas

testing.use_two_cpus()

R_DROP = replicas.HPARAMS.replace(r_drop_alpha=5.0, clip_grad_norm=0.3)
PLAIN = R_DROP.replace(r_drop_alpha=0.0)
DROPPED = R_DROP.replace(layer_prepostprocess_dropout=0.3, symbol_dropout=0.2)
# Its folded seeds are positive. From negative ones, XLA draws other masks.
SEED = (3, 6)
BATCH = replicas.batch(replicas.sentences(8)[0])
RANDOM = np.random.default_rng(1)


def unequal(x):
    """Changes the second half of `[2 B, ..]`, as other dropout masks would.

    Unlike masks, the change is the same for every split of a batch.
    """
    first, second = tf.split(x, 2)
    return tf.concat([first, 0.7 * second], 0)


class UnequalBag(breakable.BagOfWords):
    """A model with logits whose passes differ without dropout."""

    def call(self, inputs, targets, *, training=False):
        return unequal(super().call(inputs, targets, training=training))


class UnequalFeatures(breakable.BagWithFeatures):
    """A model with features whose passes differ without dropout."""

    def features(self, inputs, targets, *, training=False):
        return unequal(super().features(inputs, targets, training=training))


@functools.cache  # Tracing takes seconds.
def machine(count, number, hparams, kind, **options):
    return replicas.Machine(count, number, hparams, kind, **options)


@functools.cache
def gradients_of(hparams, **options):
    """Returns a model, and the result of a step's gradient function."""
    keras.utils.set_random_seed(7)
    model = breakable.BagWithFeatures(hparams)
    function = graphs.function(train_step._gradient_function(model), **options)
    batch = {name: tf.constant(ids) for name, ids in BATCH.items()}
    return model, function(batch, tf.constant(1.0), tf.constant(SEED, tf.int32))


class TwoPassesTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(breakable.BagOfWords, breakable.BagWithFeatures)
    def test_without_dropout_updates_are_those_of_one_pass(self, kind):
        found, _ = replicas.compare(
            machine(1, 1, R_DROP, kind), machine(1, 1, PLAIN, kind), "equal"
        )
        self.assertLess(found, replicas.TOLERANCE)

    @parameterized.parameters(
        (1, 2, UnequalBag), (2, 2, UnequalBag), (2, 1, UnequalFeatures)
    )
    def test_replicas_and_accumulation_equal_one_batch(
        self, count, number, kind
    ):
        reference = machine(1, 1, R_DROP, kind)
        for how in replicas.KINDS:
            found, _ = replicas.compare(
                machine(count, number, R_DROP, kind), reference, how
            )
            self.assertLess(found, replicas.TOLERANCE, how)

    @parameterized.parameters((1, 1, UnequalFeatures), (2, 2, UnequalBag))
    def test_broken_updates_change_nothing(self, count, number, kind):
        one = machine(count, number, R_DROP, kind)
        cases = replicas.all_cases if count == 1 else replicas.few_cases
        self.assertEmpty(replicas.breaks(one, cases(one.parts)))

    @parameterized.parameters(UnequalBag, UnequalFeatures)
    def test_the_logged_loss_is_the_mean_cross_entropy(self, kind):
        one = machine(1, 1, R_DROP, kind)
        one.reset()
        inputs, targets = BATCH.values()
        logits = one.model(*[np.concatenate([x, x]) for x in BATCH.values()])
        if kind is UnequalBag:
            passes = tf.split(logits, 2)
        else:
            plain = breakable.BagWithFeatures.features(
                one.model, inputs, targets
            )
            table = tf.transpose(one.model.softmax_table())
            passes = [plain @ table, 0.7 * plain @ table]
        expected = [
            losses.padded_cross_entropy(x, targets, R_DROP.label_smoothing)[0]
            for x in passes
        ]
        self.assertGreater(abs(float(expected[0] - expected[1])), 0.1)
        (result,) = one.train([[BATCH]])
        self.assertAllClose(result["loss"], np.mean(expected), rtol=1e-5)
        for place, name in enumerate(("source_tokens", "target_tokens")):
            tokens = np.count_nonzero((inputs, targets)[place])
            self.assertEqual(float(result[name]), tokens)

    @parameterized.parameters(
        {"layer_prepostprocess_dropout": 0.3}, {"symbol_dropout": 0.3}
    )
    def test_the_passes_have_different_masks(self, **rates):
        seen = []

        class Spy(transformer.Transformer):
            def features(self, inputs, targets, training=False):
                seen.append(super().features(inputs, targets, training))
                return seen[-1]

        model = Spy(R_DROP.replace(**rates))
        for seed in (3, 5), (3, 5), (3, 6):
            with dropout.seed_scope(tf.constant(seed)):
                train_step._two_passes(model, BATCH)
        first, second = tf.split(seen[0], 2)
        differ = np.abs(first - second).max(-1) > 1e-3
        if "layer_prepostprocess_dropout" in rates:
            self.assertTrue(np.all(differ[BATCH["targets"] != 0]))
        self.assertGreater(np.mean(np.any(differ, 1)), 0.5)
        self.assertAllEqual(seen[0], seen[1])
        self.assertNotAllClose(seen[0], seen[2], atol=1e-3)

    def test_alpha_0_is_one_pass_bit_for_bit(self):
        model, (total, gradients) = gradients_of(
            DROPPED.replace(r_drop_alpha=0.0, symbol_dropout=0.0)
        )
        variables = [v.value for v in model.trainable_variables]

        @tf.function
        def one_pass(inputs, targets):
            with (
                tf.GradientTape() as tape,
                dropout.seed_scope(tf.constant(SEED)),
            ):
                total, _ = losses.projected_cross_entropy(
                    model.features(inputs, targets, training=True),
                    model.softmax_table(),
                    targets,
                    DROPPED.label_smoothing,
                )
                loss = total / 1.0
            return total, [
                tf.convert_to_tensor(g) for g in tape.gradient(loss, variables)
            ]

        expected, its_gradients = one_pass(*BATCH.values())
        self.assertAllEqual(total, expected)
        for one, other in zip(gradients, its_gradients, strict=True):
            self.assertAllEqual(one, other)

    def test_the_divergence_changes_the_gradients(self):
        found = [
            gradients_of(DROPPED.replace(r_drop_alpha=alpha))[1]
            for alpha in (1e-6, 5.0)
        ]
        self.assertAllClose(found[0][0], found[1][0], rtol=1e-6)  # the logged
        both = [gradients for _, gradients in found]
        for one, other in zip(*both, strict=True):
            self.assertNotAllClose(one, other, rtol=0.01, atol=1e-3)

    def test_xla_computes_the_same_gradients(self):
        _, (total, gradients) = gradients_of(DROPPED)
        _, compiled = gradients_of(DROPPED, jit_compile=True)
        self.assertAllClose(compiled[0], total, rtol=1e-5)
        scale = 0.03 / tf.linalg.global_norm(gradients)
        for one, other in zip(gradients, compiled[1], strict=True):
            self.assertAllClose(
                scale * other, scale * one, rtol=1e-4, atol=1e-6
            )


if __name__ == "__main__":
    tf.test.main()
