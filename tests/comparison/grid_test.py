"""Grids of hparams: their text, their points, and what they refuse."""

from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf import errors
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
        (
            "shared_embedding_and_softmax_weights=true,false",
            [
                "shared_embedding_and_softmax_weights=true",
                "shared_embedding_and_softmax_weights=false",
            ],
        ),
    )
    def test_points_are_the_product_of_the_values(self, text, expected):
        self.assertEqual(grid.Grid.parse(text).points(), expected)

    @parameterized.parameters(
        ("alpha", "Expected name=value,value;.* Received: 'alpha'"),
        ("alpha=1,", "Expected name=value,value;"),
        ("alpha=1,beam_size=2", "with a semicolon between them"),
        (";", "one or more fields, each once. Received: none"),
        ("alpha=1;alpha=2", "each once. Received: alpha, alpha"),
        ("alpha=1,1.0", "each value of alpha once. Received: 1,1.0"),
        ("alhpa=1", "Unknown hparams .'alhpa'.. Did you mean alpha"),
        ("beam_size=1.5", "`beam_size` must be of type int"),
        ("train_steps=5,6", "Received: train_steps, which must be the same"),
        ("vocab_size=5,6", "Received: vocab_size, which must be the same"),
    )
    def test_what_is_no_grid_is_refused(self, text, message):
        with self.assertRaisesRegex(errors.UserError, message):
            grid.Grid.parse(text)


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

    def test_value_beyond_the_limits_of_a_field_is_refused(self):
        one = variants.Variant("a", "set", "", hparam.HParams())
        with self.assertRaisesRegex(errors.UserError, "beam_size"):
            grid.Grid.parse("beam_size=4,0").expand([one])


if __name__ == "__main__":
    absltest.main()
