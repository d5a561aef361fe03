"""The contract of every public layer, Keras' own check, and loading."""

import ast
import inspect
import json
import warnings

import keras
import numpy as np
import tensorflow as tf
from absl.testing import absltest
from absl.testing import parameterized
from keras.src import testing as keras_testing

import relpos_tf.layers as relpos_layers
from tests import testing
from tests.bin import calls

HIDDEN, HEADS = 12, 3
SIZE = {"hidden_size": HIDDEN}
SIZES = SIZE | {"num_heads": HEADS}
FEED_FORWARD = SIZE | {"filter_size": 7}
BLOCK = {
    "attention_args": SIZES,
    "feed_forward_args": FEED_FORWARD,
    "residual_args": {"norm_before": True, "norm_after": False},
}
X, MEMORY, IDS = (2, 5, HIDDEN), (2, 7, HIDDEN), (2, 5)
EDGES = (2, 5, 5)
GRAPH = {"queries": X, "relations": EDGES}
PLACES = {"max_length": 7}
SPACES = {"space_id": 1, "spaces": 3}
NORM_AFTER = {"norm_before": False, "norm_after": True}
INTEGERS = IDS, EDGES
# The arguments of each layer, the shapes of the inputs of its call by name, the
# last axis of its output, and the number of its weights.
LAYERS = {
    "FeedForward": (FEED_FORWARD | {"relu_dropout": 0.3}, {"x": X}, HIDDEN, 4),
    # The norm before acts in `before`, not in the call.
    "Residual": (NORM_AFTER | {"rate": 0.3}, {"x": X, "y": X}, HIDDEN, 2),
    "Projection": ({"units": 7}, {"inputs": X}, 7, 2),
    "LayerNorm": ({"epsilon": 0.1}, {"inputs": X}, HIDDEN, 2),
    "Dropout": ({"rate": 0.1}, {"inputs": X}, HIDDEN, 0),
    "SymbolDropout": ({"rate": 0.1}, {"inputs": X}, HIDDEN, 0),
    "TokenEmbedding": (SIZE | {"vocab_size": 11}, {"ids": IDS}, HIDDEN, 1),
    "TargetSpaceEmbedding": (SIZE | SPACES, {"x": X}, HIDDEN, 1),
    "LearnedPositions": (SIZE | PLACES, {"positions": IDS}, HIDDEN, 1),
    # Other tests of this room have the contract of these.
    "TransformerAttention": (SIZES, {"queries": X}, HIDDEN, 4),
    "RelationAttention": (SIZES | {"num_relations": 7}, GRAPH, HIDDEN, 6),
    # Those of their parts are enough.
    "EncoderBlock": (BLOCK, {"x": X}, HIDDEN, 12),
    "DecoderBlock": (BLOCK, {"x": X, "memory": MEMORY}, HIDDEN, 18),
}
CONTRACT = [*LAYERS][:9]
NO_MASKS = "TokenEmbedding", "LearnedPositions"
# To be trained by Keras takes seconds; this one has most of the others in it.
TRAINED = "EncoderBlock", "TokenEmbedding"
SCHEMES = {
    "Shaw": {"max_relative_position": 2},
    "Bucketed": {},
    "Alibi": {},
    "Rotary": {},
    "Kerple": {},
    "Fire": {"bidirectional": False},
    "TransformerXL": {},
    "Window": {"window": 2},
    "Direction": {"direction": "split"},
    "Additive": {},
    "FeatureWise": {},
    "HeadWindow": {"heads": 3},
    "Localness": {"window": "query"},
}
# In tests/backends.
ELSEWHERE = "RelativeMultiHeadAttention"
# Makes layers of configs, and writes the configs of those layers.
REMAKE = """
import json
import sys

import relpos_tf.layers
import keras

layers = map(keras.saving.deserialize_keras_object, json.load(sys.stdin))
print(json.dumps([*map(keras.saving.serialize_keras_object, layers)]))
"""


def dtype_of(shape):
    return "int32" if shape in INTEGERS else "float32"


def example(shape):
    """Returns an input of a layer."""
    random = np.random.default_rng(5)
    if shape in INTEGERS:
        return random.integers(1, 7, shape)
    return random.normal(size=shape).astype(np.float32)


def registered():
    """Yields the name of each class of the layers that Keras knows."""
    for path in sorted((calls.ROOT / "relpos_tf" / "layers").rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            decorators = map(ast.unparse, getattr(node, "decorator_list", ()))
            if any("register_keras_serializable" in one for one in decorators):
                yield node.name


def constructors():
    """Yields each class, and arguments of its constructor."""
    others = SCHEMES | {ELSEWHERE: {"num_heads": HEADS, "key_dim": 4}}
    for name, arguments in others.items():
        yield getattr(relpos_layers, name), arguments
    for name, (arguments, *_) in LAYERS.items():
        yield getattr(relpos_layers, name), arguments


def made(name):
    """Returns a layer, or one with a scheme."""
    if name in SCHEMES:
        one = getattr(relpos_layers, name)(**SCHEMES[name])
        return relpos_layers.TransformerAttention(**SIZES, positions=[one])
    if name == ELSEWHERE:
        return relpos_layers.RelativeMultiHeadAttention(HEADS, 4)
    return getattr(relpos_layers, name)(**LAYERS[name][0])


class ContractTest(testing.LayerTestCase):
    @parameterized.parameters(*CONTRACT)
    def test_layer_fulfils_it(self, name):
        _, shapes, _, number = LAYERS[name]
        inputs = [tf.constant(example(shape)) for shape in shapes.values()]
        self.assert_layer_contract(made(name), *inputs, number=number)


class LayerOfKerasTest(keras_testing.TestCase, parameterized.TestCase):
    @parameterized.parameters(*LAYERS)
    def test_layer_passes(self, name):
        arguments, shapes, last, number = LAYERS[name]
        is_one = len(shapes) == 1
        (shape, *_) = shapes.values()
        by_name = {f"{key}_shape": one for key, one in shapes.items()}
        dtypes = {key: dtype_of(one) for key, one in by_name.items()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it shuffles no generator
            self.run_layer_test(
                getattr(relpos_layers, name),
                init_kwargs=arguments,
                input_shape=shape if is_one else by_name,
                input_dtype=dtype_of(shape) if is_one else dtypes,
                expected_output_shape=(*X[:2], last),
                expected_num_trainable_weights=number,
                expected_num_non_trainable_weights=0,
                supports_masking=name not in NO_MASKS,
                run_training_check=name in TRAINED,
            )


class ShapeTest(parameterized.TestCase):
    @parameterized.parameters("TransformerAttention", "RelationAttention")
    def test_attention_knows_it_before_it_is_built(self, name):
        _, *others = LAYERS[name][1].values()
        found = made(name).compute_output_shape((2, 5, 7), *others)
        self.assertEqual(found, (2, 5, HIDDEN))


class TimeDistributedTest(parameterized.TestCase):
    @parameterized.parameters(n for n in LAYERS if len(LAYERS[n][1]) == 1)
    def test_it_wraps_a_layer_of_one_input(self, name):
        (shape,) = LAYERS[name][1].values()
        layer, one = made(name), example(shape)
        inputs = keras.Input([3, None, *shape[2:]], dtype=dtype_of(shape))
        model = keras.Model(inputs, keras.layers.TimeDistributed(layer)(inputs))
        found = model(np.stack([one, 0 * one, one], axis=1))
        for part, expected in enumerate((one, 0 * one, one)):
            np.testing.assert_allclose(
                found[:, part], layer(tf.constant(expected)), atol=1e-6
            )


class SavingTest(absltest.TestCase):
    def test_every_public_class_is_an_attribute_and_has_an_example(self):
        classes = {
            name
            for name in relpos_layers.__all__
            if inspect.isclass(getattr(relpos_layers, name))
        }
        self.assertEqual(classes, {"Scheme", ELSEWHERE, *LAYERS, *SCHEMES})
        self.assertEqual({*registered(), "Scheme"}, classes)

    def test_layers_are_known_where_only_they_are_imported(self):
        layers = [made(name) for name in (*LAYERS, *SCHEMES, ELSEWHERE)]
        text = json.dumps([*map(keras.saving.serialize_keras_object, layers)])
        done = calls.python("-W", "ignore", "-c", REMAKE, input=text)
        self.assertEqual(done.stdout, f"{text}\n", done.stderr)
