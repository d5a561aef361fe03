"""Tests of the oracle: it gives the numbers of tensor2tensor itself."""

import numpy as np
from absl.testing import absltest
from absl.testing import parameterized
from numpy import testing as np_testing

from tests import t2t_oracle
from tests import testing

CASES = {
    case: (meta["hparams"], arrays)
    for case, meta, arrays in testing.t2t_cases("model", "t2t_model.npz")
}


def variables(arrays):
    """Returns the variables of a case by name."""
    return {
        name.removeprefix("var/"): value
        for name, value in arrays.items()
        if name.startswith("var/")
    }


class OracleTest(parameterized.TestCase):
    @parameterized.parameters(*CASES)
    def test_outputs_and_losses_are_equal(self, case):
        hparams, arrays = CASES[case]
        weights = variables(arrays)
        inputs, targets = arrays["in/inputs"], arrays["in/targets"]
        close = {"rtol": 1e-4, "atol": 1e-4}
        # Padding too: the oracle knows of the pad remover.
        np_testing.assert_allclose(
            t2t_oracle.encode(weights, hparams, inputs),
            arrays["out/encoder_output"],
            **close,
        )
        logits = t2t_oracle.logits(weights, hparams, inputs, targets)
        np_testing.assert_allclose(
            logits, arrays["out/logits_squeezed"], **close
        )
        for name, smoothing in (("loss_eval", 0.0), ("loss_train_ls0.1", 0.1)):
            np_testing.assert_allclose(
                t2t_oracle.loss(logits, targets, smoothing),
                arrays[f"out/{name}"],
                rtol=1e-5,
            )

    def test_separate_tables_that_are_equal_are_as_one(self):
        hparams, arrays = CASES["relative_nospace"]
        weights = variables(arrays)
        ids = arrays["in/inputs"], arrays["in/targets"]
        expected = t2t_oracle.logits(weights, hparams, *ids)
        for shared, kinds in (
            (True, ("shared", "softmax")),
            (False, ("input_emb", "target_emb", "softmax")),
        ):
            separate = {
                name.replace("/shared/", f"/{kind}/"): value
                for name, value in weights.items()
                for kind in kinds
            }
            untied = {
                "shared_embedding_and_softmax_weights": False,
                "shared_embedding": shared,
            }
            logits = t2t_oracle.logits(separate, hparams | untied, *ids)
            np_testing.assert_array_equal(logits, expected)

    def test_learned_positions_that_are_sinusoids_equal_sinusoids(self):
        hparams, arrays = CASES["base_nospace"]
        weights = variables(arrays)
        ids = arrays["in/inputs"], arrays["in/targets"]
        expected = t2t_oracle.logits(weights, hparams, *ids)
        steps = np.arange(11)[:, None] / 1e4 ** (np.arange(16) / 15)
        table = np.concatenate([np.sin(steps), np.cos(steps)], 1)
        learned = {
            f"transformer/body/{side}_positional_embedding": table
            for side in ("inputs", "targets")
        }
        logits = t2t_oracle.logits(
            weights | learned, hparams | {"pos": "emb"}, *ids
        )
        np_testing.assert_allclose(logits, expected, rtol=0, atol=1e-9)

    def test_positions_beyond_the_table_get_nothing(self):
        hparams, arrays = CASES["relative_nospace"]
        weights = variables(arrays)
        ids = arrays["in/inputs"], arrays["in/targets"]
        expected = t2t_oracle.logits(weights, hparams, *ids)
        body = "transformer/body"
        learned = {
            f"{body}/inputs_positional_embedding": np.zeros([1, 32]),
            f"{body}/targets_positional_embedding": np.zeros([4, 32]),
        }
        row = np.arange(32) / 8
        learned[f"{body}/targets_positional_embedding"][3] = row
        logits = t2t_oracle.logits(
            weights | learned, hparams | {"pos": "emb"}, *ids
        )
        # In the decoder, earlier positions do not see position 3.
        np_testing.assert_array_equal(logits[:, :3], expected[:, :3])
        self.assertGreater(abs(logits - expected)[:, 3:].max(), 1e-3)

    def test_the_row_of_the_target_space_is_added_to_every_source_token(self):
        hparams, arrays = CASES["base_nospace"]
        weights = variables(arrays)
        inputs = arrays["in/inputs"][:1]  # without padding
        table = np.random.default_rng(0).normal(size=[32, 32])
        kernel = {"transformer/body/target_space_embedding/kernel": table}
        found = t2t_oracle.encode(
            weights | kernel,
            hparams | {"use_target_space_embedding": True},
            inputs,
            target_space_id=5,
        )
        moved = {
            name: value + table[5] / 32**0.5 if "/shared/" in name else value
            for name, value in weights.items()
        }
        expected = t2t_oracle.encode(moved, hparams, inputs)
        np_testing.assert_allclose(found, expected, rtol=0, atol=1e-6)

    def test_a_post_norm_stack_ends_in_the_norm_of_its_last_sum(self):
        hparams, arrays = CASES["base_nospace"]
        sequences = {
            "layer_preprocess_sequence": "none",
            "layer_postprocess_sequence": "dan",
        }
        weights = {
            name.replace("layer_prepostprocess", "layer_postprocess"): value
            for name, value in variables(arrays).items()
        }
        last = "transformer/body/encoder/layer_1/ffn/layer_postprocess"
        scale, shift = (
            weights[f"{last}/layer_norm/layer_norm_{part}"]
            for part in ("scale", "bias")
        )
        output = t2t_oracle.encode(
            weights, hparams | sequences, arrays["in/inputs"]
        )
        standard = (output - shift) / scale
        np_testing.assert_allclose(standard.mean(-1), 0, atol=1e-6)
        np_testing.assert_allclose(standard.std(-1), 1, atol=1e-4)


if __name__ == "__main__":
    absltest.main()
