"""What users try first is refused with one sentence, or computed.

Each case would compute something else in silence, or fail with an error from
deep inside of TensorFlow. `masks_of_keras_test` and `arguments_test` have more.

Shapes: B batch, H heads, Q queries, K keys, F features.
"""

from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf.layers import attention
from relpos_tf.layers import blocks
from relpos_tf.layers import dropout
from relpos_tf.layers import embeddings
from relpos_tf.layers import projections
from relpos_tf.layers import relations
from relpos_tf.layers import sublayers
from relpos_tf.layers.positions import shaw
from relpos_tf.models import transformer as model_lib
from tests import testing

B, H, Q, K, F = 2, 3, 5, 7, 12
NORMS = {"norm_before": True, "norm_after": False}


def x(*shape):
    return tf.constant(testing.normal(sum(shape), *shape), tf.float32)


def mask(*shape):
    return np.ones(shape, bool)


def transformer():
    layer = attention.TransformerAttention(F, H, positions=[shaw.Shaw(2)])
    layer(x(B, Q, F), x(B, K, F))
    return layer


def relation():
    layer = relations.RelationAttention(F, H)
    layer(x(B, Q, F), x(B, K, F))
    return layer


def block(attention_args=(), feed_forward_args=(), kind=blocks.EncoderBlock):
    return kind(
        {"hidden_size": F, "num_heads": H} | dict(attention_args),
        {"hidden_size": F, "filter_size": 7} | dict(feed_forward_args),
        NORMS,
    )


def function(**changes):
    arrays = {
        "q": x(B, H, Q, 4),
        "k": x(B, H, K, 4),
        "v": x(B, H, K, 6),
        "key_table": x(5, 4),
        "value_table": x(H, 5, 6),
    }
    return shaw.relative_attention(**(arrays | changes))


# Of `TransformerAttention` and `RelationAttention`: arguments and the message.
HEADS = {
    "padding_where_batch_equals_queries": (
        (x(Q, Q, F),),
        {"may_attend": mask(Q, Q)},
        r"mask\[:, None, None\] of \[batch, keys\]",
    ),
    "padding_of_a_memory": (
        (x(Q, Q, F), x(Q, K, F)),
        {"may_attend": mask(Q, K)},
        r"5 queries, 7 keys\].*Received: a shape of \(5, 7\)",
    ),
    "mask_of_examples_where_batch_equals_heads": (
        (x(H, Q, F),),
        {"may_attend": mask(H, Q, Q)},
        r"mask\[:, None\] of \[batch, queries, keys\]",
    ),
    "mask_of_other_heads": (
        (x(B, Q, F),),
        {"may_attend": mask(B, 2, Q, Q)},
        r"Received: a shape of \(2, 2, 5, 5\)",
    ),
    "mask_of_other_examples": (
        (x(1, Q, F),),
        {"may_attend": mask(3, 1, Q, Q)},
        r"Received: a shape of \(3, 1, 5, 5\)",
    ),
    "bias": (
        (x(B, Q, F),),
        {"may_attend": np.full([1, 1, Q, Q], -1e9)},
        "`may_attend` must be bool: `bias == 0`",
    ),
    "padding_of_another_length": (
        (x(B, Q, F),),
        {"mask": mask(B, K)},
        r"`mask` must have the shape \[2, 5\]",
    ),
    "padding_with_an_axis_too_many": (
        (x(B, Q, F), x(B, K, F)),
        {"memory_mask": mask(B, 1, K)},
        r"`memory_mask` must have the shape \[2, 7\]",
    ),
    "mask_of_no_memory": (
        (x(B, Q, F),),
        {"memory_mask": mask(B, Q)},
        "`mask` without. Received: `memory_mask`",
    ),
    "mask_of_queries_for_a_memory": (
        (x(B, Q, F), x(B, K, F)),
        {"mask": mask(B, K)},
        "`memory_mask` with a memory.*Received: `mask`",
    ),
    "memory_of_other_features": (
        (x(B, Q, F), x(B, 6, 8)),
        {},
        r"`memory` must have the shape \[2, keys, 12\].*\(2, 6, 8\)",
    ),
    "memory_of_rank_2": (
        (x(B, Q, F), x(K, F)),
        {},
        r"`memory` must have the shape \[2, keys, 12\].*\(7, 12\)",
    ),
    "memory_of_other_examples": (
        (x(1, Q, F), x(3, K, F)),
        {},
        r"`memory` must have the shape \[1, keys, 12\].*\(3, 7, 12\)",
    ),
}
# The message by the call that is to raise it.
CALLS = {
    "causal_mask_of_a_shorter_memory": (
        lambda: transformer()(x(B, Q, F), x(B, 3, F), use_causal_mask=True),
        "at least as long as the queries.*Received: 5 queries and 3 keys",
    ),
    "labels_taken_as_memory_in_the_first_call": (
        lambda: after_labels_as_memory(),
        "needs a memory of 5 features, as in its first call",
    ),
    "one_scheme": (
        lambda: attention.TransformerAttention(F, H, positions=shaw.Shaw(2)),
        r"`positions` must be a sequence.*such as \[shaw.Shaw\(16\)\]",
    ),
    "scheme_by_name": (
        lambda: attention.TransformerAttention(F, H, positions="shaw"),
        "`positions` must be a sequence.*Received: 'shaw'",
    ),
    "sublayers_of_unlike_sizes": (
        lambda: block(feed_forward_args={"hidden_size": 1}),
        "must be the same in `attention_args` and `feed_forward_args`",
    ),
    "input_of_another_size": (
        lambda: block()(x(B, Q, 1)),
        r"`x` must have the shape \[batch, positions, 12\]",
    ),
    "input_of_a_decoder_of_rank_2": (
        lambda: block(kind=blocks.DecoderBlock)(x(Q, F), x(Q, F)),
        r"`x` must have the shape \[batch, positions, 12\].*\(5, 12\)",
    ),
    "numbers_for_arguments": (
        lambda: blocks.EncoderBlock(12, {}, NORMS),
        "`attention_args` must be a dict of arguments",
    ),
    "fractions_for_ids": (
        lambda: embeddings.TokenEmbedding(7, 4)(x(2, 3)),
        "`ids` must be integers.*Received: dtype float32",
    ),
    "fractions_for_positions": (
        lambda: embeddings.LearnedPositions(7, 4)(x(3)),
        "`positions` must be integers.*Received: dtype float32",
    ),
    "target_space_of_one_feature": (
        lambda: embeddings.TargetSpaceEmbedding(0, 3, 4)(x(2, 3, 1)),
        "expected axis -1 of input shape to have value 4",
    ),
    "sum_of_unlike_shapes": (
        lambda: sublayers.Residual(**NORMS)(x(B, Q, F), x(Q, F)),
        r"`y` must have the shape \[2, 5, 12\].*\(5, 12\)",
    ),
    "norm_of_another_axis": (
        lambda: projections.LayerNorm(axis=1),
        "`axis` must be -1: `keras.layers.LayerNormalization` has others",
    ),
    "norm_without_a_bias": (
        lambda: projections.LayerNorm(center=False),
        "`center` must be True",
    ),
    "arrays_without_heads": (
        lambda: function(q=x(B, Q, 4)),
        r"`q` must have the shape \[batch, heads, queries, depth\]",
    ),
    "table_of_another_depth": (
        lambda: function(key_table=x(5, 3)),
        r"`key_table` must have the shape \[rows, 4\].*\(5, 3\)",
    ),
    "table_of_other_heads": (
        lambda: function(value_table=x(2, 5, 6)),
        r"`value_table` must have the shape \[3, rows, 6\].*\(2, 5, 6\)",
    ),
    "name_for_hparams": (
        lambda: model_lib.Transformer("transformer_base"),
        "`hparams` must be an HParams or a dict.*Received: 'transformer_base'",
    ),
    "targets_of_other_examples": (
        lambda: model_lib.Transformer({"vocab_size": 11, "hidden_size": 16})(
            np.ones([2, 3], int), np.ones([3, 3], int)
        ),
        r"`targets` must have the shape \[2, positions\].*\(3, 3\)",
    ),
    "mask_for_a_bias": (
        lambda: function(bias=mask(1, 1, Q, K)),
        "`bias` must be float.*Received: dtype bool",
    ),
}


def after_labels_as_memory():
    layer = relations.RelationAttention(F, H, 3)
    labels = np.ones([B, Q, Q], int)
    try:
        layer(x(B, Q, F), labels)
    except errors.UserError:
        return layer(x(B, Q, F), relations=labels)


# What computes with TensorFlow, whatever Keras runs on.
NEED_TENSORFLOW = {
    "TransformerAttention": lambda: attention.TransformerAttention(F, H),
    "RelationAttention": lambda: relations.RelationAttention(F, H),
    "Dropout": lambda: dropout.Dropout(0.1),
    "TokenEmbedding": lambda: embeddings.TokenEmbedding(7, F),
    "FeedForward": lambda: sublayers.FeedForward(5, F),
    "Projection": lambda: projections.Projection(5),
    "LayerNorm": projections.LayerNorm,
    "SymbolDropout": lambda: dropout.SymbolDropout(0.1),
    "TargetSpaceEmbedding": lambda: embeddings.TargetSpaceEmbedding(0, 3, 4),
    "LearnedPositions": lambda: embeddings.LearnedPositions(7, 4),
    "Residual": lambda: sublayers.Residual(**NORMS),
    "EncoderBlock": block,
    "DecoderBlock": lambda: block(kind=blocks.DecoderBlock),
    "Transformer": lambda: model_lib.Transformer({"vocab_size": 11}),
    "relative_attention": function,
}


class MisuseTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.product(case=[*HEADS], make=(transformer, relation))
    def test_attention_refuses(self, case, make):
        inputs, arguments, message = HEADS[case]
        with self.assertRaisesRegex(errors.UserError, f"(?s){message}"):
            make()(*inputs, **arguments)

    @parameterized.parameters(*CALLS)
    def test_is_refused(self, case):
        call, message = CALLS[case]
        # Keras' own sentence about a size is a ValueError.
        with self.assertRaisesRegex(ValueError, f"(?s){message}") as caught:
            call()
        if "expected axis" not in message:
            self.assertIsInstance(caught.exception, errors.UserError)

    @parameterized.parameters(*NEED_TENSORFLOW)
    def test_another_backend_is_refused(self, name):
        arrays = mock.patch.object(keras.backend, "backend", lambda: "jax")
        with (
            arrays,
            self.assertRaisesRegex(
                errors.UserError,
                f"`{name}` must run on TensorFlow.*Keras on jax",
            ),
        ):
            NEED_TENSORFLOW[name]()

    @parameterized.parameters("fit", "evaluate", "predict")
    def test_the_transformer_names_what_stands_for_a_method(self, name):
        model = model_lib.Transformer({"vocab_size": 11, "hidden_size": 16})
        model.compile("adam", "mse")
        ids = np.ones([B, Q], int)
        with self.assertRaisesRegex(
            errors.UserError, rf"`{name}`.* not supported.*relpos(-|_tf.Tr)"
        ):
            getattr(model, name)((ids, ids))

    @parameterized.parameters(transformer, relation)
    def test_a_mask_of_unknown_rows_is_no_mask_of_queries(self, make):
        layer = make()
        inputs = [keras.Input([None, F])] * 2
        padding = keras.Input([None], dtype="bool")  # [B, K]
        with self.assertRaisesRegex(errors.UserError, "may_attend"):
            layer(*inputs, may_attend=padding)
        triangle = np.tri(Q, dtype=bool)  # its rows are no batch
        fixed = [keras.Input([Q, F]), keras.Input([Q, F])]
        model = keras.Model(fixed, layer(*fixed, may_attend=triangle))
        values = [x(B, Q, F), x(B, Q, F) + 1.0]
        self.assertAllClose(
            model(values),
            layer(*values, may_attend=triangle[None, None]),
            rtol=1e-5,
            atol=1e-5,
        )

    def test_lines_of_length_0_are_computed(self):
        layer = transformer()
        self.assertEqual(layer(x(B, 0, F)).shape, (B, 0, F))
        self.assertEqual(layer(x(B, 0, F), x(B, K, F)).shape, (B, 0, F))

    def test_lora_of_a_projection_changes_the_attention(self):
        layer = transformer()
        before = layer(x(B, Q, F))
        layer.q.enable_lora(2)
        self.assertAllClose(layer(x(B, Q, F)), before)
        layer.q.lora_kernel_b.assign(x(2, F))
        kernel = layer.q.kernel
        self.assertNotAllClose(layer(x(B, Q, F)), before, atol=0.01)
        other = transformer()
        other.set_weights(
            [w for w in layer.get_weights() if w.shape not in ((F, 2), (2, F))]
        )
        other.q.kernel.assign(kernel)
        self.assertAllClose(layer(x(B, Q, F)), other(x(B, Q, F)), atol=1e-5)

    def test_arrays_of_numpy_are_attended_to(self):
        arrays = [testing.normal(i, B, H, Q, 4) for i in range(3)]
        tables = [testing.normal(i, H, 5, 4) for i in range(2)]
        output, _ = shaw.relative_attention(*arrays, *tables)
        expected, _ = shaw.relative_attention(
            *map(tf.constant, (*arrays, *tables))
        )
        self.assertAllEqual(output, expected)


if __name__ == "__main__":
    tf.test.main()
