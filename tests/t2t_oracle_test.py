"""Tests of the oracle: it gives the numbers of tensor2tensor itself."""

from absl.testing import parameterized
from numpy import testing as np_testing

from tests import t2t_oracle
from tests import testing


class OracleTest(parameterized.TestCase):
    @parameterized.named_parameters(
        *testing.t2t_cases("model", "t2t_model.npz")
    )
    def test_outputs_are_equal(self, meta, arrays):
        hparams = meta["hparams"]
        weights = {
            name.removeprefix("var/"): value
            for name, value in arrays.items()
            if name.startswith("var/")
        }
        inputs, targets = arrays["in/inputs"], arrays["in/targets"]
        # Padding too: the oracle knows of the pad remover.
        np_testing.assert_allclose(
            t2t_oracle.encode(weights, hparams, inputs),
            arrays["out/encoder_output"],
            1e-4,
            1e-4,
        )
        logits = t2t_oracle.logits(weights, hparams, inputs, targets)
        np_testing.assert_allclose(
            logits, arrays["out/logits_squeezed"], 1e-4, 1e-4
        )
