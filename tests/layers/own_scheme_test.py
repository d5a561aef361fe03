"""A scheme of a user's own: the layer around it.

The steps of docs/positions.md, from training to translation, are in
`tests/integration/own_scheme_test.py`.

Shapes: B batch, L length, F features.
"""

import pathlib
import warnings

import keras
import numpy as np
import tensorflow as tf

from relpos_tf import errors
from relpos_tf.layers import attention
from relpos_tf.layers import blocks
from relpos_tf.layers.positions import alibi
from relpos_tf.layers.positions import scheme
from tests import oracles
from tests import testing

B, L, F, H = 2, 5, 12, 2
SIZES = {"hidden_size": F, "num_heads": H}
OTHERS = (
    {"filter_size": 7, "hidden_size": F},
    {"norm_before": True, "norm_after": False},
)


class Unregistered(scheme.Scheme):
    """ALiBi, which Keras does not know by this name."""

    build = alibi.Alibi.build
    bias = alibi.Alibi.bias


class Named(scheme.Scheme):
    """A scheme with one variable, which adds to the logits or the output."""

    def __init__(self, variable):
        self.variable = variable

    def build(self, layer):
        self._own = layer.add_uniform(self.variable, (3,), fans=3)

    def get_config(self):
        return {"variable": self.variable}


class OfLogits(Named):
    """Doubles the logits of the first key."""

    def logits(self, logits, q, pairs):
        first = tf.cast(tf.range(pairs.keys) == 0, logits.dtype)
        return logits + logits * first


class OfOutput(Named):
    """Adds 7 to the output of all heads."""

    def output(self, weights, pairs, sums_to_one):
        return weights, 7.0


class Nothing(scheme.Scheme):
    """Adds nothing to what the base class computes."""

    def rotate(self, x, positions):
        return super().rotate(x, positions)

    def bias(self, x, keys, pairs):
        return super().bias(x, keys, pairs)

    def logits(self, logits, q, pairs):
        return super().logits(logits, q, pairs)

    def output(self, weights, pairs, sums_to_one):
        return super().output(weights, pairs, sums_to_one)


def example():
    return tf.constant(testing.normal(1, B, L, F), tf.float32)


class OwnSchemeTest(tf.test.TestCase):
    def test_every_overridden_hook_takes_part(self):
        layer = attention.TransformerAttention(
            F, H, positions=[OfOutput("a"), OfLogits("b")]
        )
        layer.build((None, None, F))
        testing.randomize(layer)
        found, weights = layer(example(), return_weights=True)
        q, k, v = (
            np.reshape(example() @ projection.kernel, [B, L, H, F // H])
            for projection in (layer.q, layer.k, layer.v)
        )
        logits = np.einsum("bihd,bjhd->bhij", q, k) / (F // H) ** 0.5
        logits[..., 0] *= 2
        expected = np.apply_along_axis(oracles.softmax, -1, logits)
        self.assertAllClose(weights, expected, 1e-4, 1e-4)
        output = np.einsum("bhij,bjhd->bihd", expected, v) + 7.0
        output = np.reshape(output, [B, L, F]) @ layer.output_transform.kernel
        self.assertAllClose(found, output, 1e-4, 1e-4)

    def test_hooks_of_the_base_class_change_nothing(self):
        layers = [
            attention.TransformerAttention(F, H, positions=positions)
            for positions in ([], [Nothing()])
        ]
        for layer in layers:
            layer.build((None, None, F))
        layers[1].set_weights(layers[0].get_weights())
        plain, found = (
            layer(example(), return_weights=True, use_causal_mask=True)
            for layer in layers
        )
        self.assertAllEqual(found[0], plain[0])
        self.assertAllEqual(found[1], plain[1])

    def test_what_keras_does_not_know_cannot_be_loaded(self):
        layer = attention.TransformerAttention(F, H, positions=[Unregistered()])
        config = layer.get_config()["positions"]
        with self.assertRaisesRegex(
            errors.UserError, "register_keras_serializable.*Unregistered"
        ):
            attention.TransformerAttention(F, H, positions=config)

    def test_weights_of_several_schemes_are_saved_and_restored(self):
        layers = [
            attention.TransformerAttention(
                F, H, positions=[OfLogits("mine"), OfOutput("other")]
            )
            for _ in range(2)
        ]
        saved, restored = (keras.Sequential([layer]) for layer in layers)
        path = pathlib.Path(self.create_tempdir().full_path, "x.weights.h5")
        for model in saved, restored:
            model(example())
        testing.randomize(saved)
        with warnings.catch_warnings():
            # Keras saves by an interface that NumPy 2 wants changed.
            warnings.simplefilter("ignore", DeprecationWarning)
            saved.save_weights(path)
            restored.load_weights(path)
        self.assertLen(saved.weights, 6)  # four projections and two schemes
        for one, other in zip(saved.weights, restored.weights, strict=True):
            self.assertAllEqual(one, other)

    def test_a_block_keeps_a_copy_of_its_schemes(self):
        given = alibi.Alibi()
        config = SIZES | {"positions": [given]}
        block = blocks.DecoderBlock(config, *OTHERS, source_positions=[given])
        self.assertIs(config["positions"][0], given)
        again = blocks.DecoderBlock.from_config(block.get_config())
        self.assertEqual(again.get_config(), block.get_config())
        for layer in (again.self_attention, again.encdec_attention):
            self.assertIsInstance(layer.positions[0], alibi.Alibi)
            self.assertIsNot(layer.positions[0], given)
