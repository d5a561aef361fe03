"""Tests of beam search against tensor2tensor 1.15.7, and of when it stops.

data/README.md says how tensor2tensor's numbers were made.
"""

import json
import pathlib

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.decoding import beam_search

VECTORS = pathlib.Path(__file__).parents[1] / "reference" / "t2t_beam.npz"
CASES = (
    ("beam", "basic"),
    ("beam", "alpha0"),
    ("beam", "alpha1"),
    ("beam", "no_stop_early"),
    ("beam", "beam1"),
    ("beam_trace", "d1"),
    ("beam_trace", "d2"),
)


class TensorToTensorTest(tf.test.TestCase, parameterized.TestCase):
    def load(self, group, case):
        with np.load(VECTORS) as vectors:
            meta = json.loads(str(vectors["meta"]))
            prefix = f"{group}/{case}/"
            arrays = {
                key.removeprefix(prefix): vectors[key]
                for key in vectors.files
                if key.startswith(prefix)
            }
        # The trace is of the case "basic" and names what differs from it.
        meta = meta["beam"]["basic"] | meta[group][case]
        states = {"bias": tf.constant(arrays["in/batch_logits"])}

        def logits(ids, i, states):
            known = tf.gather(arrays["in/table"], ids[:, i])
            return known + tf.gather(arrays["in/pos"], i) + states["bias"], (
                states
            )

        arguments = dict(
            symbols_to_logits_fn=logits,
            beam_size=meta["beam_size"],
            vocab_size=meta["vocab"],
            alpha=meta["alpha"],
            eos_id=meta["eos_id"],
            stop_early=meta["stop_early"],
        )
        return arguments, meta["decode_length"], states, arrays

    @parameterized.parameters(*CASES)
    def test_ids_and_scores_are_equal(self, group, case):
        arguments, limit, states, expected = self.load(group, case)

        # The next test runs eagerly.
        @tf.function(jit_compile=case == "no_stop_early")
        def run():
            return beam_search.beam_search(
                initial_ids=tf.zeros([3], tf.int32),
                decode_length=limit,
                states=states,
                **arguments,
            )

        ids, scores, _ = run()
        self.assertAllEqual(ids, expected["out/seq"])
        self.assertAllClose(scores, expected["out/scores"], 1e-4, 1e-4)

    @parameterized.parameters(*CASES)
    def test_raw_state_of_the_loop_is_equal(self, group, case):
        arguments, limit, states, expected = self.load(group, case)
        settings = beam_search.Search(limits=tf.constant(limit), **arguments)
        state = beam_search.run(
            settings,
            beam_search.initial_state(
                settings, tf.zeros([3], tf.int32), states
            ),
        )
        self.assertAllEqual(state.step, expected["out/steps"])
        length = state.step + 1
        found = state.hypotheses
        for ours, theirs in (
            (found.alive_ids[:, :, :length], "alive_seq"),
            (found.finished_ids[:, :, :length], "finished_seq"),
            (found.finished_flags, "finished_flags"),
        ):
            self.assertAllEqual(ours, expected[f"out/{theirs}"])
        for ours, theirs in (
            (found.alive_log_probs, "alive_log_probs"),
            (found.finished_scores, "finished_scores"),
        ):
            self.assertAllClose(ours, expected[f"out/{theirs}"], 1e-4, 1e-4)

    def test_all_cases_of_the_file_are_tested(self):
        with np.load(VECTORS) as vectors:
            found = {tuple(key.split("/")[:2]) for key in vectors.files}
        self.assertEqual(found - {("meta",)}, set(CASES))


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
        search = beam_search.Search(
            None, 2, tf.constant(limits), 3, 0.0, 1, stop_early
        )
        hypotheses = beam_search.Hypotheses(
            alive_ids=None,
            alive_log_probs=tf.constant([[-9.0, -9.5], [-3.0, -8.0]]),
            finished_ids=None,
            finished_scores=tf.constant([[-1.0, -5.0], [-1.0, -2.0]]),
            finished_flags=tf.fill([2, 2], True),
        )
        self.assertAllEqual(beam_search.is_open(search, hypotheses), is_open)
        state = beam_search.BeamState(tf.constant(5), hypotheses, states=())
        active = is_open if isinstance(limits, list) else any(is_open)
        self.assertAllEqual(beam_search.is_active(search, state), active)

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
        ids, scores, _ = beam_search.beam_search(
            lambda ids: tf.gather(
                np.log(probs), tf.fill([len(ids)], ids.shape[1] - 1)
            ),
            *([0], beam_size, limits, 3, 1.0),
        )
        self.assertAllEqual(ids[0, 0], best)
        expected = np.log(6 / 11) if len(best) == 2 else np.log(5 / 11) / 2
        self.assertAllClose(scores[0, 0], expected)

    def test_an_early_stop_leaves_no_cut_off_hypotheses(self):
        logits = np.log([[0.01, 0.98, 0.01]]).astype(np.float32)
        ids, scores, _ = beam_search.beam_search(
            lambda ids: tf.repeat(logits, len(ids), axis=0),
            *([0], 2, [7], 3, np.float64(0.6)),
        )
        self.assertAllEqual(ids, [[[0, 1], [0, 0]]])
        self.assertAllClose(scores, [[np.log(0.98), beam_search.NO_HYPOTHESIS]])


if __name__ == "__main__":
    tf.test.main()
