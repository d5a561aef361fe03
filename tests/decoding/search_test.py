"""Search with a model against search without a cache."""

import functools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.decoding import beam_search
from relpos_tf.decoding import search
from tests import tiny_run

VOCAB_SIZE = 13
INPUTS = np.array(
    [[5, 7, 3, 11, 1], [9, 2, 1, 0, 0], [4, 4, 8, 1, 0]], np.int32
)


def make_model(**changes):
    changes = {"vocab_size": VOCAB_SIZE} | changes
    return tiny_run.random_model(tiny_run.HPARAMS.replace(**changes), 3)


@functools.cache
def made(**changes):
    """Returns a model of `make_model` that no test may change."""
    return make_model(**changes)


def greedy(model, row, limit):
    """Takes the most probable id again and again, computing all anew."""
    ids, total = [], 0.0
    while len(ids) < limit and 1 not in ids:
        targets = tf.constant([[*ids, 2]])  # the last one is not seen
        logits = model(tf.constant([row]), targets)[0, -1].numpy()
        log_probs = logits - np.log(np.exp(logits.astype(np.float64)).sum())
        ids.append(int(np.argmax(log_probs)))
        total += float(log_probs.max())
    return ids, total


def strip(row):
    """Returns a row of the result without the zeros behind the last id."""
    row = row.tolist()
    return row[: row.index(1) + 1] if 1 in row else np.trim_zeros(row, "b")


class DecodingTest(tf.test.TestCase, parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = made()

    @parameterized.parameters("none", "timing", "emb")
    def test_one_beam_is_greedy_search(self, pos):
        model = made(pos=pos)
        limits = [11, 7, 5]
        ids, scores = search.search(
            model, INPUTS, tf.constant(limits), beam_size=1, alpha=0.0
        )
        for row, limit, found, score in zip(
            INPUTS, limits, ids[:, 0].numpy(), scores[:, 0].numpy(), strict=True
        ):
            expected, total = greedy(model, row, limit)
            self.assertEqual(strip(found), expected)
            self.assertAllClose(score, total, atol=1e-4)

    @parameterized.parameters(1, 3)
    def test_cached_search_equals_search_with_full_passes(self, n_best):
        limits = tf.constant([11, 7, 5])

        def full_pass(ids):
            rows = tf.repeat(tf.constant(INPUTS), 3, axis=0)
            # `ids` begins with the initial 0; its last successor is asked for.
            targets = tf.pad(ids[:, 1:], [[0, 0], [0, 1]], constant_values=2)
            return self.model(rows, targets)[:, -1]

        ids, scores = search.search(
            self.model, INPUTS, limits, beam_size=3, alpha=0.6, n_best=n_best
        )
        want_ids, want_scores, _ = beam_search.beam_search(
            full_pass,
            tf.zeros([3], tf.int32),
            3,
            limits,
            VOCAB_SIZE,
            0.6,
            stop_early=n_best == 1,
        )
        self.assertAllEqual(ids, want_ids[:, :n_best, 1:])
        self.assertAllClose(scores, want_scores[:, :n_best], atol=1e-4)

    def test_score_is_log_probability_over_length_penalty(self):
        ids, scores = search.search(
            self.model,
            INPUTS,
            tf.constant([11, 7, 5]),
            beam_size=3,
            alpha=0.6,
            n_best=3,
        )
        checked = 0
        for b, n in np.ndindex(3, 3):
            beam = ids[b, n]
            if 1 not in beam.numpy():
                continue
            log_prob = search.log_probabilities(
                self.model, INPUTS[b : b + 1], beam[tf.newaxis]
            )[0]
            penalty = ((5 + len(strip(beam.numpy()))) / 6) ** 0.6
            self.assertAllClose(scores[b, n], log_prob / penalty, atol=1e-4)
            checked += 1
        self.assertGreaterEqual(checked, 3)

    def test_log_probability_is_the_sum_over_tokens(self):
        targets = np.array([[3, 8, 1, 0], [12, 1, 0, 0], [2, 2, 9, 1]])
        found = search.log_probabilities(self.model, INPUTS, targets)
        for b in range(3):
            expected = 0.0
            rows = self.model(INPUTS[b : b + 1], targets[b : b + 1])[0]
            for token, row in zip(targets[b], rows.numpy(), strict=True):
                row = row.astype(np.float64)
                log_probs = row - np.log(np.exp(row).sum())
                expected += log_probs[token] * (token != 0)
            self.assertAllClose(found[b], expected, atol=1e-4)

    def test_neighbours_and_padding_do_not_matter(self):
        limits = np.array([11, 7, 5])
        ids, scores = search.search(
            self.model, INPUTS, limits, beam_size=3, alpha=0.6
        )
        for b in range(3):
            alone, score = search.search(
                self.model,
                INPUTS[b : b + 1, : np.count_nonzero(INPUTS[b])],
                limits[b : b + 1],
                beam_size=3,
                alpha=0.6,
            )
            self.assertEqual(
                strip(ids[b, 0].numpy()), strip(alone[0, 0].numpy())
            )
            self.assertAllClose(scores[b], score[0], atol=1e-5)

    def test_limits_are_kept_and_zero_gives_nothing(self):
        ids, scores = search.search(
            self.model, INPUTS, tf.constant([0, 2, 3]), beam_size=3, alpha=0.6
        )
        lengths = tf.math.count_nonzero(ids[:, 0], axis=1).numpy()
        self.assertEqual(lengths[0], 0)
        self.assertEqual(scores[0, 0], 0.0)
        self.assertLessEqual(lengths[1], 2)
        self.assertLessEqual(lengths[2], 3)

    def test_translate_ids_counts_from_the_padded_length(self):
        # No end is in sight, so the limit alone decides.
        model = make_model()
        model.softmax_embedding.embeddings.assign(
            model.softmax_embedding.embeddings.value
            * (tf.range(VOCAB_SIZE) != 1)[:, tf.newaxis].numpy()
        )
        ids, _ = search.translate_ids(
            model, INPUTS, beam_size=1, alpha=0.6, decode_length=2
        )
        self.assertEqual(tuple(ids.shape), (3, 1, 7))
        for b in range(2):
            expected, _ = greedy(model, INPUTS[b], 7)
            self.assertEqual(strip(ids[b, 0].numpy()), expected)

    def test_best_translation_does_not_depend_on_how_many_are_wanted(self):
        options = {"beam_size": 3, "alpha": 0.6, "decode_length": 3}
        one, score = search.translate_ids(self.model, INPUTS, **options)
        more, scores = search.translate_ids(
            self.model, INPUTS, n_best=3, **options
        )
        for b in range(3):
            self.assertEqual(
                strip(one[b, 0].numpy()), strip(more[b, 0].numpy())
            )
        self.assertAllClose(score[:, 0], scores[:, 0], atol=1e-5)

    @parameterized.parameters((14, 1), (0, 1), (3, 4), (3, 0))
    def test_impossible_numbers_are_refused(self, beam_size, n_best):
        with self.assertRaisesRegex(ValueError, "Received: n_best="):
            search.translate_ids(
                self.model,
                INPUTS,
                beam_size=beam_size,
                alpha=0.6,
                decode_length=2,
                n_best=n_best,
            )


if __name__ == "__main__":
    tf.test.main()
