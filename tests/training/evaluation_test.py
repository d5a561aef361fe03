"""Scores against their definitions, and tensor2tensor's metrics."""

import functools

import numpy as np
import tensorflow as tf

from relpos_tf.decoding import translator as translator_lib
from relpos_tf.training import evaluation
from tests import testing
from tests import tiny_run


@functools.cache  # Tracing takes seconds.
def tiny_translator():
    return translator_lib.Translator.load(tiny_run.path())


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
    """Stands for a model: it answers a source with a row of given logits."""

    def __init__(self, logits):
        self.logits = logits

    def features(self, inputs, targets):
        logits = tf.gather(self.logits, inputs[:, 0])  # [B, T, V]
        return logits[:, : tf.shape(targets)[1]]

    def softmax_table(self):
        return tf.eye(self.logits.shape[-1])


class TeacherForcedT2tTest(tf.test.TestCase):
    def test_loss_accuracy_and_weights_of_tokens_are_equal(self):
        ((_, _, arrays),) = testing.t2t_cases("metrics", "t2t_training.npz")
        labels = arrays["in/labels"][:, :, 0, 0]  # [B, T]
        model = Fixed(arrays["in/logits"][:, :, 0, 0])  # [B, T, V]
        batches = []
        for rows in (
            [0, 3],
            [1, 2],
        ):  # of unlike lengths: each token counts alike
            ids = labels[rows]
            ids = ids[:, : np.count_nonzero(ids, axis=1).max()]
            sources = np.array(rows, np.int32)[:, np.newaxis]
            batches.append({"inputs": sources, "targets": ids})
        self.assertLen({batch["targets"].shape[1] for batch in batches}, 2)
        scores = evaluation.teacher_forced(model, batches)
        for name, expected in (
            ("loss", -arrays["out/neg_log_perplexity/mean"]),
            ("teacher_forced_accuracy", arrays["out/accuracy/mean"]),
        ):
            self.assertAllClose(scores[name], expected, 1e-5, 1e-6, name)
        weights = arrays["out/accuracy/weight"][:, :, 0, 0]
        self.assertAllEqual(weights, labels != 0)
        self.assertEqual(scores["target_tokens"], weights.sum())
