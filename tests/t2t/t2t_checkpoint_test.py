"""Tests of the model directories that stand for tensor2tensor's."""

from absl.testing import parameterized

from tests import t2t_checkpoint
from tests import testing

CASES = {
    case: (meta, arrays)
    for case, meta, arrays in testing.t2t_cases("model", "t2t_model.npz")
}


class VariablesTest(parameterized.TestCase):
    @parameterized.parameters(*CASES)
    def test_names_and_shapes_are_those_of_tensor2tensor(self, case):
        meta, arrays = CASES[case]
        variables = t2t_checkpoint.random_variables(meta["hparams"], 40, 1)
        self.assertEqual(
            {f"var/{name}": value.shape for name, value in variables.items()},
            {
                name: value.shape
                for name, value in arrays.items()
                if name.startswith("var/")
            },
        )
