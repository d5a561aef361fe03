"""Tests of the model directories that stand for tensor2tensor's."""

import numpy as np
from absl.testing import absltest
from absl.testing import parameterized

from tests import t2t_checkpoint
from tests import t2t_oracle
from tests import testing

CASES = {
    case: (meta, arrays)
    for case, meta, arrays in testing.t2t_cases("model", "t2t_model.npz")
}
_SMALL = {"hidden_size": 6, "filter_size": 5, "num_heads": 2}
_INPUTS = np.array([[7, 3, 12, 36, 1, 0]])
_TARGETS = np.array([[9, 4, 30, 22, 1]])


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

    @parameterized.parameters(
        {},
        {"use_target_space_embedding": True},
        {"pos": "emb", "max_length": 4},
        {"num_encoder_layers": 1, "num_decoder_layers": 3},
        {"shared_embedding_and_softmax_weights": False},
        {
            "shared_embedding_and_softmax_weights": False,
            "shared_embedding": True,
        },
        {"symbol_modality_num_shards": 1, "max_relative_position": 1},
        {
            "pos": "timing",
            "self_attention_type": "dot_product",
            "layer_preprocess_sequence": "none",
            "layer_postprocess_sequence": "dan",
        },
    )
    def test_every_variable_is_used(self, **overrides):
        hparams = t2t_checkpoint.hparams_dict(**_SMALL, **overrides)
        variables = t2t_checkpoint.random_variables(hparams, 37, 2)
        base = t2t_oracle.logits(variables, hparams, _INPUTS, _TARGETS)
        self.assertEqual(base.shape, (1, 5, 37))
        tied = hparams["shared_embedding_and_softmax_weights"]
        for name, value in variables.items():
            if "/weights_" in name and not tied and "softmax" not in name:
                continue  # a shard may hold none of the few ids
            changed = variables | {name: value[::-1] + 0.1 * value**2}
            again = t2t_oracle.logits(changed, hparams, _INPUTS, _TARGETS)
            self.assertGreater(abs(again - base).max(), 1e-6, name)


if __name__ == "__main__":
    absltest.main()
