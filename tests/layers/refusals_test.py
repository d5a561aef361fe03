"""What users try first is refused with one sentence, or computed.

Each case would compute something else in silence, or fail with an error from
deep inside of TensorFlow.

Shapes: B batch, H heads, Q queries, K keys, F features.
"""

import inspect
import json
from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf.layers import attention
from relpos_tf.layers import blocks
from relpos_tf.layers import embeddings
from relpos_tf.layers import pairs
from relpos_tf.layers import relations
from relpos_tf.layers.positions import additive
from relpos_tf.layers.positions import head_window
from relpos_tf.layers.positions import localness
from relpos_tf.layers.positions import rotary
from relpos_tf.layers.positions import shaw
from relpos_tf.models import transformer as model_lib
from tests import testing
from tests.layers import public_layers_test

B, H, Q, K, F = 2, 3, 5, 7, 12
SIZES = {"hidden_size": F, "num_heads": H}
NORMS = {"norm_before": True, "norm_after": False}
KV = "keys", "values"
NO_SIZE = (0, 12.0, "12", None, True)
NO_DISTANCE = (-1, 2.5, True)
NO_FRACTION = (-0.1, 1, float("nan"), "0.5", True)
NO_CHOICE = ("other", None)
NO_FLAG = ("false", None, 2)
FLAGS = [f"add_{a}to_{b}" for a in ("", "relative_", "relations_") for b in KV]
FLAGS += (f"heads_share{a}" for a in ("", "_relative_embedding", "_relations"))
FLAGS += ["add_relation_bias", "bidirectional"]
# Bad values of arguments.
COUNTS = "hidden_size filter_size vocab_size spaces max_length num_relations"
BAD = {
    **dict.fromkeys(f"{COUNTS} num_heads key_dim".split(), NO_SIZE),
    **dict.fromkeys(("dropout", "relu_dropout", "rate"), NO_FRACTION),
    **dict.fromkeys(FLAGS, NO_FLAG),
    "value_dim": (0, 12.0),
    "max_relative_position": (None, *NO_DISTANCE),
    "max_relative_position_right": NO_DISTANCE,
    "window": (None, 0, -1, "fixed"),
    "implementation": NO_CHOICE,
    "direction": NO_CHOICE,
    "heads": (0, 4),
    "num_buckets": (33, 2),
    "max_distance": (8, 0),
    "space_id": (-1, 1.5),
    "epsilon": (-1e-6, float("inf"), "1e-6"),
}
# Good arguments of each class that has such an argument.
GOOD = {
    kind: arguments
    for kind, arguments in public_layers_test.constructors()
    if BAD.keys() & inspect.signature(kind.__init__).parameters
}


def x(*shape):
    return tf.constant(testing.normal(sum(shape), *shape), tf.float32)


def mask(*shape):
    return np.ones(shape, bool)


def transformer(*positions):
    layer = attention.TransformerAttention(F, H, positions=positions)
    layer(x(B, Q, F), x(B, K, F))
    return layer


def block(size=F):
    feed_forward = {"hidden_size": size, "filter_size": 7}
    return blocks.EncoderBlock(SIZES, feed_forward, NORMS)


def function(**changes):
    arrays = {
        "q": x(B, H, Q, 4),
        "k": x(B, H, K, 4),
        "v": x(B, H, K, 6),
        "key_table": x(5, 4),
        "value_table": x(H, 5, 6),
    }
    return shaw.relative_attention(**(arrays | changes))


def attend(*inputs, **arguments):
    return lambda: transformer(shaw.Shaw(2))(*inputs, **arguments)


def schemes(*positions):
    return lambda: transformer(*positions)


def step_of(places, inputs, start):
    """Steps in a cache with so many places."""
    layer = transformer()
    return layer.step(inputs, layer.init_cache(B, places), start=start)


def labelled(dtype, *shape):
    layer = relations.RelationAttention(F, H, 3)
    return lambda: layer(x(B, Q, F), tf.zeros(shape, dtype))


# A call, and the words that its message must have.
CALLS = {
    "padding_where_batch_equals_queries": (
        attend(x(Q, Q, F), may_attend=mask(Q, Q)),
        "mask[:, None, None] of [batch, keys]",
    ),
    "mask_of_examples_where_batch_equals_heads": (
        attend(x(H, Q, F), may_attend=mask(H, Q, Q)),
        "mask[:, None] of [batch, queries, keys]",
    ),
    "bias": (
        attend(x(B, Q, F), may_attend=np.full([1, 1, Q, Q], -1e9)),
        "`may_attend` must be bool",
    ),
    "padding_of_another_length": (
        attend(x(B, Q, F), mask=mask(B, K)),
        "`mask` must have the shape [2, 5]",
    ),
    "mask_of_no_memory": (
        attend(x(B, Q, F), memory_mask=mask(B, Q)),
        "`mask` without",
    ),
    "mask_of_queries_for_a_memory": (
        attend(x(B, Q, F), x(B, K, F), mask=mask(B, K)),
        "`memory_mask` with a memory",
    ),
    "memory_of_other_features": (
        attend(x(B, Q, F), x(B, 6, 8)),
        "`memory` must have the shape [2, keys, 12]",
        "(2, 6, 8)",
    ),
    "heads_that_do_not_divide_the_size": (
        lambda: attention.TransformerAttention(F, 5),
        "`hidden_size` must be a multiple",
        "num_heads=5",
    ),
    "queries_of_rank_2": (
        lambda: attention.TransformerAttention(F, H)(x(Q, F)),
        "[batch, positions, features]",
    ),
    "causal_mask_of_a_shorter_memory": (
        attend(x(B, Q, F), x(B, 3, F), use_causal_mask=True),
        "at least as long as the queries",
        "5 queries and 3 keys",
    ),
    "one_scheme": (
        lambda: attention.TransformerAttention(F, H, positions=shaw.Shaw(2)),
        "`positions` must be a sequence",
        "[shaw.Shaw(16)]",
    ),
    "two_schemes_that_replace_attention": (
        schemes(additive.Additive(), head_window.HeadWindow(3)),
        "At most one scheme",
        "additive score and keys of 3 heads",
    ),
    "score_with_another_scheme": (
        lambda: additive.Additive(rotary.Rotary()),
        "must be None or a shaw.Shaw",
        "Rotary object",
    ),
    "vectors_of_pairs_beside_single_features": (
        schemes(shaw.Shaw(2), additive.FeatureWise()),
        "FeatureWise(Shaw",
    ),
    "two_schemes_of_a_kind": (
        schemes(shaw.Shaw(2), shaw.Shaw(3)),
        "names that the layer does not have",
        "'relative_positions_keys'",
    ),
    "masks_beside_pairs": (
        lambda: attention.TransformerAttention(F, H)(
            x(B, Q, F), pairs=pairs.Pairs(Q, Q), may_attend=mask(Q, Q)
        ),
        "`pairs` takes the place of masks",
    ),
    "a_causal_mask_beside_pairs": (
        attend(x(B, Q, F), pairs=pairs.Pairs(Q, Q), use_causal_mask=True),
        "`pairs` takes the place of masks",
    ),
    "heads_of_odd_depth": (
        lambda: attention.TransformerAttention(
            15, 3, positions=[rotary.Rotary()]
        )(x(B, Q, 15)),
        "even",
        "5",
    ),
    "sublayers_of_unlike_sizes": (
        lambda: block(1)(x(B, Q, F)),
        "`y` must have the shape [2, 5, 12]",
    ),
    "input_of_another_size": (
        lambda: block()(x(B, Q, 1)),
        "`x` must have the shape [batch, positions, 12]",
    ),
    "fractions_for_ids": (
        lambda: embeddings.TokenEmbedding(7, 4)(x(2, 3)),
        "`ids` must be integers",
        "float32",
    ),
    "labels_of_other_keys": (labelled("int32", Q, 1), "`relations`", "[5, 5]"),
    "fractions_for_labels": (labelled("float32", Q, Q), "integers", "float32"),
    "arrays_without_heads": (
        lambda: function(q=x(B, Q, 4)),
        "`q` must have the shape [batch, heads, queries, depth]",
    ),
    "table_of_an_even_number_of_rows": (
        lambda: function(key_table=x(4, 4)),
        "2k+1 rows",
        "(4, 4)",
    ),
    "no_row_of_distance_0": (
        lambda: function(left=5),
        "rows, or `left` of them before the one of distance 0",
        "left=5",
    ),
    "mask_for_a_bias": (
        lambda: function(bias=mask(1, 1, Q, K)),
        "`bias` must be float",
    ),
    "step_beyond_the_cache": (
        lambda: step_of(5, x(B, 3, F), start=3),
        "room for 5 positions",
        "3 new positions",
    ),
    "window_below_1": (lambda: localness.Localness(0.5), "`window`", "0.5"),
    "unknown_implementation": (
        lambda: function(implementation="fast"),
        "'auto', 'reshape', 'compact'",
        "'fast'",
    ),
    "clipping_that_is_no_distance": (
        lambda: shaw.relative_position_ids(2, 2, -1),
        "`max_relative_position`",
        "-1",
    ),
    "name_for_hparams": (
        lambda: model_lib.Transformer("transformer_base"),
        "`hparams` must be an HParams or a dict",
    ),
    "targets_of_other_examples": (
        lambda: model_lib.Transformer({"vocab_size": 11, "hidden_size": 16})(
            np.ones([2, 3], int), np.ones([3, 3], int)
        ),
        "`targets` must have the shape [2, positions]",
    ),
}


class RefusalsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(*GOOD)
    def test_a_wrong_argument_is_refused(self, kind):
        for name in BAD.keys() & inspect.signature(kind.__init__).parameters:
            for value in BAD[name]:
                with self.subTest(name=name, value=value):
                    with self.assertRaises(errors.UserError) as caught:
                        kind(**(GOOD[kind] | {name: value}))
                    expected, received = str(caught.exception).split("Received")
                    self.assertRegex(expected, "^`.*must be ")
                    self.assertIn(f"`{name}`", expected)
                    self.assertIn(f"{value!r}", received)

    @parameterized.parameters(*GOOD)
    def test_integers_of_numpy_are_kept_as_those_of_python(self, kind):
        expected = dict(GOOD[kind])
        if issubclass(kind, keras.Layer):
            expected["name"] = "same"
        given = {
            name: np.int64(value) if type(value) is int else value
            for name, value in expected.items()
        }
        configs = [
            json.dumps(kind(**arguments).get_config())
            for arguments in (given, expected)
        ]
        self.assertEqual(*configs)

    @parameterized.parameters(*CALLS)
    def test_a_call_is_refused(self, case):
        call, *words = CALLS[case]
        with self.assertRaises(errors.UserError) as caught:
            call()
        for word in words:
            self.assertIn(word, str(caught.exception))

    @parameterized.parameters(
        ("TransformerAttention", lambda: attention.TransformerAttention(F, H)),
        ("TokenEmbedding", lambda: embeddings.TokenEmbedding(7, F)),
        ("Transformer", lambda: model_lib.Transformer({"vocab_size": 11})),
        ("relative_attention", function),
    )
    def test_another_backend_is_refused(self, name, call):
        with (
            mock.patch.object(keras.backend, "backend", lambda: "jax"),
            self.assertRaisesRegex(
                errors.UserError,
                f"`{name}` must run on TensorFlow.*Keras on jax",
            ),
        ):
            call()

    @parameterized.parameters("fit", "evaluate", "predict")
    def test_the_transformer_names_what_stands_for_a_method(self, name):
        model = model_lib.Transformer({"vocab_size": 11, "hidden_size": 16})
        model.compile("adam", "mse")
        ids = np.ones([B, Q], int)
        with self.assertRaisesRegex(
            errors.UserError, rf"`{name}`.* not supported.*relpos(-|_tf.Tr)"
        ):
            getattr(model, name)((ids, ids))

    def test_a_mask_of_unknown_rows_is_no_mask_of_queries(self):
        layer = transformer()
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
