"""Tests that Keras finds the classes which saved models name."""

import ast
import pathlib
import subprocess
import sys
import warnings

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.layers import attention
from relpos_tf.layers.positions import shaw
from relpos_tf.utils import saved_names

ROOT = pathlib.Path(__file__).resolve().parents[2]
ORDERS = {
    "before_keras": "import relpos_tf, sys\n"
    "assert 'keras' not in sys.modules\n"
    "import keras\n",
    "after_keras": "import keras, relpos_tf, sys\n",
}


def registered():
    """Yields the module and the name of each class that is registered."""
    for path in sorted((ROOT / "relpos_tf").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in tree.body:
            decorators = map(ast.unparse, getattr(node, "decorator_list", ()))
            if any("register_keras_serializable" in one for one in decorators):
                parts = path.relative_to(ROOT).with_suffix("").parts
                yield node.name, ".".join(parts)


class SavedNamesTest(tf.test.TestCase, parameterized.TestCase):
    def test_every_registered_class_is_listed(self):
        self.assertEqual(dict(registered()), saved_names.MODULES)

    @parameterized.named_parameters(*ORDERS.items())
    def test_import_of_the_package_is_enough(self, imports):
        x = np.linspace(-1, 1, 120, dtype=np.float32).reshape([3, 5, 8])
        inputs = keras.Input([5, 8])
        outputs = attention.TransformerAttention(
            8, 2, positions=[shaw.Shaw(2)]
        )(inputs)
        model = keras.Model(inputs, outputs)
        path = pathlib.Path(self.create_tempdir().full_path, "model.keras")
        with warnings.catch_warnings():
            # Keras saves by an interface that NumPy 2 wants changed.
            warnings.simplefilter("ignore", DeprecationWarning)
            model.save(path)
        code = f"""{imports}
assert "relpos_tf.layers.attention" not in sys.modules
model = keras.saving.load_model({str(path)!r})
import numpy as np
x = np.linspace(-1, 1, 120, dtype=np.float32).reshape([3, 5, 8])
print(model(x).numpy().tolist())
"""
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code],
            capture_output=True,
            check=True,
            cwd=ROOT,
            text=True,
        )
        self.assertAllClose(
            ast.literal_eval(done.stdout), model(x), rtol=1e-5, atol=1e-5
        )

    def test_an_unknown_scheme_of_positions_is_refused(self):
        with self.assertRaisesRegex(ValueError, "registered with Keras"):
            attention.TransformerAttention(
                8, 2, positions=[{"class_name": "relpos_tf>Shw", "config": {}}]
            )


if __name__ == "__main__":
    tf.test.main()
