"""Search with a model against search without a cache."""

import functools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.decoding import beam_search
from relpos_tf.decoding import constraints
from relpos_tf.decoding import search
from tests import tiny_run

VOCAB_SIZE = 13
INPUTS = tf.constant([[5, 7, 3, 11, 1], [9, 2, 1, 0, 0], [4, 4, 8, 1, 0]])
LENGTHS = tf.constant([11, 7, 5])
BEAMS = {"beam_size": 3, "alpha": 0.6}
RELATIVE = {"pos": "none"}
# tests/models has cached steps of every kind.
KINDS = {
    "relative": RELATIVE | {"heads_share_relative_embedding": True},
    "absolute": {"self_attention_type": "dot_product"},
    "layer": {"localness": "layer", "localness_layers": 0}
    | {"attention_window": 3}
    | RELATIVE,
    # Distances in the decoder to which the last bucket and the clipped vector
    # belong.
    "t5_bias": {
        "self_attention_type": "dot_product_relative_bias",
        "relative_attention_num_buckets": 4,
        "relative_attention_max_distance": 3,
    }
    | RELATIVE,
}


def make_model(seed=3, **changes):
    changes = {"vocab_size": VOCAB_SIZE, "num_hidden_layers": 1} | changes
    return tiny_run.random_model(tiny_run.HPARAMS.replace(**changes), seed)


@functools.cache
def made(kind="absolute", **changes):
    """Returns a model that no test may change."""
    return make_model(**(KINDS[kind] | changes))


def scale_softmax(model, scales):
    """Multiplies the vector of each of some ids; returns the model."""
    table = model.softmax_embedding.embeddings.value
    factors = np.ones([table.shape[0], 1], np.float32)
    for piece, scale in scales.items():
        factors[piece] = scale
    table.assign(table * factors)
    return model


def favour_padding(model):
    """Makes padding the most probable id everywhere; returns the model."""
    path = "decoder_layer_0/ffn_residual/after_norm/beta"
    (beta,) = (v for v in model.variables if v.path.endswith(path))
    # The features of a position add up to their number, 16.
    beta.assign(tf.ones_like(beta))
    table = model.softmax_embedding.embeddings.value
    is_padding = tf.range(table.shape[0])[:, tf.newaxis] == 0
    table.assign(tf.where(is_padding, 0.5, table))
    return model


def strip(row):
    """Returns a row of the result without the zeros behind the last id."""
    row = np.asarray(row).tolist()
    return row[: row.index(1) + 1] if 1 in row else np.trim_zeros(row, "b")


def scores_of(model, ids, alpha):
    """Returns the scores `[B, N]` of ids `[B, N, T]`, by full passes."""
    lengths = [[len(strip(row)) for row in rows] for rows in ids.numpy()]
    log_probs = [
        search.log_probabilities(model, INPUTS, ids[:, n])
        for n in range(ids.shape[1])
    ]
    return tf.stack(log_probs, 1) / ((5 + np.array(lengths)) / 6) ** alpha


def full_passes(model, limits):
    """Searches with the whole model for each id; returns all hypotheses."""

    def step(ids, i, states, shared):
        inputs, _ = shared
        rows = tf.repeat(inputs, 3, axis=0)
        # `ids` begins with the initial 0; its last successor is asked for.
        targets = tf.pad(ids[:, 1:], [[0, 0], [0, 1]], constant_values=2)
        return model(rows, targets)[:, -1], states

    def constrain(ids, i, log_probs, shared):
        rows = tf.repeat(shared[1], 3, axis=0)
        return constraints.force_prefix(log_probs, i, rows, log_probs)

    settings = beam_search.Search(
        step,
        limits.limits,
        3,
        VOCAB_SIZE,
        0.6,
        stop_early=False,
        shared=(INPUTS, limits.prefix),
        constrain=constrain,
    )
    first = tf.zeros([len(INPUTS)], tf.int32)
    ids, scores, _ = beam_search.run(settings, first)
    return ids[:, :, 1:], scores


class SearchTest(tf.test.TestCase, parameterized.TestCase):
    def assert_equal_rows(self, found, expected):
        """Compares ids `[B, N, T]`, but for the zeros behind them."""
        for rows, others in zip(found.numpy(), expected.numpy(), strict=True):
            self.assertEqual([*map(strip, rows)], [*map(strip, others)])

    @parameterized.parameters(*KINDS)
    def test_cached_search_with_a_prefix_equals_full_passes(self, kind):
        model = made(kind)
        prefix = tf.constant([[4, 4, 9], [0] * 3, [3, 0, 0]])
        limits = constraints.Constraints(LENGTHS, prefix)
        expected = full_passes(model, limits)
        self.assertAllEqual(expected[0][0, :, :3], [[4, 4, 9]] * 3)
        self.assertAllEqual(expected[0][2, :, 0], [3] * 3)
        ids, scores = search.search(model, INPUTS, limits, n_best=3, **BEAMS)
        self.assertAllEqual(ids, expected[0])
        self.assertAllClose(scores, expected[1], atol=1e-4)

    @parameterized.parameters("relative", "layer", "t5_bias")
    def test_constant_shapes_find_the_same(self, kind):
        ids, scores = search.search(
            made(kind), INPUTS, LENGTHS, n_best=3, **BEAMS
        )
        found_ids, found_scores = search.search(
            made(kind), INPUTS, LENGTHS, n_best=3, max_length=13, **BEAMS
        )
        self.assert_equal_rows(found_ids, ids)
        self.assertAllClose(found_scores, scores, atol=1e-5)

    def test_a_search_is_over_or_has_no_result_when_its_room_is_used(self):
        options = {**BEAMS, "n_best": 1}
        expected = search.search(made(), INPUTS, LENGTHS, **options)
        lost = 0
        for room in range(1, 13):
            ids, scores = search.search(
                made(), INPUTS, LENGTHS, max_length=room, **options
            )
            for b, row in enumerate(ids[:, 0].numpy()):
                if scores[b, 0] > beam_search.NO_HYPOTHESIS:
                    self.assertEqual(
                        strip(row), strip(expected[0][b, 0].numpy())
                    )
                    self.assertNear(scores[b, 0], expected[1][b, 0], 1e-5)
                else:
                    self.assertAllEqual(row, [0] * room)
                    self.assertLess(room, LENGTHS[b])
                    lost += 1
        self.assertBetween(lost, 1, 35)

    def test_sentences_leave_the_batch_without_a_trace(self):
        inputs = tf.random.stateless_uniform(
            [13, 5], [1, 2], 2, VOCAB_SIZE, tf.int32
        )
        lengths = tf.random.stateless_uniform([13], [3, 4], 0, 17, tf.int32)
        options = {"beam_size": 4, "alpha": 0.6}
        expected = search.search(
            made(), inputs, lengths, n_best=4, shrink_at=0.0, **options
        )
        for n_best, shrink_at in ((4, 0.5), (4, 0.97), (1, 0.5)):
            ids, scores = search.search(
                made(),
                inputs,
                lengths,
                n_best=n_best,
                shrink_at=shrink_at,
                **options,
            )
            self.assert_equal_rows(ids, expected[0][:, :n_best])
            self.assertAllClose(scores, expected[1][:, :n_best], atol=1e-5)

    @parameterized.parameters(
        (3, 1, False), (7, 5, False), (5, 3, True), (7, VOCAB_SIZE, True)
    )
    def test_no_padding_and_scores_are_log_probabilities(
        self, seed, beam_size, is_padding_best
    ):
        model = scale_softmax(make_model(seed), {1: 0.1})
        if is_padding_best:
            favour_padding(model)
        ids, scores = search.search(
            model,
            INPUTS,
            LENGTHS,
            beam_size=beam_size,
            alpha=0.0,
            n_best=beam_size,
        )
        for b, n in np.ndindex(3, beam_size):
            row = strip(ids[b, n])
            self.assertNotIn(0, row)
            self.assertTrue(1 in row or len(row) == LENGTHS[b])
        self.assertAllClose(scores, scores_of(model, ids, 0.0), atol=1e-4)

    def test_as_in_tensor2tensor_padding_is_an_id_as_any_other(self):
        model = favour_padding(scale_softmax(make_model(), {1: 0.1}))
        ids, scores = search.translate_ids(
            model, INPUTS, decode_length=2, **BEAMS
        )
        self.assertAllEqual(ids[:, 0, 0], [0] * 3)
        self.assertAllGreater(scores[:, 0], beam_search.NO_HYPOTHESIS)
