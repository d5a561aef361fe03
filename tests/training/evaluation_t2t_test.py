"""Scores of an evaluation equal tensor2tensor's metrics of the same name."""

import tensorflow as tf

from relpos_tf.training import evaluation
from tests import testing


class Fixed:
    """Stands for a model: it answers with the logits it was given."""

    def __init__(self, logits):
        self.logits = logits

    def features(self, inputs, targets):
        return tf.constant(self.logits)

    def softmax_table(self):
        return tf.eye(self.logits.shape[-1])


class TeacherForcedT2tTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        ((_, _, arrays),) = testing.t2t_cases("metrics", "t2t_training.npz")
        self.arrays = arrays
        self.labels = arrays["in/labels"][:, :, 0, 0]  # [B, T]
        model = Fixed(arrays["in/logits"][:, :, 0, 0])  # [B, T, V]
        self.scores = evaluation.teacher_forced(
            model, [{"inputs": self.labels, "targets": self.labels}]
        )

    def test_loss_is_the_negative_log_perplexity(self):
        self.assertAllClose(
            -self.scores["loss"],
            self.arrays["out/neg_log_perplexity/mean"],
            rtol=1e-5,
        )

    def test_accuracy_is_equal(self):
        self.assertAllClose(
            self.scores["teacher_forced_accuracy"],
            self.arrays["out/accuracy/mean"],
            rtol=1e-6,
        )

    def test_tokens_are_what_it_gives_a_weight(self):
        weights = self.arrays["out/accuracy/weight"][:, :, 0, 0]
        self.assertAllEqual(weights, self.labels != 0)
        self.assertEqual(self.scores["target_tokens"], weights.sum())
