"""Keras' own check of a layer, on the layers of this package."""

import warnings

from absl.testing import parameterized
from keras.src import testing as keras_testing

from relpos_tf.layers import attention
from relpos_tf.layers import blocks
from relpos_tf.layers import dropout
from relpos_tf.layers import embeddings
from relpos_tf.layers import projections
from relpos_tf.layers import relations
from relpos_tf.layers import sublayers
from relpos_tf.layers.positions import shaw

SIZES = {"hidden_size": 12, "num_heads": 3}
X = (2, 5, 12)
# The arguments, the shape of the inputs and of the output, and the number of
# weights that are trained.
LAYERS = {
    attention.TransformerAttention: (
        SIZES | {"positions": [shaw.Shaw(2)], "dropout": 0.1},
        X,
        X,
        6,
    ),
    relations.RelationAttention: (SIZES, X, X, 4),
    sublayers.FeedForward: ({"filter_size": 7, "hidden_size": 12}, X, X, 4),
    projections.Projection: ({"units": 7}, X, (2, 5, 7), 2),
    projections.LayerNorm: ({}, X, X, 2),
    dropout.Dropout: ({"rate": 0.1}, X, X, 0),
    embeddings.LearnedPositions: (
        {"max_length": 7, "hidden_size": 12},
        (5,),
        (5, 12),
        1,
    ),
    blocks.EncoderBlock: (
        {
            "attention_args": SIZES,
            "feed_forward_args": {"filter_size": 7, "hidden_size": 12},
            "residual_args": {"norm_before": True, "norm_after": False},
        },
        X,
        X,
        12,
    ),
}


class LayerOfKerasTest(keras_testing.TestCase, parameterized.TestCase):
    @parameterized.parameters(*LAYERS)
    def test_layer_passes(self, kind):
        arguments, shape, output, weights = LAYERS[kind]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it shuffles no generator
            self.run_layer_test(
                kind,
                init_kwargs=arguments,
                input_shape=shape,
                input_dtype="int32" if len(shape) == 1 else "float32",
                expected_output_shape=output,
                expected_num_trainable_weights=weights,
                expected_num_non_trainable_weights=0,
                supports_masking=kind is not embeddings.LearnedPositions,
                run_training_check=len(shape) > 1,
            )


if __name__ == "__main__":
    keras_testing.test_case.unittest.main()
