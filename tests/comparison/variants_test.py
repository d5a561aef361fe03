"""Presets, sets with changes, and the differences between them."""

from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf import registry
from relpos_tf.comparison import variants

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
