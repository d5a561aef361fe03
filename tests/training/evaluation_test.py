"""Scores against their definitions, and tensor2tensor's metrics."""

import functools

import numpy as np
import tensorflow as tf

from relpos_tf.decoding import translator as translator_lib
from relpos_tf.training import evaluation
from tests import testing
from tests import tiny_run

BATCHES = (
    ([[5, 7, 3, 11, 1], [9, 2, 1, 0, 0]], [[3, 8, 1], [12, 1, 0]]),
    ([[4, 1]], [[2, 2, 9, 7, 6, 10, 1]]),
)


@functools.cache  # Tracing takes seconds.
def tiny_translator():
    return translator_lib.Translator.load(tiny_run.path())


def dataset():
    for inputs, targets in BATCHES:
        yield {"inputs": tf.constant(inputs), "targets": tf.constant(targets)}


class TeacherForcedTest(tf.test.TestCase):
    def test_every_token_has_the_same_weight(self):
        model = tiny_translator().engine.model
        losses, hits = [], []
        for batch in dataset():
            logits = model(batch["inputs"], batch["targets"]).numpy()
            targets = batch["targets"].numpy()
            for b, t in zip(*targets.nonzero(), strict=True):
                row = logits[b, t].astype(np.float64)
                target = targets[b, t]
                losses.append(np.log(np.exp(row).sum()) - row[target])
                hits.append(row.argmax() == target)
        self.assertLen(losses, 12)
        found = evaluation.teacher_forced(model, dataset())
        self.assertEqual(found["target_tokens"], 12)
        self.assertAllClose(
            found["loss"], np.mean(losses), rtol=1e-5, atol=1e-6
        )
        self.assertAllClose(
            found["teacher_forced_accuracy"], np.mean(hits), atol=1e-6
        )


class TranslationTest(tf.test.TestCase):
    def test_log_probability_of_a_pair_is_that_of_the_pair_alone(self):
        engine = tiny_translator().engine
        pairs = [("7", "sieben"), ("twenty-one days", "x"), ("", "Tage " * 5)]
        found = engine.log_probabilities(pairs)
        for pair, (score, count) in zip(pairs, found, strict=True):
            inputs, targets = map(engine.tokenizer.encode, pair)
            self.assertEqual(count, len(targets))
            alone = {
                "inputs": tf.constant([inputs]),
                "targets": tf.constant([targets]),
            }
            forced = evaluation.teacher_forced(engine.model, [alone])
            self.assertAllClose(score, -forced["loss"] * count, 1e-4, 1e-6)


class Fixed:
    """Stands for a model: it answers with the logits it was given."""

    def __init__(self, logits):
        self.logits = logits

    def features(self, inputs, targets):
        return tf.constant(self.logits)

    def softmax_table(self):
        return tf.eye(self.logits.shape[-1])


class TeacherForcedT2tTest(tf.test.TestCase):
    def test_loss_accuracy_and_weights_of_tokens_are_equal(self):
        ((_, _, arrays),) = testing.t2t_cases("metrics", "t2t_training.npz")
        labels = arrays["in/labels"][:, :, 0, 0]  # [B, T]
        model = Fixed(arrays["in/logits"][:, :, 0, 0])  # [B, T, V]
        scores = evaluation.teacher_forced(
            model, [{"inputs": labels, "targets": labels}]
        )
        for name, expected in (
            ("loss", -arrays["out/neg_log_perplexity/mean"]),
            ("teacher_forced_accuracy", arrays["out/accuracy/mean"]),
        ):
            self.assertAllClose(scores[name], expected, 1e-5, 1e-6, name)
        weights = arrays["out/accuracy/weight"][:, :, 0, 0]
        self.assertAllEqual(weights, labels != 0)
        self.assertEqual(scores["target_tokens"], weights.sum())
