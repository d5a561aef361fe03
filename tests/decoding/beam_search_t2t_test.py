"""Tests of beam search against tensor2tensor 1.15.7.

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
        logits = arguments.pop("symbols_to_logits_fn")
        search = beam_search.Search(
            lambda ids, i, states, shared: logits(ids, i, states),
            tf.constant(limit),
            **arguments,
        )
        _, _, state = beam_search.run(search, tf.zeros([3], tf.int32), states)
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
