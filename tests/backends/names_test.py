"""The public names on every backend, also where TensorFlow is missing."""

import pathlib
import subprocess
import sys
import warnings

import keras
import numpy as np
from absl.testing import absltest

import relpos_tf
import relpos_tf.layers as relpos_layers

ROOT = pathlib.Path(__file__).resolve().parents[2]
ON_TENSORFLOW = keras.backend.backend() == "tensorflow"
LOAD = """
import sys
import relpos_tf.layers
import keras
import numpy as np

model = keras.saving.load_model(sys.argv[1])
x = np.load(sys.argv[2])
np.save(sys.argv[3], keras.ops.convert_to_numpy(model(x)))
print("tensorflow" in sys.modules)
"""


class NamesTest(absltest.TestCase):
    def test_the_layers_are_those_that_run_on_the_backend(self):
        names = relpos_layers.__all__
        self.assertIn("RelativeMultiHeadAttention", names)
        self.assertEqual("TransformerAttention" in names, ON_TENSORFLOW)
        for name in names:
            self.assertEqual(getattr(relpos_layers, name).__name__, name)
        with self.assertRaisesRegex(AttributeError, "no attribute 'Attention'"):
            _ = relpos_layers.Attention

    def test_a_model_is_loaded_where_only_the_layers_are_imported(self):
        folder = pathlib.Path(self.create_tempdir().full_path)
        x = np.linspace(-1, 1, 120, dtype=np.float32).reshape([3, 5, 8])
        inputs = keras.Input([5, 8])
        layer = relpos_tf.RelativeMultiHeadAttention(2, 3)
        model = keras.Model(inputs, layer(inputs, inputs))
        paths = [folder / name for name in ("a.keras", "x.npy", "y.npy")]
        with warnings.catch_warnings():
            # Keras saves by an interface that NumPy 2 wants changed.
            warnings.simplefilter("ignore", DeprecationWarning)
            model.save(paths[0])
        np.save(paths[1], x)
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", LOAD, *map(str, paths)],
            check=True,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.assertEqual(done.stdout, f"{ON_TENSORFLOW}\n")
        expected = keras.ops.convert_to_numpy(model(x))
        np.testing.assert_allclose(np.load(paths[2]), expected, 1e-5, 1e-5)
