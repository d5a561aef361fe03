"""What may be asked of a search: prefixes, lengths, n-grams, chance."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.decoding import beam_search
from relpos_tf.decoding import constraints
from relpos_tf.decoding import sampling
from relpos_tf.decoding import search
from tests.decoding import search_test

V = search_test.VOCAB_SIZE
INPUTS = search_test.INPUTS
LENGTHS = search_test.LENGTHS
strip = search_test.strip


def talkative_model(scale, **changes):
    """Returns a model that seldom ends, and is the less sure the less scale."""
    scales = dict.fromkeys(range(V), scale) | {1: 0.1 * scale}
    model = search_test.make_model(**changes)
    return search_test.scale_softmax(model, scales)


def translate(method, model, inputs, limits, n_best=2):
    """Searches or samples; returns ids and scores."""
    if method == "search":
        return search.search(
            model, inputs, limits, beam_size=3, alpha=0.6, n_best=n_best
        )
    return search.sample(
        model,
        inputs,
        limits,
        tf.range(len(inputs)),
        how=sampling.Sampling(),
        alpha=0.6,
        n_best=n_best,
    )


class OptionsTest(tf.test.TestCase, parameterized.TestCase):
    def test_no_end_before_the_least_length(self):
        model = search_test.made()
        free, _ = translate("search", model, INPUTS, [11] * 3)
        self.assertLess(min(len(strip(row)) for row in free[:, 0]), 7)
        limits = constraints.Constraints(tf.constant([11] * 3), min_length=7)
        ids, scores = translate("search", model, INPUTS, limits)
        self.assertNotIn(1, ids[:, :, :6].numpy())
        expected = search_test.scores_of(model, ids, 0.6)
        self.assertAllClose(scores, expected, atol=1e-4)

    @parameterized.parameters("search", "sample")
    def test_prefix_that_repeats_itself_is_kept(self, method):
        model = talkative_model(0.3)
        prefix = [[4, 9, 4, 9, 4], [3, 3, 3, 0, 0], [0, 0, 0, 0, 0]]
        limits = constraints.Constraints(
            LENGTHS, tf.constant(prefix), min_length=2, no_repeat_ngram_size=1
        )
        ids, scores = translate(method, model, INPUTS, limits)
        for b, n in np.ndindex(3, 2):
            row, begun = strip(ids[b, n]), strip(prefix[b])
            self.assertEqual(row[: len(begun)], begun)
            rest = row[len(begun) :]
            self.assertLen({*rest, *begun}, len(rest) + len(set(begun)))
        expected = search_test.scores_of(model, ids, 0.6)
        self.assertAllClose(scores, expected, atol=1e-4)

    @parameterized.parameters("search", "sample")
    def test_least_length_with_too_few_pieces_finds_nothing(self, method):
        # Without repetition there are V - 1 ids, and no end before.
        limits = constraints.Constraints(
            tf.constant([2, V + 3, 0]), min_length=V, no_repeat_ngram_size=1
        )
        ids, scores = translate(method, talkative_model(0.3), INPUTS, limits)
        self.assertAllEqual(np.count_nonzero(ids[0], axis=1), [2, 2])
        self.assertAllEqual(ids[1:], tf.zeros_like(ids[1:]))
        self.assertAllGreater(scores[0], beam_search.NO_HYPOTHESIS)
        self.assertAllEqual(scores[1], [beam_search.NO_HYPOTHESIS] * 2)
        self.assertEqual(scores[2, 0], 0.0)

    @parameterized.parameters("search", "sample")
    def test_empty_batch_has_empty_results(self, method):
        limits = constraints.Constraints(
            tf.zeros([0], tf.int32),
            tf.zeros([0, 2], tf.int32),
            no_repeat_ngram_size=2,
        )
        inputs = tf.zeros([0, 5], tf.int32)
        ids, scores = translate(method, search_test.made(), inputs, limits)
        self.assertEqual([len(ids), ids.shape[1]], [0, 2])
        self.assertEqual(scores.shape, (0, 2))


class SampleTest(tf.test.TestCase, parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = talkative_model(0.3)

    def sample(self, inputs, numbers, lengths=LENGTHS, n_best=2, **how):
        return search.sample(
            self.model,
            inputs,
            tf.constant(lengths),
            tf.constant(numbers),
            how=sampling.Sampling(**how),
            alpha=0.6,
            n_best=n_best,
        )

    def test_one_id_to_draw_from_is_greedy_search(self):
        ids, scores = self.sample(INPUTS, [0, 1, 2], top_k=1, n_best=1)
        want_ids, want_scores = search.search(
            self.model, INPUTS, LENGTHS, beam_size=1, alpha=0.6
        )
        for found, expected in zip(ids, want_ids, strict=True):
            self.assertEqual(strip(found[0]), strip(expected[0]))
        self.assertAllClose(scores, want_scores, atol=1e-4)

    def test_scores_are_the_models_and_sorted(self):
        ids, scores = self.sample(
            INPUTS, [0, 1, 2], n_best=4, temperature=2.0, top_p=0.9
        )
        self.assertAllEqual(scores, -np.sort(-scores, axis=1))
        expected = search_test.scores_of(self.model, ids, 0.6)
        self.assertAllClose(scores, expected, atol=1e-4)

    def test_seed_and_number_decide_and_neighbours_do_not(self):
        ids, scores = self.sample(INPUTS, [5, 6, 7], seed=3)
        alone, score = self.sample(INPUTS[1:2], [6], lengths=[7], seed=3)
        for n in range(2):
            self.assertEqual(strip(ids[1, n]), strip(alone[0, n]))
        self.assertAllClose(scores[1], score[0], atol=1e-5)
        for changed in ({"seed": 4}, {"numbers": [8, 9, 10]}):
            arguments = {"numbers": [5, 6, 7], "seed": 3} | changed
            other, _ = self.sample(INPUTS, **arguments)
            self.assertNotAllEqual(other[..., :3].numpy(), ids[..., :3].numpy())
