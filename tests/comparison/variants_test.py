"""Presets, sets with changes, and the differences between them."""

import itertools
import pathlib
from unittest import mock

import keras
import numpy as np
from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf import hparam
from relpos_tf import registry
from relpos_tf.bin import compare
from relpos_tf.comparison import variants
from relpos_tf.models import transformer

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
TINY = "transformer_relative_tiny"


def changed(variant, base=TINY):
    """Returns the hparams of a variant that differ from its set."""
    values = registry.hparams(base).to_dict()
    own = variant.hparams.to_dict()
    return {name: own[name] for name in own if own[name] != values[name]}


class PresetTest(parameterized.TestCase):
    @parameterized.parameters(
        ("table1", ["relative", "absolute"]),
        ("table3", ["keys+values", "keys", "values", "neither"]),
        ("length", ["relative", "sinusoids", "learned", "both", "none"]),
    )
    def test_labels_stand_in_order(self, preset, expected):
        found = variants.of_preset(preset, TINY, "")
        self.assertEqual([one.label for one in found], expected)

    @parameterized.parameters(
        ("table1", "absolute", "timing", "dot_product"),
        ("length", "sinusoids", "timing", "dot_product"),
        ("length", "learned", "emb", "dot_product"),
        ("length", "both", "timing", "dot_product_relative"),
        ("length", "none", "none", "dot_product"),
        ("length", "relative", "none", "dot_product_relative"),
    )
    def test_positions(self, preset, label, pos, attention):
        (found,) = (
            one.hparams
            for one in variants.of_preset(preset, TINY, "")
            if one.label == label
        )
        self.assertEqual(found.pos, pos)
        self.assertEqual(found.self_attention_type, attention)

    def test_table2_clips_at_every_distance(self):
        found = variants.of_preset("table2", TINY, "")
        self.assertEqual(
            [(one.label, one.hparams.max_relative_position) for one in found],
            [(f"k={k}", k) for k in (0, 1, 2, 4, 16, 64, 256)],
        )
        self.assertEqual(found[5].overrides, "max_relative_position=64")

    def test_table3_leaves_out_keys_or_values(self):
        keys, values, neither = variants.of_preset("table3", TINY, "")[1:]
        self.assertEqual(changed(keys), {"add_relative_to_values": False})
        self.assertEqual(changed(values), {"add_relative_to_keys": False})
        self.assertEqual(changed(neither), changed(keys) | changed(values))

    def test_localness_adds_to_sinusoids_and_to_relative_positions(self):
        found = {v.label: v for v in variants.of_preset("localness", TINY, "")}
        sinusoids = changed(found["sinusoids"])
        self.assertEqual(
            sinusoids, {"pos": "timing", "self_attention_type": "dot_product"}
        )
        for label in ("fixed", "layer", "query"):
            self.assertEqual(
                changed(found[label]), sinusoids | {"localness": label}
            )
        self.assertEqual(changed(found["relative"]), {})
        self.assertEqual(
            changed(found["relative+query"]), {"localness": "query"}
        )

    @parameterized.parameters(
        ("relative", {}),
        ("sinusoids", {"pos": "timing"}),
        ("shape", {"pos": "timing", "max_position_shift": 500}),
        ("learned", {"pos": "emb"}),
        ("t5-bias", {"self_attention_type": "dot_product_relative_bias"}),
        ("alibi", {"self_attention_type": "dot_product_alibi"}),
        ("rotary", {"self_attention_type": "dot_product_rotary"}),
        (
            "convolutional",
            {
                "pos": "timing",
                "attention_window": 5,
                "attention_window_layers": 3,
            },
        ),
        ("localness", {"pos": "timing", "localness": "query"}),
        ("encoder-only", {"pos": "timing", "decoder_pos": "none"}),
        ("none", {}),
    )
    def test_every_scheme_of_positions(self, label, expected):
        found = {v.label: v for v in variants.of_preset("positions", TINY, "")}
        if label != "relative":
            expected = {"self_attention_type": "dot_product", **expected}
        self.assertEqual(changed(found[label]), expected)

    def test_positions_agree_with_the_sets_of_the_schemes(self):
        found = {v.label: v for v in variants.of_preset("positions", TINY, "")}
        for label, name in (
            ("sinusoids", "transformer_base"),
            ("shape", "transformer_shape"),
            ("learned", "transformer_learned"),
            ("t5-bias", "transformer_t5_bias"),
            ("alibi", "transformer_alibi"),
            ("rotary", "transformer_rotary"),
            ("convolutional", "transformer_convolutional_1d"),
            ("localness", "transformer_localness_query"),
        ):
            own = registry.hparams(name)
            tiny = registry.hparams("transformer_tiny")
            base = registry.hparams("transformer_base")
            expected = tiny.replace(
                **{
                    field: after
                    for field, (_, after) in hparam.differences(
                        base, own
                    ).items()
                }
            )
            difference = hparam.differences(found[label].hparams, expected)
            # Only fields of Shaw's vectors, which no other scheme reads.
            self.assertContainsSubset(
                difference,
                ("max_relative_position", "heads_share_relative_embedding"),
            )

    def test_every_position_scheme_builds_a_model_of_its_own(self):
        # Longer than a window of 5 to each side.
        inputs = np.array([[5, 7, 3, 4, 9, 2, 8, 6, 1], [4, 1] + [0] * 7])
        targets = np.array([[6, 3, 8, 1, 0], [9, 2, 4, 7, 1]])
        small = "hidden_size=8,filter_size=12,num_heads=4,vocab_size=11"
        outputs = {}
        for one in variants.of_preset("positions", TINY, small):
            keras.utils.set_random_seed(3)
            model = transformer.Transformer(one.hparams)
            logits = model(inputs, targets)
            self.assertEqual(logits.shape[:2], (2, 5), one.label)
            outputs[one.label] = logits.numpy()
        # SHAPE shifts in training only.
        shape = outputs.pop("shape")
        np.testing.assert_array_equal(shape, outputs["sinusoids"])
        for a, b in itertools.combinations(outputs, 2):
            self.assertGreater(abs(outputs[a] - outputs[b]).max(), 1e-4, (a, b))

    def test_presets_have_distinct_labels_and_hparams(self):
        for preset in variants.PRESETS:
            found = variants.of_preset(preset, TINY, "")
            labels = {one.label for one in found}
            self.assertLen(labels, len(found))
            if preset != "table2":  # All distances are beyond some lengths.
                values = {one.hparams.to_json() for one in found}
                self.assertLen(values, len(found))

    def test_documents_name_every_variant(self):
        page = (DOCS / "comparing.md").read_text("utf-8")
        for label, _ in variants.PRESETS["positions"]:
            self.assertIn(f"| `{label}` |", page)
        help_text = compare.__doc__
        for preset in variants.PRESETS:
            self.assertIn(preset, help_text)

    def test_changes_for_all_do_not_undo_the_preset(self):
        found = variants.of_preset(
            "table2",
            TINY,
            "max_relative_position=5,hidden_size=64",
            "max_length=9",
        )
        self.assertEqual(
            changed(found[0]),
            {"max_relative_position": 0, "hidden_size": 64, "max_length": 9},
        )
        # Changes to one label override changes to all.
        found = variants.of_preset("table2", TINY, "alpha=1;k=2:alpha=0.9")
        self.assertEqual([v.hparams.alpha for v in found[:3]], [1.0, 1.0, 0.9])

    @parameterized.parameters(
        "transformer_tiny", "transformer_relative_and_absolute"
    )
    def test_needs_a_set_with_relative_positions_only(self, base):
        with self.assertRaisesRegex(errors.UserError, f"Received: {base}"):
            variants.of_preset("table1", base, "")

    def test_needs_a_set_whose_decoder_has_the_same_positions(self):
        hparams = registry.hparams(TINY).replace(decoder_pos="timing")
        with (
            mock.patch.object(registry, "hparams", lambda name: hparams),
            self.assertRaisesRegex(errors.UserError, "Received: mine"),
        ):
            variants.of_preset("table1", "mine", "")


class SetsTest(parameterized.TestCase):
    def test_labels_and_changes(self):
        found = variants.of_sets(
            ["transformer_tiny", f"low={TINY}", f"b=c={TINY}"],
            "alpha=1 ; low: relu_dropout=0.1,alpha=2; b=c:beam_size=2",
            "max_length=9",
        )
        self.assertEqual(
            [(one.label, one.hparams_set, one.overrides) for one in found],
            [
                (
                    "transformer_tiny",
                    "transformer_tiny",
                    "alpha=1,max_length=9",
                ),
                ("low", TINY, "alpha=1,relu_dropout=0.1,alpha=2,max_length=9"),
                ("b=c", TINY, "alpha=1,beam_size=2,max_length=9"),
            ],
        )
        self.assertEqual(
            changed(found[1]),
            {"alpha": 2.0, "relu_dropout": 0.1, "max_length": 9},
        )

    @parameterized.parameters(
        ([TINY, TINY], "", "Received twice: transformer_relative_tiny"),
        (["a=" + TINY, "a=transformer_tiny"], "", "Received twice: a"),
        ([], "", "Received: none"),
        (["nothing"], "", "Unknown hparams set `nothing`"),
        ([TINY], "b:alpha=1", "labels transformer_relative_tiny. Received: 'b"),
        ([TINY], "alhpa=1", "Unknown hparams"),
        ([TINY], f"{TINY}:alpha=x", "`alpha` must be of type float"),
    )
    def test_mistakes(self, sets, changes, message):
        with self.assertRaisesRegex(errors.UserError, message):
            variants.of_sets(sets, changes)

    def test_differences_name_each_value(self):
        found = variants.of_sets(
            [f"a={TINY}", f"b={TINY}", f"c={TINY}"],
            "c:alpha=1,pos=emb;b:pos=emb",
        )
        self.assertEqual(
            variants.differences({one.label: one.hparams for one in found}),
            {
                "pos": {"a": "none", "b": "emb", "c": "emb"},
                "alpha": {"a": 0.6, "b": 0.6, "c": 1.0},
            },
        )
        self.assertEqual(variants.differences({"a": found[0].hparams}), {})

    def test_differences_for_a_terminal(self):
        self.assertEqual(
            variants.differences_table(
                {"pos": {"a": "none", "b": "emb"}, "k": {"a": True, "b": 1}}
            ),
            "     a     b\npos  none  emb\nk    true  1\n",
        )
        self.assertEqual(variants.differences_table({}), "Nothing differs.\n")


if __name__ == "__main__":
    absltest.main()
