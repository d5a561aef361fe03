"""Tests that constructors of layers refuse wrong arguments."""

import json

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf.layers import attention
from relpos_tf.layers import blocks
from relpos_tf.layers import dropout
from relpos_tf.layers import embeddings
from relpos_tf.layers import relations
from relpos_tf.layers import sublayers
from relpos_tf.layers.positions import additive
from relpos_tf.layers.positions import bucketed
from relpos_tf.layers.positions import head_window
from relpos_tf.layers.positions import localness
from relpos_tf.layers.positions import shaw
from relpos_tf.layers.positions import window

SIZES = {"hidden_size": 12, "num_heads": 3}
GOOD = {
    attention.TransformerAttention: SIZES,
    shaw.Shaw: {"max_relative_position": 2},
    window.Window: {"window": 1},
    window.Direction: {"direction": "split", "num_heads": 3},
    localness.Localness: {"kind": "fixed"},
    relations.RelationAttention: SIZES,
    embeddings.TokenEmbedding: {"vocab_size": 7, "hidden_size": 12},
    embeddings.TargetSpaceEmbedding: {
        "space_id": 2,
        "spaces": 3,
        "hidden_size": 12,
    },
    embeddings.LearnedPositions: {"max_length": 7, "hidden_size": 12},
    sublayers.FeedForward: {"filter_size": 17, "hidden_size": 12},
    sublayers.Residual: {"norm_before": True, "norm_after": False},
    dropout.Dropout: {"rate": 0.5},
}
NO_SIZE = (0, 12.0, "12", None, True)
NO_DISTANCE = (-1, 2.5, True)
NO_FRACTION = (-0.1, 1, float("nan"), "0.5", True)
NO_CHOICE = ("other", None)
BAD = {
    attention.TransformerAttention: {
        "hidden_size": NO_SIZE,
        "num_heads": (5, *NO_SIZE),
        "dropout": NO_FRACTION,
    },
    shaw.Shaw: {
        "max_relative_position": (None, *NO_DISTANCE),
        "max_relative_position_right": NO_DISTANCE,
        "implementation": NO_CHOICE,
    },
    window.Window: {"window": (None, 0, *NO_DISTANCE)},
    window.Direction: {"direction": NO_CHOICE},
    localness.Localness: {
        "kind": NO_CHOICE,
        "window": (0.5, float("nan"), float("inf"), "3", True),
    },
    relations.RelationAttention: {
        "hidden_size": NO_SIZE,
        "num_heads": (5, *NO_SIZE),
        "num_relations": [n for n in NO_SIZE if n is not None],
        "no_relation": (1.5, True),
        "dropout": NO_FRACTION,
    },
    embeddings.TokenEmbedding: {"vocab_size": NO_SIZE, "hidden_size": NO_SIZE},
    embeddings.TargetSpaceEmbedding: {
        "space_id": (-1, 3, 1.5),
        "spaces": NO_SIZE,
        "hidden_size": NO_SIZE,
    },
    embeddings.LearnedPositions: {
        "max_length": NO_SIZE,
        "hidden_size": NO_SIZE,
    },
    sublayers.FeedForward: {
        "filter_size": NO_SIZE,
        "hidden_size": NO_SIZE,
        "relu_dropout": NO_FRACTION,
    },
    sublayers.Residual: {
        "rate": NO_FRACTION,
        "epsilon": (-1e-6, float("nan"), float("inf"), "1e-6", True),
    },
    dropout.Dropout: {"rate": NO_FRACTION},
}
NUMPY = GOOD | {
    shaw.Shaw: {"max_relative_position": 3, "max_relative_position_right": 2},
    bucketed.Bucketed: {"num_buckets": 32, "max_distance": 10**5},
    head_window.HeadWindow: {"heads": 3},
    dropout.Dropout: {"rate": np.float32(0.5)},
    relations.RelationAttention: SIZES | {"num_relations": 5, "no_relation": 4},
}
CASES = [(kind, name) for kind, arguments in BAD.items() for name in arguments]


class ArgumentsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.named_parameters(
        (f"{kind.__name__}_{name}", kind, name) for kind, name in CASES
    )
    def test_a_wrong_argument_is_refused(self, kind, name):
        for value in BAD[kind][name]:
            with self.subTest(value=value):
                try:
                    kind(**(GOOD[kind] | {name: value}))
                except errors.UserError as error:
                    expected, received = str(error).split("Received: ")
                    self.assertRegex(expected, "^`.*` must be .*\\. $")
                    self.assertIn(f"`{name}`", expected)
                    self.assertIn(f"{name}={value!r}", received)
                else:
                    self.fail(f"{kind.__name__} took {name}={value!r}")

    @parameterized.parameters(*NUMPY)
    def test_integers_of_numpy_are_kept_as_those_of_python(self, kind):
        expected = dict(NUMPY[kind])
        if issubclass(kind, keras.Layer):
            expected["name"] = "same"
        given = {
            name: np.int64(value) if type(value) is int else value
            for name, value in expected.items()
        }
        configs = [
            json.dumps(kind(**arguments).get_config())
            for arguments in (given, expected)
        ]
        self.assertEqual(*configs)

    @parameterized.parameters(blocks.EncoderBlock, blocks.DecoderBlock)
    def test_a_block_refuses_wrong_arguments_of_its_layers(self, kind):
        others = GOOD[sublayers.FeedForward], GOOD[sublayers.Residual]
        with self.assertRaisesRegex(
            errors.UserError, "`positions`.*Received: .*'shaw'"
        ):
            kind(SIZES | {"positions": ["shaw"]}, *others)

    def test_two_schemes_that_replace_attention_are_refused(self):
        positions = [additive.Additive(), additive.FeatureWise()]
        with self.assertRaisesRegex(errors.UserError, "At most one scheme"):
            attention.TransformerAttention(12, 3, positions=positions)

    def test_single_features_refuse_vectors_of_pairs_beside_them(self):
        positions = [shaw.Shaw(2), additive.FeatureWise()]
        layer = attention.TransformerAttention(12, 3, positions=positions)
        with self.assertRaisesRegex(errors.UserError, r"FeatureWise\(Shaw"):
            layer.build((None, None, 12))


if __name__ == "__main__":
    tf.test.main()
