"""What may be asked of a search: prefixes, lengths, n-grams, chance."""

import functools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.decoding import beam_search
from relpos_tf.decoding import constraints
from relpos_tf.decoding import sampling
from relpos_tf.decoding import search
from relpos_tf.utils import graphs
from tests.decoding import search_test

V = search_test.VOCAB_SIZE
INPUTS = tf.constant(search_test.INPUTS)
KINDS = {
    # With two layers.
    "relative": {"pos": "none", "heads_share_relative_embedding": True},
    "per_head": {"num_hidden_layers": 1, "pos": "none"},
    "absolute": {
        "num_hidden_layers": 1,
        "self_attention_type": "dot_product",
    },
    "learned": {
        "num_hidden_layers": 1,
        "self_attention_type": "dot_product",
        "pos": "emb",
        "max_length": 6,
    },
}
strip = search_test.strip


@functools.cache
def talkative_model(scale, **changes):
    """Returns a model that seldom ends, and is the less sure the less scale."""
    model = search_test.make_model(**({"num_hidden_layers": 1} | changes))
    table = model.softmax_embedding.embeddings.value
    end = 1.0 - 0.9 * tf.one_hot(1, V)  # random_model made it likely
    table.assign(scale * table * end[:, tf.newaxis])
    return model


def uncached(model, inputs, limits, beam_size, alpha):
    """Beam search that runs the whole model for each id."""

    def full_pass(ids):
        rows = tf.repeat(inputs, beam_size, axis=0)
        targets = tf.pad(ids[:, 1:], [[0, 0], [0, 1]], constant_values=2)
        return model(rows, targets)[:, -1]

    context = search.Context((), (), (), limits.prefix)
    ids, scores, _ = beam_search.beam_search(
        full_pass,
        tf.zeros([len(inputs)], tf.int32),
        beam_size,
        limits.lengths,
        V,
        alpha,
        stop_early=False,
        constrain=lambda ids, i, log_probs, _: limits.constrain(
            ids, i, log_probs, context
        ),
    )
    return ids[:, :, 1:], scores


class OptionsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(*KINDS)
    def test_cached_search_with_a_prefix_equals_full_passes(self, kind):
        model = search_test.made(**KINDS[kind])
        limits = constraints.Limits(
            tf.constant([11, 7, 5]),
            tf.constant([[4, 4, 9], [0] * 3, [3, 0, 0]]),
        )
        want_ids, want_scores = uncached(model, INPUTS, limits, 3, 0.6)
        self.assertAllEqual(want_ids[0, :, :3], [[4, 4, 9]] * 3)
        self.assertAllEqual(want_ids[2, :, 0], [3] * 3)
        for shrink_at in (0.0, 0.5, 0.9) if kind == "relative" else (0.5,):
            ids, scores = search.search(
                model,
                INPUTS,
                limits,
                beam_size=3,
                alpha=0.6,
                n_best=3,
                shrink_at=shrink_at,
            )
            self.assertAllEqual(ids, want_ids)
            self.assertAllClose(scores, want_scores, atol=1e-4)

    @parameterized.parameters(*KINDS)
    def test_step_with_a_preallocated_cache_equals_the_full_pass(self, kind):
        model = search_test.made(**KINDS[kind])
        targets = tf.constant([[4, 9, 2, 7, 3], [8, 3, 6, 1, 0], [5] * 5])
        expected = model(INPUTS, targets)
        shifted = tf.pad(targets, [[0, 0], [1, 0]])
        for max_length in (None, 5, 8):
            cache = model.init_cache(INPUTS, max_length=max_length)
            # A prefix of two at once, then one by one.
            logits, cache = model.step(shifted[:, :2], cache, 0)
            rows = [logits]
            for i in range(2, 5):
                logits, cache = model.step(shifted[:, i : i + 1], cache, i)
                rows.append(logits)
            self.assertAllClose(tf.concat(rows, 1), expected, atol=1e-4)

    def test_sentences_leave_the_batch_without_a_trace(self):
        model = search_test.made(num_hidden_layers=1)
        inputs = tf.random.stateless_uniform([13, 5], [1, 2], 2, V, tf.int32)
        lengths = tf.random.stateless_uniform([13], [3, 4], 0, 17, tf.int32)
        found = [
            search.search(
                model,
                inputs,
                lengths,
                beam_size=4,
                alpha=0.6,
                n_best=n_best,
                shrink_at=shrink_at,
            )
            for n_best, shrink_at in ((4, 0.0), (4, 0.5), (4, 0.97), (1, 0.5))
        ]
        for ids, scores in found[1:3]:
            self.assertAllEqual(ids, found[0][0])
            self.assertAllClose(scores, found[0][1], atol=1e-5)
        for ids, _ in found[3:]:
            # The best one, which does not depend on how many are wanted.
            for one, best in zip(ids[:, 0], found[0][0][:, 0], strict=True):
                self.assertEqual(strip(one.numpy()), strip(best.numpy()))

    @parameterized.parameters(*KINDS)
    def test_caches_that_follow_hypotheses_find_the_same(self, kind):
        model = search_test.made(**KINDS[kind])
        lengths = tf.constant([11, 7, 5])
        options = {"beam_size": 3, "alpha": 0.6, "n_best": 3}
        ids, scores = search.search(model, INPUTS, lengths, **options)
        for max_length in (None, 11, 13) if kind == "relative" else (None, 13):
            found = search.search_fixed(
                model, INPUTS, lengths, max_length=max_length, **options
            )
            self.assertAllEqual(found[0], ids)
            self.assertAllClose(found[1], scores, atol=1e-5)

    def test_xla_finds_the_same(self):
        model = search_test.made(num_hidden_layers=1)
        lengths = [11, 7, 5]

        @graphs.function(jit_compile=True)
        def compiled():
            return search.search_fixed(
                model, INPUTS, lengths, max_length=11, beam_size=3, alpha=0.6
            )

        ids, scores = search.search(
            model, INPUTS, lengths, beam_size=3, alpha=0.6
        )
        found = compiled()
        # XLA cannot shorten its result: zeros follow.
        length = ids.shape[2]
        self.assertAllEqual(found[0][:, :, :length], ids)
        self.assertFalse(np.any(found[0][:, :, length:]))
        self.assertAllClose(found[1], scores, atol=1e-5)

    def test_no_end_before_the_least_length(self):
        model = search_test.made(num_hidden_layers=1)
        free, _ = search.search(model, INPUTS, [11] * 3, beam_size=3, alpha=0.0)
        shortest = min(len(strip(row)) for row in free[:, 0].numpy())
        self.assertLess(shortest, 7)
        limits = constraints.Limits(tf.constant([11] * 3), min_length=7)
        ids, scores = search.search(
            model, INPUTS, limits, beam_size=3, alpha=0.0
        )
        self.assertFalse(np.any(ids[:, 0, :7] == 1))
        for b in range(3):
            self.assertAllClose(
                scores[b],
                search.log_probabilities(model, INPUTS[b : b + 1], ids[b, :1]),
                atol=1e-4,
            )

    def test_no_n_gram_twice(self):
        # With tied embeddings, it repeats itself.
        model = talkative_model(
            1.0,
            num_hidden_layers=2,
            shared_embedding_and_softmax_weights=True,
        )
        lengths = tf.constant([12] * 3)

        def repeats(row, size):
            row = strip(row)
            grams = [tuple(row[i : i + size]) for i in range(len(row))]
            grams = [gram for gram in grams if len(gram) == size]
            return len(grams) - len(set(grams))

        free, _ = search.search(model, INPUTS, lengths, beam_size=3, alpha=0.6)
        for size in (1, 2, 3):
            free_repeats = [repeats(row, size) for row in free[:, 0].numpy()]
            self.assertGreater(sum(free_repeats), 0)
            ids, _ = search.search(
                model,
                INPUTS,
                constraints.Limits(lengths, no_repeat_ngram_size=size),
                beam_size=3,
                alpha=0.6,
                n_best=3,
            )
            self.assertGreater(ids.shape[2], size)
            for row in ids.numpy().reshape([9, -1]):
                self.assertEqual(repeats(row, size), 0)

    @parameterized.parameters("argmax", "random")
    def test_prefix_that_repeats_itself_is_kept(self, method):
        model = talkative_model(0.3)
        prefix = [[4, 9, 4, 9, 4], [3, 3, 3, 0, 0], [0, 0, 0, 0, 0]]
        limits = constraints.Limits(
            tf.constant([11, 7, 5]),
            tf.constant(prefix),
            min_length=2,
            no_repeat_ngram_size=1,
        )
        if method == "random":
            ids, scores = search.sample(
                model,
                INPUTS,
                limits,
                tf.range(3),
                how=sampling.Sampling(),
                alpha=0.6,
                n_best=2,
            )
        else:
            ids, scores = search.search(
                model, INPUTS, limits, beam_size=3, alpha=0.6, n_best=2
            )
        for b, n in np.ndindex(3, 2):
            row, begun = strip(ids[b, n].numpy()), strip(np.array(prefix[b]))
            self.assertEqual(row[: len(begun)], begun)
            rest = row[len(begun) :]
            self.assertLen({*rest, *begun}, len(rest) + len(set(begun)))
            log_prob = search.log_probabilities(
                model, INPUTS[b : b + 1], tf.constant([row])
            )[0]
            penalty = ((5 + len(row)) / 6) ** 0.6
            self.assertAllClose(scores[b, n], log_prob / penalty, atol=1e-4)

    @parameterized.parameters(1, 3)
    def test_least_length_with_too_few_pieces_finds_nothing(self, beam_size):
        # Without repetition there are V ids and no more, and no end before.
        limits = constraints.Limits(
            tf.constant([2, V + 3, V + 5]),
            min_length=V + 1,
            no_repeat_ngram_size=1,
        )
        ids, scores = search.search(
            talkative_model(0.3),
            INPUTS,
            limits,
            beam_size=beam_size,
            alpha=0.6,
        )
        self.assertNotAllEqual(ids[0], tf.zeros_like(ids[0]))
        self.assertAllEqual(ids[1:], tf.zeros_like(ids[1:]))
        self.assertAllEqual(scores[1:], [[beam_search.NO_HYPOTHESIS]] * 2)

    def test_brute_force_with_a_prefix_on_a_tiny_vocabulary(self):
        model = search_test.made(vocab_size=5, num_hidden_layers=1)
        inputs = tf.constant([[3, 4, 1]])
        limits = constraints.Limits(tf.constant([4]), tf.constant([[3]]))
        ids, scores = search.search(
            model, inputs, limits, beam_size=5, alpha=0.6, n_best=1
        )
        # As many beams as there are hypotheses would be 5^3; the model is
        # asked about every one of them.
        every = [
            [3, *rest[: rest.index(1) + 1]]
            for a in range(5)
            for b in range(5)
            for c in range(5)
            if 1 in (rest := [a, b, c])
        ]
        every = sorted({tuple(one) for one in every if 0 not in one})
        log_probs = search.log_probabilities(
            model,
            tf.repeat(inputs, len(every), axis=0),
            tf.constant([[*one, 0, 0][:4] for one in every]),
        )
        found = {
            one: float(log_prob) / ((5 + len(one)) / 6) ** 0.6
            for one, log_prob in zip(every, log_probs, strict=True)
        }
        best = max(found, key=found.get)
        self.assertEqual(tuple(strip(ids[0, 0].numpy())), best)
        self.assertAllClose(scores[0, 0], found[best], atol=1e-4)


class SampleTest(tf.test.TestCase, parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = talkative_model(0.3)

    def sample(self, inputs, numbers, lengths=(11, 7, 5), n_best=2, **how):
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
            self.model, INPUTS, [11, 7, 5], beam_size=1, alpha=0.6
        )
        for found, expected in zip(ids, want_ids, strict=True):
            self.assertEqual(
                strip(found[0].numpy()), strip(expected[0].numpy())
            )
        self.assertAllClose(scores, want_scores, atol=1e-4)

    def test_scores_are_the_models_and_sorted(self):
        ids, scores = self.sample(
            INPUTS, [0, 1, 2], n_best=4, temperature=2.0, top_p=0.9
        )
        self.assertAllEqual(scores, -np.sort(-scores, axis=1))
        for n in range(4):
            log_probs = search.log_probabilities(
                self.model, INPUTS, ids[:, n]
            ).numpy()
            for b in range(3):
                penalty = ((5 + len(strip(ids[b, n].numpy()))) / 6) ** 0.6
                expected = log_probs[b] / penalty
                self.assertAllClose(scores[b, n], expected, atol=1e-4)

    def test_seed_and_number_decide_and_neighbours_do_not(self):
        ids, scores = self.sample(INPUTS, [5, 6, 7], seed=3)
        alone, score = self.sample(INPUTS[1:2], [6], lengths=[7], seed=3)
        for n in range(2):
            self.assertEqual(
                strip(ids[1, n].numpy()), strip(alone[0, n].numpy())
            )
        self.assertAllClose(scores[1], score[0], atol=1e-5)
        for changed in ({"seed": 4}, {"numbers": [8, 9, 10]}):
            arguments = {"numbers": [5, 6, 7], "seed": 3} | changed
            other, _ = self.sample(INPUTS, **arguments)
            self.assertNotAllEqual(other[..., :3].numpy(), ids[..., :3].numpy())

    def test_least_length_with_too_few_pieces_draws_nothing(self):
        # Without repetition there are V - 1 ids to draw, and no end before.
        limits = constraints.Limits(
            tf.constant([2, V + 3, 0]), min_length=V, no_repeat_ngram_size=1
        )
        ids, scores = search.sample(
            self.model,
            INPUTS,
            limits,
            tf.range(3),
            how=sampling.Sampling(),
            alpha=0.6,
            n_best=2,
        )
        self.assertAllEqual(np.count_nonzero(ids[0], axis=1), [2, 2])
        self.assertAllEqual(ids[1:], tf.zeros_like(ids[1:]))
        self.assertAllEqual(scores[1], [beam_search.NO_HYPOTHESIS] * 2)
        self.assertAllEqual(scores[2], [0.0] * 2)
        self.assertTrue(np.all(scores[0] > beam_search.NO_HYPOTHESIS))

    @parameterized.parameters("search", "sample")
    def test_empty_batch_has_empty_results(self, method):
        limits = constraints.Limits(
            tf.zeros([0], tf.int32),
            tf.zeros([0, 2], tf.int32),
            no_repeat_ngram_size=2,
        )
        inputs = tf.zeros([0, 5], tf.int32)
        if method == "sample":
            found = search.sample(
                self.model,
                inputs,
                limits,
                tf.zeros([0], tf.int32),
                how=sampling.Sampling(),
                alpha=0.6,
                n_best=2,
            )
        else:
            found = search.search(
                self.model, inputs, limits, beam_size=3, alpha=0.6, n_best=2
            )
        self.assertEqual([len(found[0]), found[0].shape[1]], [0, 2])
        self.assertEqual(found[1].shape, (0, 2))


if __name__ == "__main__":
    tf.test.main()
