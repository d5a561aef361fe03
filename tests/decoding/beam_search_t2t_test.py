"""Tests of beam search against tensor2tensor 1.15.7.

tests/reference/README.md says how tensor2tensor's numbers were made.
"""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.decoding import beam_search
from relpos_tf.utils import graphs
from tests import testing


def cases(group):
    return testing.t2t_cases(group, "t2t_beam.npz")


CASES = [
    (group, case)
    for group in ("beam", "beam_trace")
    for case, _, _ in cases(group)
]


class TensorToTensorTest(tf.test.TestCase, parameterized.TestCase):
    def load(self, group, case):
        (arrays,) = (arrays for name, _, arrays in cases(group) if name == case)
        # The trace is of the case "basic" and names what differs from it.
        ((_, meta, _), *_) = cases("beam")
        meta |= {name: given for name, given, _ in cases(group)}[case]
        states = {"bias": tf.constant(arrays["in/batch_logits"])}

        def logits(ids, i, states):
            known = tf.gather(arrays["in/table"], ids[:, i])
            return known + tf.gather(arrays["in/pos"], i) + states["bias"], (
                states
            )

        names = "beam_size", "alpha", "eos_id", "stop_early"
        arguments = {name: meta[name] for name in names}
        arguments |= {
            "symbols_to_logits_fn": logits,
            "vocab_size": meta["vocab"],
        }
        return arguments, meta["decode_length"], states, arrays

    @parameterized.parameters(*CASES)
    def test_ids_and_scores_are_equal(self, group, case):
        arguments, limit, states, expected = self.load(group, case)

        def run():
            return beam_search.beam_search(
                initial_ids=tf.zeros([3], tf.int32),
                decode_length=limit,
                states=states,
                **arguments,
            )

        if case == "no_stop_early":
            run = graphs.function(run, jit_compile=True)
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
            (found.alive_log_probs, "alive_log_probs"),
            (found.finished_scores, "finished_scores"),
        ):
            wanted = np.float64(expected[f"out/{theirs}"])
            self.assertAllClose(np.float64(ours), wanted, 1e-4, 1e-4)
