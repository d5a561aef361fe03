"""Tests of beam search: against brute force and greedy search.

The model of these tests is a table: the logits of the next id depend on the
example, the position and the last id.

Shapes: B batch, N beams, V vocabulary, L longest limit, T ids so far.
"""

import itertools
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.decoding import beam_search

EOS = 1


def table_logits(ids, i, states):
    """Looks up the logits `[B * N, V]` in the tables `[B * N, L, V, V]`."""
    tables = tf.gather(states["tables"], i, axis=1)  # [B * N, V, V]
    return tf.gather(tables, ids[:, i], batch_dims=1), states


def random_tables(*shape, seed=0):
    tables = np.random.default_rng(seed).normal(size=shape, scale=2)
    return tables.astype(np.float32)


def search(tables, limits, beam_size, alpha=0.6, first=None, **options):
    """Runs `beam_search` on tables `[B, L, V, V]`; returns NumPy arrays."""
    first = np.zeros(len(tables)) if first is None else first
    ids, scores, _ = beam_search.beam_search(
        table_logits,
        tf.constant(first, tf.int32),
        beam_size,
        tf.constant(limits, tf.int32),
        tables.shape[-1],
        alpha,
        states={"tables": tf.constant(tables)},
        **options,
    )
    return ids.numpy(), scores.numpy()


def log_prob(tables, ids):
    """The log-probability of one hypothesis, [L, V, V] and ids with first."""
    total = 0.0
    for i, (last, following) in enumerate(itertools.pairwise(ids)):
        logits = tables[i, last].astype(np.float64)
        total += logits[following] - np.log(np.sum(np.exp(logits)))
    return total


def penalty(length, alpha):
    return ((5 + length) / 6) ** alpha


def brute_force(tables, limit, alpha):
    """All hypotheses of one example: sorted finished, sorted unfinished."""
    finished, unfinished = [], []
    for length in range(1, limit + 1):
        for ids in itertools.product(range(tables.shape[-1]), repeat=length):
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
    if ids[len(hypothesis) :].any():
        return tuple(ids)
    return tuple(ids[: len(hypothesis)])


class BruteForceTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.product(alpha=(0.0, 0.6, 1.0), vocab_size=(2, 3))
    def test_wide_beam_finds_all_hypotheses_within_each_limit(
        self, alpha, vocab_size
    ):
        limits = [3, 1, 0, 2, 3]
        tables = random_tables(5, 3, vocab_size, vocab_size)
        beam_size = vocab_size**3 + 2
        ids, scores = search(tables, limits, beam_size, alpha, stop_early=False)
        for b, limit in enumerate(limits):
            finished, unfinished = brute_force(tables[b], limit, alpha)
            expected = finished + unfinished if limit else [(0.0, (0,))]
            for n, (score, hypothesis) in enumerate(expected):
                self.assertEqual(trimmed(ids[b, n], hypothesis), hypothesis)
                self.assertAllClose(scores[b, n], score, 1e-5, 1e-5)
            self.assertFalse(ids[b, len(expected) :].any())
            rest = set(scores[b, len(expected) :].tolist())
            self.assertEqual(rest, {beam_search.NO_HYPOTHESIS})

    @parameterized.parameters(0.0, 0.6, 1.0)
    def test_wide_beam_finds_all_finished_hypotheses(self, alpha):
        tables = random_tables(1, 3, 3, 3, seed=1)
        ids, scores = search(tables, 3, 27, alpha, stop_early=False)
        finished, _ = brute_force(tables[0], 3, alpha)
        for n, (score, hypothesis) in enumerate(finished):
            self.assertEqual(trimmed(ids[0, n], hypothesis), hypothesis)
            self.assertAllClose(scores[0, n], score, 1e-5, 1e-5)
        self.assertFalse(ids[0, len(finished) :].any())

    @parameterized.parameters((3,), ([3, 3, 3, 3, 3, 2, 1, 3, 3, 3, 3],))
    def test_early_stop_keeps_the_best_hypothesis(self, limits):
        tables = random_tables(11, 3, 3, 3, seed=2)
        late = search(tables, limits, 27, stop_early=False)
        early = search(tables, limits, 27, stop_early=True)
        length = early[0].shape[-1]
        self.assertAllEqual(early[0][:, 0], late[0][:, 0, :length])
        self.assertAllEqual(early[1][:, 0], late[1][:, 0])


class BeamSearchTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.product(
        alpha=(0.0, 0.6), limits=([7] * 5, [7, 1, 2, 7, 5], [3, 7, 7, 7, 7])
    )
    def test_one_beam_is_greedy(self, alpha, limits):
        tables = random_tables(5, 7, 11, 11, seed=3)
        tables[:, :, :, EOS] += 1.5  # Some end, some do not.
        ids, scores = search(tables, limits, 1, alpha)
        lengths = set()
        for b, limit in enumerate(limits):
            greedy = [0]
            while len(greedy) <= limit and greedy[-1] != EOS:
                logits = tables[b, len(greedy) - 1, greedy[-1]]
                greedy.append(int(np.argmax(logits)))
            self.assertEqual(trimmed(ids[b, 0], greedy), tuple(greedy))
            expected = log_prob(tables[b], greedy)
            expected /= penalty(len(greedy) - 1, alpha)
            self.assertAllClose(scores[b, 0], expected, 1e-5, 1e-5)
            lengths.add((len(greedy), greedy[-1] == EOS))
        self.assertGreater(len(lengths), 2)

    def test_alpha_zero_scores_are_log_probabilities(self):
        tables = random_tables(3, 5, 11, 11, seed=4)
        for limits in (5, [5, 3, 4]):
            ids, scores = search(tables, limits, 3, 0.0, stop_early=False)
            for b, n in np.ndindex(3, 3):
                length = np.broadcast_to(limits, [3])[b] + 1
                hypothesis = ids[b, n, :length].tolist()
                if EOS in hypothesis:
                    hypothesis = hypothesis[: hypothesis.index(EOS) + 1]
                expected = log_prob(tables[b], hypothesis)
                self.assertAllClose(scores[b, n], expected, 1e-5, 1e-5)

    def test_a_number_added_to_all_logits_changes_no_score(self):
        tables = random_tables(3, 5, 37, 37, seed=7)
        tables = np.round(tables * 1024) / 1024  # 4096 more is exact, too
        ids, scores = search(tables, 5, 3)
        shifted_ids, shifted = search(tables + np.float32(4096), 5, 3)
        self.assertAllEqual(ids, shifted_ids)
        self.assertAllClose(scores, shifted, rtol=1e-6, atol=0)

    def test_search_begins_with_the_initial_ids(self):
        tables = random_tables(3, 5, 7, 7, seed=5)
        ids, scores = search(tables, 5, 2, first=[3, 0, 6], stop_early=False)
        self.assertAllEqual(ids[:, 0, 0], [3, 0, 6])
        hypothesis = ids[2, 0].tolist()
        hypothesis = hypothesis[: hypothesis.index(EOS) + 1]
        expected = log_prob(tables[2], hypothesis)
        expected /= penalty(len(hypothesis) - 1, 0.6)
        self.assertAllClose(scores[2, 0], expected, 1e-5, 1e-5)

    @parameterized.parameters(True, False)
    def test_neighbours_change_neither_ids_nor_scores(self, stop_early):
        tables = random_tables(7, 13, 11, 11, seed=6)
        tables[:4, :, :, EOS] += 2.0  # These end early.
        limits = np.array([13, 5, 11, 13, 2, 7, 13])
        options = {"beam_size": 3, "stop_early": stop_early}
        ids, scores = search(tables, limits, **options)
        steps = set()
        for b in range(7):
            alone = search(tables[b : b + 1], limits[b : b + 1], **options)
            length = alone[0].shape[-1]
            steps.add(length)
            self.assertAllEqual(ids[b, :, :length], alone[0][0])
            self.assertFalse(ids[b, :, length:].any())
            # Vectorized exp and log may round the last bits otherwise.
            self.assertAllClose(scores[b], alone[1][0], 3e-6, 0)
        self.assertGreater(len(steps), 3)

    def test_unfinished_scores_carry_the_penalty_only_with_own_limits(self):
        tables = random_tables(2, 5, 7, 7, seed=7)
        tables[:, :, :, EOS] = -30.0
        expected_ids, raw = search(tables, 5, 3)
        ids, scores = search(tables, [5, 5], 3)
        self.assertAllEqual(ids, expected_ids)
        self.assertAllClose(raw[1, 0], log_prob(tables[1], ids[1, 0]), 1e-5)
        self.assertAllClose(scores, raw / penalty(5, 0.6), 1e-6)

    def test_a_finished_hypothesis_stands_before_better_unfinished_ones(self):
        tables = random_tables(1, 2, 3, 3, seed=8) / 10
        tables[:, :, :, EOS] = [-3.0, -3.0, -3.0]
        ids, scores = search(tables, [2], 5, 1.0, stop_early=False)
        ends = [EOS in row for row in ids[0].tolist()]
        self.assertEqual(ends, [True, True, True, False, False])
        self.assertGreater(scores[0, 3], scores[0, [0, 4]].max())

    def test_states_follow_their_beams_and_may_grow(self):
        class Memory(NamedTuple):
            history: tf.Tensor  # [B * N, T - 1, 1], ids seen so far
            tables: tf.Tensor  # [B * N, L, V, V], never changes

        def logits(ids, i, memory):
            history = tf.concat([memory.history, ids[:, -1:, None]], axis=1)
            # Reads the history alone, so wrong states mean wrong results.
            states = {"tables": memory.tables}
            out, _ = table_logits(history[:, :, 0], i, states)
            return out, memory._replace(history=history)

        tables = random_tables(3, 5, 7, 7, seed=9)
        tables[:, :, :, EOS] = -30.0

        def run():
            memory = Memory(tf.zeros([3, 0, 1], tf.int32), tf.constant(tables))
            return beam_search.beam_search(
                logits, tf.zeros([3], tf.int32), 3, 5, 7, 0.6, states=memory
            )

        expected = search(tables, 5, 3)
        for run_so in (run, tf.function(run)):
            ids, scores, memory = run_so()
            self.assertAllEqual(ids, expected[0])
            self.assertAllClose(scores, expected[1])
            self.assertIsInstance(memory, Memory)
            self.assertAllEqual(memory.history[..., 0], ids[:, :, :-1])
            self.assertAllEqual(memory.tables[:, 1], tables)

    @parameterized.parameters(0.0, 0.7)
    def test_context_grows_and_stays_with_its_example(self, shrink_at):
        def logits(ids, i, ancestors, context):
            # The last ids of all beams, [B, N, T], are never reordered.
            last = tf.reshape(ids[:, -1], [-1, 3, 1])
            past = tf.concat([context["past"], last], axis=2)
            own = tf.tile(tf.range(3), [tf.shape(last)[0]])[:, None, None]
            ancestors = tf.concat([ancestors, own], axis=1)  # [B * N, T, 1]
            by_beam = tf.reshape(ancestors, [-1, 3, i + 1])
            history = tf.gather(  # [B, T, N]: whom each beam goes back to
                tf.transpose(past, [0, 2, 1]),
                tf.transpose(by_beam, [0, 2, 1]),
                batch_dims=2,
            )
            history = tf.reshape(tf.transpose(history, [0, 2, 1]), [-1, i + 1])
            tables = tf.repeat(context["tables"], 3, axis=0)
            out, _ = table_logits(history, i, {"tables": tables})
            return out, ancestors, {"past": past, "tables": context["tables"]}

        tables = random_tables(5, 7, 7, 7, seed=13)
        limits = [7, 2, 5, 7, 1]
        found = tf.function(beam_search.beam_search)(
            logits,
            tf.zeros([5], tf.int32),
            3,
            limits,
            7,
            0.6,
            states=tf.zeros([5, 0, 1], tf.int32),
            context={
                "past": tf.zeros([5, 3, 0], tf.int32),
                "tables": tf.constant(tables),
            },
            shrink_at=shrink_at,
        )
        expected = search(tables, limits, 3)
        self.assertAllEqual(found[0], expected[0])
        self.assertAllClose(found[1], expected[1])

    def test_works_without_states(self):
        tables = random_tables(1, 5, 7, 7, seed=10)

        def logits(ids):
            position = tf.shape(ids)[1] - 1
            return tf.gather(tf.constant(tables)[0, position], ids[:, -1])

        ids, scores, states = beam_search.beam_search(
            logits, tf.constant([0]), 3, 5, 7, 0.6
        )
        self.assertIsNone(states)
        self.assertAllEqual(ids, search(tables, 5, 3)[0])
        self.assertAllClose(scores, search(tables, 5, 3)[1])

    def test_one_trace_serves_every_batch(self):
        num_traces = 0

        @tf.function(
            input_signature=[
                tf.TensorSpec([None, 7, 5, 5], tf.float32),
                tf.TensorSpec([None], tf.int32),
            ]
        )
        def run(tables, limits):
            nonlocal num_traces
            num_traces += 1
            first = tf.zeros_like(limits)
            states = {"tables": tables}
            return beam_search.beam_search(
                table_logits, first, 2, limits, 5, 0.6, states
            )[:2]

        for limits in ([3, 7], [2], [5, 1, 4], []):
            tables = random_tables(len(limits), 7, 5, 5, seed=11)
            ids, scores = run(tables, tf.constant(limits, tf.int32))
            expected_ids, expected_scores = search(tables, limits, 2)
            self.assertAllEqual(ids, expected_ids)
            self.assertAllClose(scores, expected_scores)
        self.assertEqual(num_traces, 1)

    @parameterized.parameters(
        ({"initial_ids": [[0]]}, r"Received: initial_ids \(1, 1\)"),
        ({"decode_length": [5, 5]}, r"shape=\(2,\)"),
        ({"beam_size": 0}, "beam_size=0"),
        ({"vocab_size": 1}, "vocab_size=1"),
        ({"alpha": -0.5}, "alpha=-0.5"),
        ({"vocab_size": 5}, r"shape \[..., 5\]. Received: shape \(3, 7\)"),
    )
    def test_bad_arguments_are_named(self, changes, message):
        arguments = {"initial_ids": [0], "beam_size": 3, "decode_length": 5}
        arguments |= {"vocab_size": 7, "alpha": 0.6} | changes
        with self.assertRaisesRegex(ValueError, message):
            beam_search.beam_search(lambda _: tf.zeros([3, 7]), **arguments)


if __name__ == "__main__":
    tf.test.main()
