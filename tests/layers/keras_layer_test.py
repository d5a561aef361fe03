"""Keras' own check of a layer, on the layers of this package."""

import inspect
import warnings

import keras
from absl.testing import parameterized
from keras.src import testing as keras_testing

import relpos_tf.layers as relpos_layers
from relpos_tf.layers import attention
from relpos_tf.layers import blocks
from relpos_tf.layers import dropout
from relpos_tf.layers import embeddings
from relpos_tf.layers import keras_attention
from relpos_tf.layers import projections
from relpos_tf.layers import relations
from relpos_tf.layers import sublayers
from relpos_tf.layers.positions import shaw

SIZES = {"hidden_size": 12, "num_heads": 3}
FEED_FORWARD = {"filter_size": 7, "hidden_size": 12}
NORMS = {"norm_before": True, "norm_after": False}
BLOCK = {
    "attention_args": SIZES,
    "feed_forward_args": FEED_FORWARD,
    "residual_args": NORMS,
}
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
    sublayers.FeedForward: (FEED_FORWARD, X, X, 4),
    sublayers.Residual: (NORMS, {"x_shape": X, "y_shape": X}, X, 2),
    projections.Projection: ({"units": 7}, X, (2, 5, 7), 2),
    projections.LayerNorm: ({}, X, X, 2),
    dropout.Dropout: ({"rate": 0.1}, X, X, 0),
    dropout.SymbolDropout: ({"rate": 0.1}, X, X, 0),
    embeddings.TokenEmbedding: (
        {"vocab_size": 7, "hidden_size": 12},
        (2, 5),
        X,
        1,
    ),
    embeddings.TargetSpaceEmbedding: (
        {"space_id": 1, "spaces": 3, "hidden_size": 12},
        X,
        X,
        1,
    ),
    embeddings.LearnedPositions: (
        {"max_length": 7, "hidden_size": 12},
        (5,),
        (5, 12),
        1,
    ),
    blocks.EncoderBlock: (BLOCK, X, X, 12),
    blocks.DecoderBlock: (
        BLOCK,
        {"x_shape": X, "memory_shape": (2, 7, 12)},
        X,
        18,
    ),
}
NO_MASKS = (
    embeddings.TokenEmbedding,
    embeddings.LearnedPositions,
)


class LayerOfKerasTest(keras_testing.TestCase, parameterized.TestCase):
    @parameterized.parameters(*LAYERS)
    def test_layer_passes(self, kind):
        arguments, shape, output, weights = LAYERS[kind]
        is_one = isinstance(shape, tuple)
        dtype = "int32" if is_one and len(shape) < 3 else "float32"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it shuffles no generator
            self.run_layer_test(
                kind,
                init_kwargs=arguments,
                input_shape=shape,
                input_dtype=dtype if is_one else dict.fromkeys(shape, dtype),
                expected_output_shape=output,
                expected_num_trainable_weights=weights,
                expected_num_non_trainable_weights=0,
                supports_masking=kind not in NO_MASKS,
                # Keras trains layers of one input.
                run_training_check=is_one and len(shape) > 1,
            )

    def test_no_layer_is_left_out(self):
        public = [
            getattr(relpos_layers, name) for name in relpos_layers.__all__
        ]
        layers = {
            kind
            for kind in public
            if inspect.isclass(kind) and issubclass(kind, keras.Layer)
        }
        elsewhere = {
            keras_attention.RelativeMultiHeadAttention,  # in tests/backends
        }
        self.assertContainsSubset(layers - elsewhere, LAYERS)


if __name__ == "__main__":
    keras_testing.test_case.unittest.main()
