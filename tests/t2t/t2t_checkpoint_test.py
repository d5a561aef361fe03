"""Tests of the model directories that stand for tensor2tensor's."""

import json
import pathlib
import tempfile

import numpy as np
import tensorflow as tf
from absl.testing import absltest
from absl.testing import parameterized
from numpy import testing as np_testing

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

    def test_a_hparam_that_is_none_is_refused(self):
        with self.assertRaisesRegex(KeyError, "num_layers"):
            t2t_checkpoint.hparams_dict(num_layers=2)


class WriteTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name) / "model"
        self.hparams = t2t_checkpoint.hparams_dict(**_SMALL)
        self.variables = t2t_checkpoint.random_variables(self.hparams, 50, 3)

    def write(self, **arguments):
        t2t_checkpoint.write(
            self.folder, self.variables, self.hparams, **arguments
        )

    def stored(self, path):
        reader = tf.train.load_checkpoint(str(path))
        return {
            name: reader.get_tensor(name)
            for name in reader.get_variable_to_shape_map()
        }

    def test_variables_read_back_and_nothing_else(self):
        self.write(step=7, extra=False)
        found = self.stored(self.folder)
        self.assertEqual(found.keys(), self.variables.keys())
        for name, value in self.variables.items():
            np_testing.assert_array_equal(found[name], value)
        self.assertCountEqual(
            [path.name for path in self.folder.iterdir()],
            [
                "checkpoint",
                "flags.txt",
                "flags_t2t.txt",
                "hparams.json",
                "model.ckpt-7.data-00000-of-00001",
                "model.ckpt-7.index",
            ],
        )

    def test_training_adds_two_slots_each_and_seven_others(self):
        # As in a checkpoint of tensor2tensor: 274 with 89 of the model.
        self.write()
        found = self.stored(self.folder)
        self.assertLen(found, 3 * len(self.variables) + 7)
        self.assertEqual(found["global_step"], 250000)
        self.assertEqual(found["global_step"].dtype, np.int64)
        for name, value in self.variables.items():
            np_testing.assert_array_equal(found[name], value)
            self.assertEqual(
                found[f"training/{name}/Adam_1"].shape, value.shape
            )

    def test_a_second_step_is_the_latest(self):
        self.write(step=1000)
        first = self.variables
        self.variables = t2t_checkpoint.random_variables(self.hparams, 50, 4)
        self.write(step=2000)
        state = tf.train.get_checkpoint_state(str(self.folder))
        self.assertEqual(
            [pathlib.Path(p).name for p in state.all_model_checkpoint_paths],
            ["model.ckpt-1000", "model.ckpt-2000"],
        )
        for path, variables in (
            (tf.train.latest_checkpoint(str(self.folder)), self.variables),
            (self.folder / "model.ckpt-1000", first),
        ):
            found = self.stored(path)
            for name, value in variables.items():
                np_testing.assert_array_equal(found[name], value)

    def test_hparams_and_vocabulary_are_in_the_formats_of_tensor2tensor(self):
        vocab = t2t_checkpoint.subtokens(50)
        self.write(vocab=vocab)
        text = (self.folder / "hparams.json").read_text()
        self.assertIn('\n"max_relative_position": 4,\n', text)
        self.assertIn('\n"pos": null,\n', text)
        self.assertEqual(
            json.loads(text) | self.hparams, json.loads(text), "all are there"
        )
        lines = (self.folder / t2t_checkpoint.VOCABULARY).read_text()
        self.assertLen(set(lines.splitlines()), 50)
        self.assertStartsWith(lines, "'<pad>_'\n'<EOS>_'\n'piece0_'\n")
        self.assertEndsWith(lines, "'\\'\n'_'\n';'\n")

    def test_eager_mode_stays_as_it_is(self):
        self.write()
        self.assertTrue(tf.executing_eagerly())
        self.assertEqual(int(tf.Variable(3) + 4), 7)


if __name__ == "__main__":
    absltest.main()
