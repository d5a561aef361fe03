"""The choice of a grid's point: by dev BLEU, then by dev loss."""

import math
import pathlib
from unittest import mock

from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf import hparam
from relpos_tf.comparison import grid
from relpos_tf.comparison import runs
from relpos_tf.comparison import tuning
from relpos_tf.comparison import variants


def score(point, bleu, loss, label="a"):
    variant = variants.Variant(label, "set", point, hparam.HParams(), point)
    path = pathlib.Path("runs")
    run = runs.Run(label, 3, path, "set", point, point)
    return tuning.PointScore(variant, run, bleu, loss)


class TuningTest(parameterized.TestCase):
    def test_a_field_without_effect_in_a_variant_has_no_points_there(self):
        sets = "transformer_relative_tiny", "transformer_tiny"
        text = "max_relative_position=4,8;alpha=1,2"
        points = [
            (one.label, one.point)
            for one in grid.expand(text, variants.of_sets(sets, ""))
        ]
        relative, absolute = sets
        expected = [
            (relative, f"max_relative_position={k},alpha={alpha}")
            for k in (4, 8)
            for alpha in (1, 2)
        ]
        expected += [(absolute, "alpha=1"), (absolute, "alpha=2")]
        self.assertEqual(points, expected)
        scores = [
            score(point, 1.0, 1.0)
            for point in ("pos=emb,alpha=1", "pos=none", "pos=none,alpha=2")
        ]
        _, (entry,) = tuning.choose(scores)
        self.assertEqual(entry["at_edge"], ["alpha"])

    def test_points_without_a_result_are_named(self):
        runs_ = [score("alpha=1", 0, 0).run, score("alpha=2", 0, 0, "b").run]
        with (
            mock.patch.object(
                runs, "is_finished", lambda run, _: run.label == "a"
            ),
            self.assertRaisesRegex(
                errors.UserError, "none of b .* from --grid"
            ),
        ):
            tuning.score(runs_, [], 5, "data", pathlib.Path())

    @parameterized.parameters(
        ([(20.0, 3.0), (22.0, 9.0), (21.0, 1.0)], 1),
        ([(20.0, 3.0), (20.0, 2.0), (19.0, 1.0)], 1),
        ([(20.0, 3.0), (20.0, 3.0)], 0),
        ([(0.0, math.nan), (0.0, 7.0), (0.0, math.nan)], 1),
    )
    def test_highest_bleu_then_lowest_loss_then_the_first(self, all_, best):
        scores = [score(f"alpha={n}", *one) for n, one in enumerate(all_)]
        (variant,), _ = tuning.choose(scores)
        self.assertIs(variant, scores[best].variant)

    def test_an_entry_tells_the_range_and_the_edge(self):
        _, (a, b) = tuning.choose(
            [
                score("alpha=1,pos=emb", 20.0, 3.0),
                score("alpha=2,pos=emb", 23.5, 2.5),
                score("alpha=3,pos=emb", 22.25, 2.0),
                score("alpha=1,pos=emb", 30.0, 1.0, "b"),
                score("alpha=2,pos=emb", 10.0, 4.0, "b"),
            ]
        )
        self.assertEqual((a["range"], b["range"]), (3.5, 20.0))
        # A field of one value, or of text, has no edge.
        self.assertEqual((a["at_edge"], b["at_edge"]), ([], ["alpha"]))
        self.assertEqual(
            [point["is_chosen"] for point in b["points"]], [True, False]
        )
