"""Tests that Keras finds the classes which saved models name."""

import ast
import pathlib
import subprocess
import sys

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import relpos_tf
from relpos_tf.layers import attention
from relpos_tf.utils import saved_names

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Of a version that had the class `MultiHeadAttention` alone.
OLD = ROOT / "tests" / "reference" / "multi_head_attention.keras"
# What that version computed of the inputs below.
NUMBERS = [88.3182, -14.0186, -50.9258]
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
        code = f"""{imports}
assert "relpos_tf.layers.attention" not in sys.modules
model = keras.saving.load_model({str(OLD)!r})
import numpy as np
x = np.linspace(-1, 1, 120).reshape([3, 5, 8])
print([round(float(number), 4) for number in model(x)[:, 0, 0]])
print([type(layer).__name__ for layer in model.layers[1:]])
"""
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code],
            capture_output=True,
            check=True,
            cwd=ROOT,
            text=True,
        )
        numbers, names = done.stdout.splitlines()
        self.assertAllClose(ast.literal_eval(numbers), NUMBERS, atol=2e-4)
        self.assertEqual(
            ast.literal_eval(names),
            ["MultiHeadAttention"] * 2 + ["RelationAttention"],
        )

    def test_the_former_name_is_the_same_layer(self):
        with self.assertWarnsRegex(DeprecationWarning, "TransformerAttention"):
            layer = relpos_tf.MultiHeadAttention
        self.assertIs(layer, attention.TransformerAttention)
        old, new = (
            kind(8, 2) for kind in (attention.MultiHeadAttention, layer)
        )
        x = np.ones([2, 3, 8], np.float32)
        new(x), old(x)
        old.set_weights(new.get_weights())
        self.assertAllEqual(old(x), new(x))
        self.assertEqual(
            keras.saving.get_registered_name(attention.MultiHeadAttention),
            "relpos_tf>MultiHeadAttention",
        )

    def test_an_unknown_scheme_of_positions_is_refused(self):
        with self.assertRaisesRegex(ValueError, "registered with Keras"):
            attention.TransformerAttention(
                8, 2, positions=[{"class_name": "relpos_tf>Shw", "config": {}}]
            )


if __name__ == "__main__":
    tf.test.main()
