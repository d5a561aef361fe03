"""Presets, sets with changes, and the differences between them."""

import itertools
import pathlib

from absl.testing import parameterized

from relpos_tf import registry
from relpos_tf.bin import compare
from relpos_tf.comparison import variants

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
TINY = "transformer_relative_tiny"


def changed(variant, base=TINY):
    """Returns the hparams of a variant that differ from its set."""
    values = registry.hparams(base).to_dict()
    own = variant.hparams.to_dict()
    return {name: own[name] for name in own if own[name] != values[name]}


class PresetTest(parameterized.TestCase):
    def test_table2_clips_at_every_distance(self):
        found = variants.of_preset("table2", TINY, "")
        self.assertEqual(
            [(one.label, one.hparams.max_relative_position) for one in found],
            [(f"k={k}", k) for k in (0, 1, 2, 4, 16, 64, 256)],
        )
        self.assertEqual(found[5].overrides, "max_relative_position=64")

    def test_depth_has_every_k_with_every_number_of_layers(self):
        for base in TINY, "transformer_relative_small":
            found = [
                (
                    one.hparams.max_relative_position,
                    one.hparams.encoder_layers,
                    one.hparams.decoder_layers,
                )
                for one in variants.of_preset("depth", base, "")
            ]
            pairs = itertools.product((1, 2, 16), (1, 2, 4))
            self.assertEqual(found, [(k, n, n) for k, n in pairs])

    @parameterized.parameters("table1", "positions")
    def test_relative_and_absolute_positions_are_compared(self, preset):
        found = variants.of_preset(preset, TINY, "")
        (both,) = [one for one in found if one.label == "both"]
        self.assertEqual(changed(both), {"pos": "timing"})

    def test_a_preset_changes_positions_and_depth_alone(self):
        names = ("pos", "attention", "relative", "position", "localness")
        names += "num_encoder_layers", "num_decoder_layers"
        for preset in variants.PRESETS:
            first, *_ = found = variants.of_preset(preset, TINY, "")
            distinct = {one.hparams for one in found}
            self.assertLen(distinct, len(found), preset)
            for one in found:
                for name in changed(one):
                    self.assertTrue(any(x in name for x in names), name)

    def test_documents_say_what_each_scheme_changes(self):
        page = (DOCS / "positions.md").read_text("utf-8")
        for label, changes in variants.PRESETS["positions"]:
            self.assertIn(f"`{label}`", page)
            for change in filter(None, changes.split(",")):
                self.assertIn(change, page, label)
        for preset in variants.PRESETS:
            self.assertIn(preset, compare.__doc__)

    def test_changes_for_all_meet_the_preset(self):
        found = variants.of_preset(
            "table2", TINY, "hidden_size=64", "max_length=9"
        )
        self.assertEqual(
            changed(found[0]),
            {"max_relative_position": 0, "hidden_size": 64, "max_length": 9},
        )
        # Changes to one label override changes to all.
        found = variants.of_preset("table2", TINY, "alpha=1;k=2:alpha=0.9")
        self.assertEqual([v.hparams.alpha for v in found[:3]], [1.0, 1.0, 0.9])


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
                    "alpha=1.0,max_length=9",
                ),
                ("low", TINY, "alpha=2.0,relu_dropout=0.1,max_length=9"),
                ("b=c", TINY, "alpha=1.0,beam_size=2,max_length=9"),
            ],
        )
        # Fields go to the sets in which they have an effect.
        plain, relative = variants.of_sets(
            ["transformer_tiny", TINY], "max_relative_position=3,alpha=1"
        )
        self.assertEqual(plain.overrides, "alpha=1.0")
        self.assertEqual(plain.hparams.max_relative_position, 16)
        self.assertEqual(
            relative.overrides, "max_relative_position=3,alpha=1.0"
        )
        self.assertEqual(
            changed(found[1]),
            {"alpha": 2.0, "relu_dropout": 0.1, "max_length": 9},
        )
