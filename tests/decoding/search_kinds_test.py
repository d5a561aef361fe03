"""Search with localness, windows, directions and additive scores."""

import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.decoding import constraints
from relpos_tf.decoding import sampling
from relpos_tf.decoding import search
from tests.decoding import search_options_test
from tests.decoding import search_test

INPUTS = tf.constant(search_test.INPUTS)
LENGTHS = (7, 5, 3)
RELATIVE = {"pos": "none"}
KINDS = {
    "layer": {"localness": "layer", "attention_window": 3} | RELATIVE,
    "query": {"localness": "query", "encoder_attention_direction": "split"},
    "additive": {"attention_score": "additive"} | RELATIVE,
    # Distances in the decoder to which the last bucket and the clipped vector
    # belong.
    "t5_bias": {
        "self_attention_type": "dot_product_relative_bias",
        "relative_attention_num_buckets": 4,
        "relative_attention_max_distance": 3,
    }
    | RELATIVE,
    "apart": {
        "max_relative_position": 1,
        "max_relative_position_right": 3,
        "decoder_max_relative_position": 2,
        "decoder_pos": "timing",
    }
    | RELATIVE,
}


def made(kind):
    return search_test.make_model(num_hidden_layers=1, **KINDS[kind])


class KindsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(*KINDS)
    def test_search_with_a_prefix_equals_full_passes(self, kind):
        model = made(kind)
        limits = constraints.Limits(
            tf.constant(LENGTHS),
            tf.constant([[4, 4, 9], [0] * 3, [3, 0, 0]]),
        )
        ids, scores = search.search(
            model, INPUTS, limits, beam_size=3, alpha=0.6, n_best=3
        )
        want_ids, want_scores = search_options_test.uncached(
            model, INPUTS, limits, 3, 0.6
        )
        self.assertAllEqual(ids, want_ids)
        self.assertAllClose(scores, want_scores, atol=1e-4)

    @parameterized.parameters("layer", "t5_bias")
    def test_caches_that_follow_hypotheses_find_the_same(self, kind):
        model = made(kind)
        options = {"beam_size": 3, "alpha": 0.6, "n_best": 3}
        ids, scores = search.search(
            model, INPUTS, tf.constant(LENGTHS), **options
        )
        found = search.search_fixed(
            model, INPUTS, tf.constant(LENGTHS), max_length=7, **options
        )
        self.assertAllEqual(found[0], ids)
        self.assertAllClose(found[1], scores, atol=1e-5)

    def test_scores_of_what_is_drawn_are_the_models(self):
        model = made("layer")
        ids, scores = search.sample(
            model,
            INPUTS,
            tf.constant(LENGTHS),
            tf.range(3),
            how=sampling.Sampling(),
            alpha=0.0,
            n_best=2,
        )
        for n in range(2):
            self.assertAllClose(
                scores[:, n],
                search.log_probabilities(model, INPUTS, ids[:, n]),
                atol=1e-4,
            )

    def test_neighbours_and_padding_do_not_matter(self):
        model = made("layer")
        ids, scores = search.search(
            model, INPUTS, LENGTHS, beam_size=3, alpha=0.6
        )
        for b, size in enumerate((5, 3, 4)):
            alone, score = search.search(
                model,
                INPUTS[b : b + 1, :size],
                LENGTHS[b : b + 1],
                beam_size=3,
                alpha=0.6,
            )
            self.assertEqual(
                search_test.strip(ids[b, 0].numpy()),
                search_test.strip(alone[0, 0].numpy()),
            )
            self.assertAllClose(scores[b], score[0], atol=1e-5)


if __name__ == "__main__":
    tf.test.main()
