"""Tests of beam search: against brute force and greedy search.

The model of these tests is a table: the logits of the next id are what it says
of the last id and of the one before, at a position of an example. The model
knows ids from its states alone.

Shapes: B batch, N beams, V vocabulary, L longest limit, T ids so far.
"""

import itertools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.decoding import beam_search

EOS = 1
NONE = beam_search.NO_HYPOTHESIS


def step(ids, i, states, tables=None):
    """Returns the logits `[B * N, V]`, and the states with the last ids.

    The tables `[B, L, V, V]` are shared by the beams, or repeated for them in
    the states.
    """
    past = tf.concat([states["past"], ids[:, -1:, tf.newaxis]], axis=1)
    if tables is None:
        tables = states["tables"]
    tables = tf.gather(tables, i, axis=1)  # [B or B * N, V, V]
    beams = tf.shape(ids)[0] // tf.maximum(tf.shape(tables)[0], 1)
    tables = tf.repeat(tables, beams, axis=0)
    logits = sum(
        tf.gather(tables, past[:, place, 0], batch_dims=1)
        for place in (i, tf.maximum(i - 1, 0))
    )
    return logits, states | {"past": past}


def random_tables(*shape, seed=0):
    tables = np.random.default_rng(seed).normal(size=shape, scale=1.5)
    return tables.astype(np.float32)


def search(
    tables, limits, beam_size, alpha=0.6, first=None, shrink_at=0.0, **options
):
    """Searches as tensor2tensor within one limit, or within own limits.

    Returns ids and scores.
    """
    batch_size, _, _, vocab_size = tables.shape
    first = tf.zeros([batch_size], tf.int32) if first is None else first
    states = {"past": tf.zeros([batch_size, 0, 1], tf.int32)}
    limits = tf.constant(limits, tf.int32)
    if limits.shape.rank == 0:
        return beam_search.beam_search(
            step,
            first,
            beam_size,
            limits,
            vocab_size,
            alpha,
            states | {"tables": tables},
            **options,
        )[:2]
    settings = beam_search.Search(
        step, limits, beam_size, vocab_size, alpha, shared=tables, **options
    )
    return beam_search.run(settings, first, states, shrink_at)[:2]


def log_prob(tables, ids):
    """The log-probability of one hypothesis, [L, V, V] and ids with first."""
    total = 0.0
    for i, (last, following) in enumerate(itertools.pairwise(ids)):
        logits = tables[i, last].astype(np.float64)
        logits = logits + tables[i, ids[max(i - 1, 0)]]
        total += logits[following] - np.log(np.sum(np.exp(logits)))
    return total


def penalty(length, alpha):
    return ((5 + length) / 6) ** alpha


def brute_force(tables, limit, alpha, first_id):
    """All hypotheses of one example: sorted finished, sorted unfinished.

    They consist of the ids from `first_id` on.
    """
    finished, unfinished = [], []
    for length in range(1, limit + 1):
        every = range(first_id, tables.shape[-1])
        for ids in itertools.product(every, repeat=length):
            if EOS in ids[:-1]:
                continue
            score = log_prob(tables, (0, *ids)) / penalty(length, alpha)
            if ids[-1] == EOS:
                finished.append((score, (0, *ids)))
            elif length == limit:
                unfinished.append((score, (0, *ids)))
    return sorted(finished, reverse=True), sorted(unfinished, reverse=True)


def trimmed(ids, hypothesis):
    """Returns ids cut to a hypothesis' length, if only zeros follow."""
    ids = ids.numpy()
    size = len(ids) if ids[len(hypothesis) :].any() else len(hypothesis)
    return tuple(ids[:size].tolist())


class BruteForceTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.product(
        alpha=(0.0, 0.6, 1.0), vocab_size=(2, 4), shrink_at=(0.0, 0.7)
    )
    def test_wide_beam_finds_all_without_padding_within_each_limit(
        self, alpha, vocab_size, shrink_at
    ):
        limits = [3, 1, 0, 2, 3]
        tables = random_tables(5, 3, vocab_size, vocab_size)
        tables[:, :, :, 0] += 3.0  # Padding would be the best choice.
        ids, scores = search(
            tables,
            limits,
            41,  # more than there are hypotheses
            alpha,
            shrink_at=shrink_at,
            stop_early=False,
        )
        for b, limit in enumerate(limits):
            finished, unfinished = brute_force(tables[b], limit, alpha, 1)
            expected = finished + unfinished if limit else [(0.0, (0,))]
            for n, (score, hypothesis) in enumerate(expected):
                self.assertEqual(trimmed(ids[b, n], hypothesis), hypothesis)
                self.assertAllClose(scores[b, n], score, 1e-5, 1e-5)
            rest = ids[b, len(expected) :]
            self.assertAllEqual(rest, tf.zeros_like(rest))
            self.assertAllEqual(scores[b, len(expected) :], [NONE] * len(rest))

    @parameterized.parameters(0.0, 0.6, 1.0)
    def test_wide_beam_finds_all_finished_hypotheses(self, alpha):
        tables = random_tables(1, 3, 3, 3, seed=1)
        ids, scores = search(tables, 3, 27, alpha, stop_early=False)
        finished, _ = brute_force(tables[0], 3, alpha, 0)
        for n, (score, hypothesis) in enumerate(finished):
            self.assertEqual(trimmed(ids[0, n], hypothesis), hypothesis)
            self.assertAllClose(scores[0, n], score, 1e-5, 1e-5)
        self.assertAllEqual(scores[0, len(finished) :], [NONE] * 20)

    @parameterized.parameters((3,), ([3, 3, 3, 3, 3, 2, 1, 3, 3, 3, 3],))
    def test_early_stop_keeps_the_best_hypothesis(self, limits):
        tables = random_tables(11, 3, 3, 3, seed=2)
        late = search(tables, limits, 27, stop_early=False)
        early = search(tables, limits, 27, stop_early=True)
        length = early[0].shape[-1]
        self.assertAllEqual(early[0][:, 0], late[0][:, 0, :length])
        self.assertAllClose(early[1][:, 0], late[1][:, 0], 1e-6, 1e-6)


class BeamSearchTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.product(
        alpha=(0.0, 0.6), limits=([7] * 5, [7, 1, 2, 7, 5], [3, 7, 7, 7, 7])
    )
    def test_one_beam_is_greedy(self, alpha, limits):
        tables = random_tables(5, 7, 11, 11, seed=3)
        tables[:, :, :, EOS] += 0.7  # Some end, some do not.
        first = [3, 0, 6, 0, 10]
        ids, scores = search(tables, limits, 1, alpha, tf.constant(first))
        lengths = set()
        for b, limit in enumerate(limits):
            greedy = [first[b]]
            while len(greedy) <= limit and greedy[-1] != EOS:
                every = [log_prob(tables[b], (*greedy, v)) for v in range(11)]
                greedy.append(int(np.argmax(every[1:])) + 1)
            self.assertEqual(trimmed(ids[b, 0], greedy), tuple(greedy))
            expected = log_prob(tables[b], greedy)
            expected /= penalty(len(greedy) - 1, alpha)
            self.assertAllClose(scores[b, 0], expected, 1e-5, 1e-5)
            lengths.add((len(greedy), greedy[-1] == EOS))
        self.assertGreater(len(lengths), 2)

    @parameterized.parameters((True, 0.0), (True, 0.5), (False, 0.9))
    def test_neighbours_change_neither_ids_nor_scores(
        self, stop_early, shrink_at
    ):
        tables = random_tables(7, 13, 11, 11, seed=6)
        tables[:4, :, :, EOS] += 2.0  # These end early.
        limits = np.array([13, 5, 11, 13, 2, 7, 13])
        options = {"beam_size": 3, "stop_early": stop_early}
        ids, scores = search(tables, limits, shrink_at=shrink_at, **options)
        steps = set()
        for b in range(7):
            alone = search(tables[b : b + 1], limits[b : b + 1], **options)
            length = alone[0].shape[-1]
            steps.add(length)
            self.assertAllEqual(ids[b, :, :length], alone[0][0])
            self.assertFalse(ids[b, :, length:].numpy().any())
            # Vectorized exp and log may round the last bits otherwise: those
            # of summands of up to 6, also where their sum is 0.02.
            self.assertAllClose(scores[b], alone[1][0], 1e-6, 3e-6)
        self.assertGreater(len(steps), 3)

    def test_unfinished_scores_carry_the_penalty_only_with_own_limits(self):
        tables = random_tables(2, 5, 11, 11, seed=7)
        tables[:, :, :, :2] = -30.0  # neither padding nor EOS
        expected_ids, raw = search(tables, 5, 3)
        ids, scores = search(tables, [5, 5], 3)
        self.assertAllEqual(ids, expected_ids)
        log_probability = log_prob(tables[1], ids[1, 0].numpy())
        self.assertAllClose(raw[1, 0], log_probability, 1e-5, atol=1e-6)
        self.assertAllClose(scores, raw / penalty(5, 0.6), 1e-6, atol=1e-6)

    def test_tensor2tensors_states_are_those_of_the_beams(self):
        tables = random_tables(3, 5, 7, 7, seed=9)
        tables[:, :, :, EOS] = -30.0
        ids, _, states = tf.function(beam_search.beam_search)(
            step,
            tf.zeros([3], tf.int32),
            *(3, 5, 7, 0.6),
            {"past": tf.zeros([3, 0, 1], tf.int32), "tables": tables},
        )
        self.assertAllEqual(states["past"][..., 0], ids[:, :, :-1])
        self.assertAllEqual(states["tables"][:, 1], tables)

    @parameterized.parameters(
        ({"initial_ids": [[0]]}, r"Received: initial_ids \(1, 1\)"),
        ({"decode_length": [5, 5]}, r"decode_length \[\] or \[batch\]"),
        ({"beam_size": 0}, "beam_size=0"),
        ({"vocab_size": 1}, "vocab_size=1"),
        ({"alpha": -0.5}, "alpha=-0.5"),
        ({"eos_id": 7}, "eos_id=7"),
        ({"eos_id": 0, "decode_length": [5]}, "eos_id=0"),
        ({"vocab_size": 5}, r"shape \[..., 5\]. Received: shape \(3, 7\)"),
    )
    def test_bad_arguments_are_named(self, changes, message):
        arguments = {"initial_ids": [0], "beam_size": 3, "decode_length": 5}
        arguments |= {"vocab_size": 7, "alpha": 0.6} | changes
        with self.assertRaisesRegex(ValueError, message):
            beam_search.beam_search(lambda _: tf.zeros([3, 7]), **arguments)

    @parameterized.parameters((1.0, [5]), (-0.5, [5]), (0.5, 5))
    def test_a_share_at_which_no_search_ends_is_refused(self, share, limits):
        search = beam_search.Search(None, tf.constant(limits), 3, 7, 0.6)
        with self.assertRaisesRegex(ValueError, f"shrink_at={share}"):
            beam_search.run(search, tf.constant([0]), shrink_at=share)


class StopTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        # The best of each is at -1, which no alive one can reach.
        (True, 7, [False, False]),
        (True, [7, 7], [False, False]),
        # The worst of each are at -5 and -2, the worst of the batch at -5.
        (False, 7, [False, True]),
        (False, [7, 7], [False, False]),
    )
    def test_alive_are_compared_with_the_worst_of_batch_or_example(
        self, stop_early, limits, is_open
    ):
        settings = beam_search.Search(
            step, tf.constant(limits), 2, 3, 0.0, stop_early=stop_early
        )
        hypotheses = beam_search.Hypotheses(
            alive_ids=None,
            alive_log_probs=tf.constant([[-9.0, -9.5], [-3.0, -8.0]]),
            finished_ids=None,
            finished_scores=tf.constant([[-1.0, -5.0], [-1.0, -2.0]]),
            finished_flags=tf.fill([2, 2], True),
        )
        self.assertAllEqual(beam_search.is_open(settings, hypotheses), is_open)
        state = beam_search.BeamState(tf.constant(5), hypotheses, states=())
        active = is_open if isinstance(limits, list) else any(is_open)
        self.assertAllEqual(beam_search.is_active(settings, state), active)

    @parameterized.parameters(
        (7, 1, [0, 2, 2, 2, 2, 2, 2, 1]),
        (7, 2, [0, 2, 2, 2, 2, 2, 2, 1]),
        ([7], 2, [0, 2, 2, 2, 2, 2, 2, 1]),
        ([7], 1, [0, 1]),  # greedy
        (1, 2, [0, 1]),
    )
    def test_a_longer_hypothesis_may_still_win(self, limits, beam_size, best):
        # EOS has the probability 6/11 at once, or surely after six times 2:
        # ln(6/11) = -0.61 against ln(5/11) / (12 / 6) = -0.39 at alpha 1.
        probs = np.full([7, 3], 1e-9, np.float32)
        probs[0, 1:] = 6 / 11, 5 / 11
        probs[1:6, 2] = probs[6, 1] = 1
        tables = np.log(probs)[np.newaxis, :, np.newaxis] / 2
        tables = np.repeat(tables, 3, axis=2)  # whatever the last id
        ids, scores = search(tables, limits, beam_size, 1.0)
        self.assertAllEqual(ids[0, 0], best)
        expected = np.log(6 / 11) if len(best) == 2 else np.log(5 / 11) / 2
        self.assertAllClose(scores[0, 0], expected, atol=1e-6)

    def test_an_early_stop_leaves_no_cut_off_hypotheses(self):
        logits = np.log([0.01, 0.98, 0.01]).astype(np.float32) / 2
        ids, scores = search(np.tile(logits, [1, 7, 3, 1]), [7], 2)
        self.assertAllEqual(ids, [[[0, 1], [0, 0]]])
        self.assertAllClose(scores, [[np.log(0.98), NONE]], atol=1e-6)
