"""CTranslate2 computes the same as the model, or the model is refused.

Shapes: B batch, T target length, V vocabulary.
"""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf.decoding import ctranslate2_engine
from relpos_tf.decoding import model_engine
from relpos_tf.decoding import search
from relpos_tf.export import ctranslate2_spec
from relpos_tf.layers.positions import shaw
from relpos_tf.models import transformer
from tests import ctranslate2_runs
from tests import testing
from tests.ctranslate2_runs import ABSOLUTE
from tests.ctranslate2_runs import PRE_NORM

V = 23
TOKENS = [f"t{i}" for i in range(V)]
# Kinds with more layers say so.
SHARED = testing.HPARAMS.replace(
    heads_share_relative_embedding=True, num_hidden_layers=1
)
UNTIED = {"shared_embedding_and_softmax_weights": False}
SPACE = {"use_target_space_embedding": True, "target_space_id": 9}
NO_KEYS = {"add_relative_to_keys": False}
NO_VALUES = {"add_relative_to_values": False}
BIAS = {"self_attention_type": "dot_product_relative_bias"}
ROTARY = {"self_attention_type": "dot_product_rotary"}
KINDS = {
    "relative": {"num_hidden_layers": 2},
    "k_0": {"max_relative_position": 0},
    "keys_only": NO_VALUES,
    "absolute": ABSOLUTE,
    "shape": ABSOLUTE | {"max_position_shift": 500},
    # Shorter than the sentences: the later positions share a vector.
    "learned": ABSOLUTE | {"pos": "emb", "max_length": 4},
    "no_positions": ABSOLUTE | {"pos": "none"},
    "k_apart": {
        "max_relative_position": 5,
        "max_relative_position_right": 1,
        "decoder_max_relative_position": 3,
    },
    "k_after": {"max_relative_position": 0, "max_relative_position_right": 3},
    "relative_encoder": {
        "decoder_self_attention_type": "dot_product",
        "decoder_pos": "timing",
    },
    "relative_decoder": ABSOLUTE
    | {
        "pos": "emb",
        "max_length": 4,
        "decoder_self_attention_type": "dot_product_relative",
        "decoder_pos": "none",
    },
    "t5_bias": BIAS | {"num_hidden_layers": 2},  # They share a table.
    # In float32 and in float64, logarithms can round the starts 6 and 10 to
    # the bucket before.
    "t5_bias_10_buckets": BIAS
    | {
        "relative_attention_num_buckets": 10,
        "relative_attention_max_distance": 160,
    },
    "rotary": ROTARY,
    "rotary_in_the_encoder": ROTARY
    | {"decoder_self_attention_type": "dot_product_relative"},
    "no_tables": NO_KEYS | NO_VALUES,
    "pre_norm": PRE_NORM,
    "untied": UNTIED | {"shared_embedding": False},
    "untied_softmax": UNTIED,
    "untied_source": {"shared_embedding": False},
    "target_space": SPACE,
    "one_head": {"num_heads": 1},
    "odd_sizes": {"hidden_size": 15, "num_heads": 3, "filter_size": 7},
    "deep_encoder": {"num_encoder_layers": 3, "num_decoder_layers": 1},
    "other_epsilon": {"norm_epsilon": 1e-6},
}
REFUSED = {
    "per_head": ({"heads_share_relative_embedding": False}, "each has its own"),
    "values_only": (NO_KEYS, "ignores relative positions on the values"),
    "relative_and_absolute": ({"pos": "timing"}, "leaves out absolute"),
    "two_norms": ({"layer_preprocess_sequence": "n"}, "has two norms"),
    "localness": ({"localness": "query"}, "localness query"),
    "window": ({"attention_window": 3}, "window 3"),
    "alibi": ({"self_attention_type": "dot_product_alibi"}, "ALiBi"),
    "transformer_xl": (
        {"self_attention_type": "dot_product_transformer_xl"},
        "Transformer-XL",
    ),
    "fire": ({"self_attention_type": "dot_product_fire"}, "FIRE"),
    "kerple": ({"self_attention_type": "dot_product_kerple"}, "KERPLE"),
    "relative_and_absolute_in_the_decoder": (
        ABSOLUTE | {"decoder_self_attention_type": "dot_product_relative"},
        "leaves out absolute.*pos=timing",
    ),
    "no_norm": ({"layer_postprocess_sequence": "da"}, "has no norm"),
}


def setUpModule():
    ctranslate2_runs.skip_without_library()


def sentences(seed, sizes):
    """Returns sentences of random ids with these sizes, EOS last."""
    random = np.random.default_rng(seed)
    return [[*random.integers(2, V, size - 1).tolist(), 1] for size in sizes]


def names(rows):
    """Returns tokens without EOS, which CTranslate2 adds."""
    return [[TOKENS[i] for i in row[:-1]] for row in rows]


class SpecTest(parameterized.TestCase):
    def translator(self, model):
        folder = self.create_tempdir().full_path
        spec = ctranslate2_spec.model_spec(model, TOKENS)
        spec.optimize(None)
        spec.save(folder)
        return ctranslate2_engine.package().Translator(folder)

    @parameterized.named_parameters(KINDS.items())
    def test_log_probabilities_are_those_of_the_model(self, changes):
        model = transformer.Transformer(SHARED.replace(**changes))
        testing.randomize(model)
        sources = sentences(1, (2, 13, 5, 20, 1))  # k is 2
        targets = sentences(2, (8, 1, 19, 4, 7))
        targets[4][2] = 0  # a search may try padding
        found = self.translator(model).score_batch(
            names(sources), names(targets)
        )
        inputs, outputs = (
            model_engine.padded(sources),
            model_engine.padded(targets),
        )
        logits = tf.nn.log_softmax(model(inputs, outputs)).numpy()  # [B, T, V]
        for b, target in enumerate(targets):
            expected = logits[b, range(len(target)), target]  # [T]
            np.testing.assert_allclose(
                found[b].log_probs, expected, rtol=0, atol=1e-5
            )
        np.testing.assert_allclose(
            [sum(one.log_probs) for one in found[:4]],
            search.log_probabilities(model, inputs, outputs)[:4],
            rtol=0,
            atol=1e-4,
        )

    @parameterized.named_parameters(
        (name, *value) for name, value in REFUSED.items()
    )
    def test_model_that_ctranslate2_cannot_compute_is_refused(
        self, changes, reason
    ):
        model = transformer.Transformer(SHARED.replace(**changes))
        testing.randomize(model)
        with self.assertRaisesRegex(errors.UserError, reason) as caught:
            ctranslate2_spec.model_spec(model, TOKENS)
        self.assertNotIn("\n", str(caught.exception))

    def test_heads_with_equal_tables_share_them(self):
        model = transformer.Transformer(
            SHARED.replace(heads_share_relative_embedding=False)
        )
        testing.randomize(model)
        for block in (*model.encoder_blocks, *model.decoder_blocks):
            layer = block.self_attention
            tables = shaw.tables_of(layer)
            self.assertLen(tables, 2)
            for table in tables.values():
                table.assign(tf.repeat(table[:1], 2, axis=0))
        sources, targets = sentences(3, (9,)), sentences(4, (11,))
        (found,) = self.translator(model).score_batch(
            names(sources), names(targets)
        )
        logits = model(tf.constant(sources), tf.constant(targets))
        expected = tf.nn.log_softmax(logits).numpy()[0, range(11), targets[0]]
        np.testing.assert_allclose(found.log_probs, expected, rtol=0, atol=1e-5)
