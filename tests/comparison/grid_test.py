"""Grids of hparams: their text, their points, and what they refuse."""

from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf import hparam
from relpos_tf.comparison import grid
from relpos_tf.comparison import variants


class ParseTest(parameterized.TestCase):
    @parameterized.parameters(
        (
            "learning_rate_constant=0.7,1,1.4",
            [
                "learning_rate_constant=0.7",
                "learning_rate_constant=1",
                "learning_rate_constant=1.4",
            ],
        ),
        (
            " alpha = 1 , 2 ; pos=emb,none;beam_size=3; ",
            [
                "alpha=1,pos=emb,beam_size=3",
                "alpha=1,pos=none,beam_size=3",
                "alpha=2,pos=emb,beam_size=3",
                "alpha=2,pos=none,beam_size=3",
            ],
        ),
    )
    def test_points_are_the_product_of_the_values(self, text, expected):
        self.assertEqual(grid.Grid.parse(text).points(), expected)


class ExpandTest(absltest.TestCase):
    def test_every_variant_gets_every_point_over_its_own_changes(self):
        base = hparam.HParams()
        named = [
            variants.Variant("a", "set", "", base),
            variants.Variant(
                "b", "set", "alpha=3,pos=emb", base.override("alpha=3,pos=emb")
            ),
        ]
        found = grid.Grid.parse("alpha=1,2").expand(named)
        self.assertEqual(
            [(one.label, one.overrides, one.point) for one in found],
            [
                ("a", "alpha=1", "alpha=1"),
                ("a", "alpha=2", "alpha=2"),
                ("b", "alpha=3,pos=emb,alpha=1", "alpha=1"),
                ("b", "alpha=3,pos=emb,alpha=2", "alpha=2"),
            ],
        )
        for one in found:
            # The trainer reads the text; both must mean the same.
            self.assertEqual(base.override(one.overrides), one.hparams)
        self.assertEqual(found[3].hparams, base.override("alpha=2,pos=emb"))


if __name__ == "__main__":
    absltest.main()
