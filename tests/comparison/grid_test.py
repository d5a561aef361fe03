"""Grids of hparams: their text, their points, and what they refuse."""

from absl.testing import parameterized

from relpos_tf.comparison import grid


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
