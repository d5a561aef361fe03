"""Every public layer passes Keras' own check, and is loaded from a file."""

import ast
import inspect
import pathlib
import subprocess
import sys
import warnings

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from keras.src import testing as keras_testing

import relpos_tf.layers as relpos_layers

ROOT = pathlib.Path(__file__).resolve().parents[2]
HIDDEN, HEADS = 12, 3
SIZES = {"hidden_size": HIDDEN, "num_heads": HEADS}
FEED_FORWARD = {"filter_size": 7, "hidden_size": HIDDEN}
NORMS = {"norm_before": True, "norm_after": False}
BLOCK = {
    "attention_args": SIZES,
    "feed_forward_args": FEED_FORWARD,
    "residual_args": NORMS,
}
X, MEMORY, IDS = (2, 5, HIDDEN), (2, 7, HIDDEN), (2, 5)
EDGES = (2, 5, 5)
INTEGERS = IDS, EDGES
# The arguments of each layer, the shapes of the inputs of its call by name, the
# last axis of its output, and the number of weights that are trained.
LAYERS = {
    "TransformerAttention": (SIZES, {"queries": X}, HIDDEN, 4),
    "RelationAttention": (
        SIZES | {"num_relations": 7},
        {"queries": X, "relations": EDGES},
        HIDDEN,
        6,
    ),
    "FeedForward": (FEED_FORWARD, {"x": X}, HIDDEN, 4),
    "Residual": (NORMS, {"x": X, "y": X}, HIDDEN, 2),
    "Projection": ({"units": 7}, {"inputs": X}, 7, 2),
    "LayerNorm": ({}, {"inputs": X}, HIDDEN, 2),
    "Dropout": ({"rate": 0.1}, {"inputs": X}, HIDDEN, 0),
    "SymbolDropout": ({"rate": 0.1}, {"inputs": X}, HIDDEN, 0),
    "TokenEmbedding": (
        {"vocab_size": 11, "hidden_size": HIDDEN},
        {"ids": IDS},
        HIDDEN,
        1,
    ),
    "TargetSpaceEmbedding": (
        {"space_id": 1, "spaces": 3, "hidden_size": HIDDEN},
        {"x": X},
        HIDDEN,
        1,
    ),
    "LearnedPositions": (
        {"max_length": 7, "hidden_size": HIDDEN},
        {"positions": IDS},
        HIDDEN,
        1,
    ),
    "EncoderBlock": (BLOCK, {"x": X}, HIDDEN, 12),
    "DecoderBlock": (BLOCK, {"x": X, "memory": MEMORY}, HIDDEN, 18),
}
NO_MASKS = "TokenEmbedding", "LearnedPositions"
SCHEMES = {
    "Shaw": {"max_relative_position": 2},
    "Bucketed": {},
    "Alibi": {},
    "Rotary": {},
    "Window": {"window": 2},
    "Direction": {"direction": "split"},
    "Additive": {},
    "FeatureWise": {},
    "HeadWindow": {"heads": 3},
    "Localness": {"kind": "query"},
}
# In tests/backends.
ELSEWHERE = "RelativeMultiHeadAttention"
# Loads the models of a folder; stores what each makes of its inputs.
LOAD = """
import pathlib, sys
import relpos_tf.layers
import keras
import numpy as np

for path in pathlib.Path(sys.argv[1]).glob("*.keras"):
    model = keras.saving.load_model(path)
    inputs = np.load(path.with_suffix(".npz"))
    outputs = model([inputs[name] for name in sorted(inputs)])
    np.save(path.with_suffix(".npy"), outputs)
"""


def registered():
    """Yields the name of each class of the layers that Keras knows."""
    for path in sorted((ROOT / "relpos_tf" / "layers").rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            decorators = map(ast.unparse, getattr(node, "decorator_list", ()))
            if any("register_keras_serializable" in one for one in decorators):
                yield node.name


def example(name):
    """Returns a model of one layer or scheme, and the shapes of its inputs."""
    if name in SCHEMES:
        one = getattr(relpos_layers, name)(**SCHEMES[name])
        layer = relpos_layers.TransformerAttention(**SIZES, positions=[one])
        shapes = [X]
    elif name == ELSEWHERE:
        layer = relpos_layers.RelativeMultiHeadAttention(HEADS, 4)
        shapes = [X, X]
    else:
        arguments, shapes, *_ = LAYERS[name]
        layer = getattr(relpos_layers, name)(**arguments)
        shapes = list(shapes.values())
    inputs = [
        keras.Input(
            shape[1:], dtype="int32" if shape in INTEGERS else "float32"
        )
        for shape in shapes
    ]
    return keras.Model(inputs, layer(*inputs)), shapes


class LayerOfKerasTest(keras_testing.TestCase, parameterized.TestCase):
    @parameterized.parameters(*LAYERS)
    def test_layer_passes(self, name):
        arguments, shapes, last, weights = LAYERS[name]
        dtypes = {
            key: "int32" if shape in INTEGERS else "float32"
            for key, shape in shapes.items()
        }
        is_one = len(shapes) == 1
        (shape, dtype), *_ = zip(shapes.values(), dtypes.values(), strict=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it shuffles no generator
            self.run_layer_test(
                getattr(relpos_layers, name),
                init_kwargs=arguments,
                input_shape=shape
                if is_one
                else {f"{key}_shape": one for key, one in shapes.items()},
                input_dtype=dtype
                if is_one
                else {f"{key}_shape": one for key, one in dtypes.items()},
                expected_output_shape=(*X[:2], last),
                expected_num_trainable_weights=weights,
                expected_num_non_trainable_weights=0,
                supports_masking=name not in NO_MASKS,
                # Keras trains layers of one input.
                run_training_check=is_one,
            )


class SavingTest(tf.test.TestCase):
    def test_every_public_class_is_an_attribute_and_has_an_example(self):
        classes = {
            name
            for name in relpos_layers.__all__
            if inspect.isclass(getattr(relpos_layers, name))
        }
        self.assertEqual(classes, {"Scheme", ELSEWHERE, *LAYERS, *SCHEMES})
        self.assertEqual({*registered(), "Scheme"}, classes)

    def test_models_are_loaded_where_only_the_layers_are_imported(self):
        folder = pathlib.Path(self.create_tempdir().full_path)
        expected = {}
        random = np.random.default_rng(5)
        for name in [*LAYERS, *SCHEMES, ELSEWHERE]:
            model, shapes = example(name)
            inputs = [
                random.integers(1, 7, shape)
                if shape in INTEGERS
                else random.normal(size=shape).astype(np.float32)
                for shape in shapes
            ]
            for variable in model.trainable_variables:
                variable.assign(random.normal(size=variable.shape))
            with warnings.catch_warnings():
                # Keras saves by an interface that NumPy 2 wants changed.
                warnings.simplefilter("ignore", DeprecationWarning)
                model.save(folder / f"{name}.keras")
            np.savez(folder / f"{name}.npz", *inputs)
            expected[name] = model(inputs).numpy()
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", LOAD, str(folder)],
            check=True,
            cwd=ROOT,
        )
        for name, outputs in expected.items():
            self.assertGreater(np.abs(outputs).max(), 0.01)
            found = np.load(folder / f"{name}.npy")
            self.assertAllClose(found, outputs, 1e-5, 1e-5, msg=name)
