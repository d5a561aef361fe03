"""Models of the public layers are loaded in a process that imports them."""

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
VECTORS, MEMORY, IDS = (5, HIDDEN), (7, HIDDEN), (5,)
# The arguments of each layer, and the shapes of the inputs of its call.
LAYERS = {
    "RelativeMultiHeadAttention": (
        {"num_heads": HEADS, "key_dim": 4},
        [VECTORS, VECTORS],
    ),
    "TransformerAttention": (SIZES, [VECTORS]),
    "RelationAttention": (SIZES, [VECTORS]),
    "EncoderBlock": (BLOCK, [VECTORS]),
    "DecoderBlock": (BLOCK, [VECTORS, MEMORY]),
    "FeedForward": (FEED_FORWARD, [VECTORS]),
    "Residual": (NORMS, [VECTORS, VECTORS]),
    "Projection": ({"units": 7}, [VECTORS]),
    "LayerNorm": ({}, [VECTORS]),
    "Dropout": ({"rate": 0.1}, [VECTORS]),
    "SymbolDropout": ({"rate": 0.1}, [VECTORS]),
    "TokenEmbedding": ({"vocab_size": 11, "hidden_size": HIDDEN}, [IDS]),
    "TargetSpaceEmbedding": (
        {"space_id": 1, "spaces": 3, "hidden_size": HIDDEN},
        [VECTORS],
    ),
    "LearnedPositions": ({"max_length": 7, "hidden_size": HIDDEN}, [IDS]),
}
SCHEMES = {
    "Shaw": {"max_relative_position": 2},
    "Bucketed": {},
    "Alibi": {},
    "Rotary": {},
    "Window": {"window": 2},
    "Direction": {"direction": "split", "num_heads": HEADS},
    "Additive": {},
    "FeatureWise": {},
    "HeadWindow": {"heads": 3},
    "Localness": {"kind": "query"},
}
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
        shapes = [VECTORS]
    else:
        arguments, shapes = LAYERS[name]
        layer = getattr(relpos_layers, name)(**arguments)
    inputs = [
        keras.Input(shape, dtype="int32" if shape == IDS else "float32")
        for shape in shapes
    ]
    return keras.Model(inputs, layer(*inputs)), shapes


class SavingTest(tf.test.TestCase, parameterized.TestCase):
    def test_every_public_class_is_an_attribute_and_has_an_example(self):
        classes = {
            name
            for name in relpos_layers.__all__
            if inspect.isclass(getattr(relpos_layers, name))
        }
        self.assertEqual(classes, {"Scheme", *LAYERS, *SCHEMES})
        self.assertEqual({*registered(), "Scheme"}, classes)

    def test_models_are_loaded_where_only_the_layers_are_imported(self):
        folder = pathlib.Path(self.create_tempdir().full_path)
        expected = {}
        random = np.random.default_rng(5)
        for name in [*LAYERS, *SCHEMES]:
            model, shapes = example(name)
            inputs = [
                random.integers(1, 7, (2, *shape))
                if shape == IDS
                else random.normal(size=(2, *shape)).astype(np.float32)
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


if __name__ == "__main__":
    tf.test.main()
