"""Tests of the blocks, against a sublayer at a time in NumPy."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.layers import blocks
from relpos_tf.layers import dropout
from relpos_tf.layers import sublayers
from relpos_tf.models import arguments
from tests import oracles
from tests import testing
from tests.layers import schemes

B, S, T = 2, 7, 5
F, HEADS, FILTER = 12, 2, 17
ARGUMENTS = {
    "post_norm": testing.HPARAMS,
    "pre_norm": testing.HPARAMS.replace(
        layer_preprocess_sequence="n",
        layer_postprocess_sequence="da",
        heads_share_relative_embedding=True,
    ),
    "both_norms": testing.HPARAMS.replace(layer_preprocess_sequence="n"),
    "absolute": testing.HPARAMS.replace(self_attention_type="dot_product"),
}
SOURCE_ALLOWED = (np.arange(S) < [[4], [7]])[:, None, None]  # [B, 1, 1, S]


def example(seed, *shape):
    return testing.normal(seed, *shape).astype(np.float32)


def block_arguments(hparams):
    """Returns the arguments of a block without directions."""
    return arguments.block_arguments(
        hparams, arguments.decoder_positions(hparams)[0]
    )


def made(kind, name, dropouts=0.0):
    """Returns a block, with weights that are all different from 0."""
    hparams = ARGUMENTS[name].replace(layer_prepostprocess_dropout=dropouts)
    block = kind(*block_arguments(hparams), name="block")
    block.build((None, None, F))
    return testing.randomize(block), hparams


def attention_shapes(name, table=None):
    parts = ("q", "k", "v", "output_transform")
    shapes = {f"{name}/{part}/kernel": (F, F) for part in parts}
    if table:
        for part in ("keys", "values"):
            shapes[f"{name}/relative_positions_{part}"] = table
    return shapes


FFN_SHAPES = {
    "ffn/conv1/kernel": (F, FILTER),
    "ffn/conv1/bias": (FILTER,),
    "ffn/conv2/kernel": (FILTER, F),
    "ffn/conv2/bias": (F,),
}


def norm_shapes(norm, *names):
    return {
        f"{name}_residual/{norm}/{part}": (F,)
        for name in names
        for part in ("gamma", "beta")
    }


class EncoderBlockTest(testing.LayerTestCase):
    @parameterized.parameters(*ARGUMENTS)
    def test_equals_its_sublayers_in_numpy(self, name):
        block, hparams = made(blocks.EncoderBlock, name)
        x = example(1, B, S, F)
        self.assertAllClose(
            block(tf.constant(x), may_attend=SOURCE_ALLOWED),
            oracles.block(
                testing.named_weights(block), hparams, x, SOURCE_ALLOWED
            ),
            rtol=1e-4,
            atol=1e-4,
        )


class DecoderBlockTest(testing.LayerTestCase):
    def test_contract(self):
        hparams = ARGUMENTS["pre_norm"]
        self.assert_layer_contract(
            blocks.DecoderBlock(*block_arguments(hparams)),
            tf.constant(example(1, B, T, F)),
            tf.constant(example(2, B, S, F)),
            weights={
                **attention_shapes("self_attention", (5, F // HEADS)),
                **attention_shapes("encdec_attention"),
                **FFN_SHAPES,
                **norm_shapes(
                    "before_norm", "self_attention", "encdec_attention", "ffn"
                ),
            },
            xla=False,
        )

    @parameterized.parameters(*ARGUMENTS)
    def test_equals_its_sublayers_in_numpy(self, name):
        block, hparams = made(blocks.DecoderBlock, name)
        x, memory = example(1, B, T, F), example(2, B, S, F)
        expected = oracles.block(
            testing.named_weights(block),
            hparams,
            x,
            np.tri(T, dtype=bool),
            memory,
            SOURCE_ALLOWED,
        )
        self.assertAllClose(
            block(
                tf.constant(x), tf.constant(memory), may_attend=SOURCE_ALLOWED
            ),
            expected,
            rtol=1e-4,
            atol=1e-4,
        )

    @parameterized.parameters(
        {"direction": "forward"},
        {"direction": "split"},
        {"window": 1},
        {"localness": "query"},
        {"max_relative_position": 1},
    )
    def test_a_target_sees_the_whole_source_from_any_position(self, **position):
        attention_args = {
            "hidden_size": F,
            "num_heads": HEADS,
            "positions": schemes.schemes(**position),
        }
        others = (
            {"filter_size": FILTER, "hidden_size": F},
            {"norm_before": False, "norm_after": False},
        )
        block = blocks.DecoderBlock(attention_args, *others)
        block.build((None, None, F))
        testing.randomize(block)
        # Self-attention is silenced: equal targets at several places must give
        # equal results, and so must a source in another order.
        block.self_attention.output_transform.kernel.assign(tf.zeros([F, F]))
        x = tf.repeat(tf.constant(example(1, B, 1, F)), T, 1)
        memory = tf.constant(example(2, B, S, F))
        found = block(x, memory)
        self.assertAllClose(found, tf.repeat(found[:, :1], T, 1), 1e-5, 1e-5)
        turned = block(x, tf.reverse(memory, [1]))
        self.assertAllClose(found, turned, 1e-5, 1e-5)

    @parameterized.parameters(*ARGUMENTS)
    def test_steps_equal_rows_of_the_full_pass(self, name):
        block, _ = made(blocks.DecoderBlock, name)
        x = tf.constant(example(1, B, T, F))
        memory = tf.constant(example(2, B, S, F))
        expected = block(x, memory, may_attend=SOURCE_ALLOWED)
        projected = block.encdec_attention.project(memory)
        cache = block.self_attention.init_cache(B)
        rows = []
        for start, end in (0, 2), (2, 3), (3, 5):
            row, cache, _ = block.step(
                x[:, start:end],
                cache,
                projected,
                start=start,
                may_attend=SOURCE_ALLOWED,
            )
            rows.append(row)
        self.assertAllClose(tf.concat(rows, 1), expected, atol=1e-5)

    @parameterized.parameters(blocks.EncoderBlock, blocks.DecoderBlock)
    def test_each_sublayer_drops_and_only_while_training(self, kind):
        block, _ = made(kind, "post_norm", dropouts=0.5)
        inputs = [tf.constant(example(1, 1, S, F))] * 2
        inputs = inputs if kind is blocks.DecoderBlock else inputs[:1]
        residuals = [
            layer
            for layer in block._flatten_layers()
            if isinstance(layer, sublayers.Residual)
        ]
        self.assertLen(residuals, 1 + len(inputs))
        still = block(*inputs)
        self.assertAllEqual(block(*inputs, training=False), still)
        for residual in residuals:
            residual.drop.rate = 0.0
        self.assertAllEqual(block(*inputs, training=True), still)
        for residual in residuals:
            residual.drop.rate = 0.5
            with dropout.seed_scope(tf.constant([3, 5])):
                dropped = block(*inputs, training=True)
            self.assertNotAllClose(dropped, still, atol=0.01)
            residual.drop.rate = 0.0
