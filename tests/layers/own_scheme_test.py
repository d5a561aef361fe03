"""A scheme of one's own, by the steps of docs/positions.md.

Shapes: B batch, L length, F features.
"""

import functools
import pathlib
import re
import tempfile
import warnings
from unittest import mock

import keras
import numpy as np
import tensorflow as tf

from relpos_tf import errors
from relpos_tf.layers import attention
from relpos_tf.layers import blocks
from relpos_tf.layers.positions import alibi
from relpos_tf.layers.positions import localness
from relpos_tf.layers.positions import scheme
from relpos_tf.models import transformer
from tests import testing

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "positions.md"
B, L, F, H = 2, 5, 12, 2
LOCAL = localness.Localness("fixed")
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
    """A scheme with one weight."""

    def __init__(self, weight):
        self.weight = weight

    def build(self, layer):
        layer.add_uniform(self.weight, (3,), fans=3)

    def get_config(self):
        return {"weight": self.weight}


class Forgetful(scheme.Scheme):
    """A scheme that does not tell its argument."""

    def __init__(self, rate=1.0):
        self.rate = rate


def example():
    return tf.constant(testing.normal(1, B, L, F), tf.float32)


@functools.cache
def documented():
    """Returns the names that the code of the page defines."""
    names = {}
    page = PAGE.read_text(encoding="utf-8")
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(compile(block, PAGE.name, "exec"), names)
    return names


class DocumentedStepsTest(tf.test.TestCase):
    def test_the_scheme_of_the_page_is_saved_and_loaded(self):
        model, x = documented()["model"], example()
        testing.randomize(model)
        loaded = testing.reloaded(model)
        self.assertAllClose(loaded(x), model(x))
        (one,) = loaded.layers[-1].positions
        self.assertEqual(one.get_config(), {"factor": 0.5})
        rates = [one.layers[-1].decay_rates.numpy() for one in (loaded, model)]
        self.assertAllEqual(*rates)

    def test_its_bias_is_that_of_loops(self):
        layer, x = documented()["model"].layers[-1], example()
        rates = testing.normal(3, H).astype(np.float32)
        layer.decay_rates.assign(np.zeros_like(rates))
        _, plain = layer(x, return_weights=True)
        layer.decay_rates.assign(rates)
        _, weights = layer(x, return_weights=True)
        expected = np.zeros(weights.shape)
        for b, h, i, j in np.ndindex(*weights.shape):
            decay = np.exp(-0.5 * rates[h] * abs(j - i))
            expected[b, h, i, j] = plain[b, h, i, j] * decay
        expected /= expected.sum(-1, keepdims=True)
        self.assertAllClose(weights, expected)

    def test_it_serves_in_a_block_and_in_a_search(self):
        (given,) = documented()["model"].layers[-1].positions
        block = blocks.EncoderBlock(SIZES | {"positions": [given]}, *OTHERS)
        x = example()
        block(x)
        testing.randomize(block)
        again = blocks.EncoderBlock.from_config(block.get_config())
        again(x)
        again.set_weights(block.get_weights())
        self.assertAllEqual(again(x), block(x))
        layer, cache = block.self_attention, block.self_attention.init_cache(B)
        prompt, cache = layer.step(x[:, :3], cache, start=0)
        last, cache = layer.step(x[:, 3:], cache, start=3)
        self.assertAllClose(
            np.concatenate([prompt, last], 1), layer(x, use_causal_mask=True)
        )


class OwnSchemeTest(tf.test.TestCase):
    def test_blocks_and_the_transformer_take_an_unregistered_class(self):
        x = example()
        for kind in (blocks.EncoderBlock, blocks.DecoderBlock):
            found, expected = (
                kind(SIZES | {"positions": [one]}, *OTHERS)
                for one in (Unregistered(), alibi.Alibi())
            )
            inputs = (x,) if kind is blocks.EncoderBlock else (x, x)
            for block in (found, expected):
                block(*inputs)
                testing.randomize(block)
            self.assertAllEqual(found(*inputs), expected(*inputs))
        hparams = testing.HPARAMS.replace(
            self_attention_type="dot_product_alibi"
        )
        ids = np.array([[3, 5, 7, 1], [2, 11, 1, 0]])
        expected = testing.randomize(transformer.Transformer(hparams))
        with mock.patch.object(alibi, "Alibi", Unregistered):
            found = testing.randomize(transformer.Transformer(hparams))
        (one,) = found.encoder_blocks[0].self_attention.positions
        self.assertIs(type(one), Unregistered)
        self.assertAllEqual(found(ids, ids), expected(ids, ids))

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

    def test_what_cannot_be_loaded_says_what_to_do(self):
        layer = attention.TransformerAttention(F, H, positions=[Unregistered()])
        with self.assertRaisesRegex(
            errors.UserError,
            r"(?s)decorate the class with `@keras.saving."
            r"register_keras_serializable\(\)`.*Received: 'Unregistered'",
        ):
            attention.TransformerAttention(
                F, H, positions=layer.get_config()["positions"]
            )

    def test_arguments_that_a_copy_would_lose_are_refused(self):
        with self.assertRaisesRegex(
            errors.UserError,
            r"`get_config` must return the arguments.*Forgetful.*rate",
        ):
            attention.TransformerAttention(F, H, positions=[Forgetful(0.5)])

    def test_names_that_the_layer_has_already_are_refused(self):
        for name, positions in (
            ("localness", [localness.Localness("query"), LOCAL]),
            ("depth", [Named("depth")]),
            ("mine", [Named("mine"), Named("other"), Named("mine")]),
        ):
            layer = attention.TransformerAttention(F, H, positions=positions)
            with self.assertRaisesRegex(
                errors.UserError,
                f"names that the layer does not have.*Received: '{name}'",
            ):
                layer.build((None, None, F))

    def test_weights_of_several_schemes_are_restored(self):
        layer = attention.TransformerAttention(
            F, H, positions=[LOCAL, Named("mine"), Named("other")]
        )
        x = example()
        layer(x)
        testing.randomize(layer)
        expected = {w.path: w.numpy() for w in layer.weights}
        with (
            tempfile.TemporaryDirectory() as folder,
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore", DeprecationWarning)
            path = pathlib.Path(folder, "layer.weights.h5")
            model = keras.Sequential([layer])
            model(x)
            model.save_weights(path)
            for weight in layer.weights:
                weight.assign(np.zeros(weight.shape))
            model.load_weights(path)
        for weight in layer.weights:
            self.assertAllEqual(weight.numpy(), expected[weight.path])


if __name__ == "__main__":
    tf.test.main()
