"""The estimate over seeds and sentences: by hand, and in simulations."""

import math
import statistics
from unittest import mock

import numpy as np
from absl.testing import parameterized

from relpos_tf.comparison import corpus_measures
from relpos_tf.comparison import significance
from relpos_tf.comparison import two_way
from tests.campaigns import chance

NORMAL = statistics.NormalDist()


class Mean:
    """A measure whose score is the mean over lines; counts: value and 1."""

    name = "BLEU"

    def score(self, sums):
        return sums[..., 0] / sums[..., 1]


MEAN = Mean()


def runs(*by_seed):
    """Returns counts of runs whose lines have these scores, for `Mean`."""
    return [np.array([[x, 1.0] for x in lines]) for lines in by_seed]


def zeros(seeds, lines):
    return runs(*[[0.0] * lines] * seeds)


class TwoWayTest(parameterized.TestCase):
    def test_two_seeds_and_three_lines_by_hand(self):
        # Differences of the seeds: 3 and 5, variance 2. Of the lines, over
        # both seeds: 2, 4, 6, variance 4.
        found = two_way.of_same_seeds(
            runs([1, 3, 5], [3, 5, 7]), zeros(2, 3), MEAN
        )
        self.assertAlmostEqual(found.difference, 4.0)
        self.assertAlmostEqual(found.seed_error, 1.0)
        self.assertAlmostEqual(found.sentence_error, (4 / 3) ** 0.5)
        # From printed tables: t of one degree of freedom, and the normal.
        half = (12.7062**2 + 1.95996**2 * 4 / 3) ** 0.5
        self.assertAlmostEqual(found.low, 4 - half, places=3)
        self.assertAlmostEqual(found.high, 4 + half, places=3)

    def test_groups_of_unequal_size_by_hand(self):
        # Scores 2, 3, 4 (variance 1) and 0, 2 (variance 2); lines over the
        # seeds: 2, 4 and 0, 2, so that their differences are equal.
        found = two_way.of_other_seeds(
            runs([1, 3], [2, 4], [3, 5]), runs([-1, 1], [1, 3]), MEAN
        )
        self.assertAlmostEqual(found.difference, 2.0)
        self.assertAlmostEqual(found.seed_error, (1 / 3 + 2 / 2) ** 0.5)
        self.assertAlmostEqual(found.sentence_error, 0.0)
        half = 12.7062 * found.seed_error
        self.assertAlmostEqual(found.high, 2 + half, places=3)
        self.assertAlmostEqual(
            found.p_value, significance.p_of_groups([2, 3, 4], [0, 2])
        )

    @parameterized.parameters(0.5, 4.0, 20.0, 300.0)
    def test_p_value_is_the_level_whose_interval_ends_at_zero(self, shift):
        lines = [[1 + shift, 3 + shift, 6 + shift], [3.5 + shift] * 3]
        found = two_way.of_same_seeds(runs(*lines), zeros(2, 3), MEAN)
        p = found.p_value
        self.assertBetween(p, 1e-6, 0.999)
        # The quantile of t of one degree of freedom is a tangent.
        t = math.tan(math.pi / 2 * (1 - p))
        z = NORMAL.inv_cdf(1 - p / 2)
        half = math.hypot(t * found.seed_error, z * found.sentence_error)
        self.assertAlmostEqual(half / found.difference, 1.0, places=6)
        self.assertEqual(p < 0.05, found.low > 0)

    def test_equal_seeds_leave_the_normal_test(self):
        found = two_way.of_same_seeds(
            runs(*[[1.0, 3.0, 2.0]] * 3), zeros(3, 3), MEAN
        )
        # Mean 2, variance 1.
        self.assertAlmostEqual(found.p_value, 2 * NORMAL.cdf(-2 * 3**0.5))
        self.assertAlmostEqual(found.low, 2 - 1.959964 / 3**0.5, places=6)
        for shift, expected in ((0.0, 1.0), (1.0, 0.0)):
            found = two_way.of_same_seeds(
                runs([shift] * 3, [shift] * 3), zeros(2, 3), MEAN
            )
            self.assertEqual(found.p_value, expected)

    def test_one_seed_or_line_has_no_estimate(self):
        bleu = corpus_measures.Bleu()
        for seeds, lines in ((1, 5), (2, 1)):
            counts = bleu.counts(["a b c d"] * lines, ["a b c d"] * lines)
            sides = [[counts] * seeds] * 2
            self.assertIsNone(two_way.of_same_seeds(*sides, bleu))
            self.assertIsNone(two_way.of_other_seeds(*sides, bleu))

    @parameterized.parameters(corpus_measures.Bleu(), corpus_measures.ChrF())
    def test_error_over_sentences_is_that_of_the_bootstrap(self, measure):
        generator = np.random.default_rng(3)
        references, translations = chance.made_lines(generator, 200, 4)
        counts = [measure.counts(t, references) for t in translations]
        found = two_way.of_same_seeds(counts[:2], counts[2:], measure)
        sides = sum(counts[:2]), sum(counts[2:])
        drawn = generator.integers(200, size=(1000, 200))  # with repetition
        ours, others = (
            np.array([measure.score(side[lines].sum(0)) for lines in drawn])
            for side in sides
        )
        error = (ours - others).std(ddof=1)
        self.assertAlmostEqual(found.sentence_error / error, 1.0, delta=0.1)


class CoverageTest(parameterized.TestCase):
    @parameterized.product(
        seeds=(2, 5),
        parts=((1.0, 0.0, 0.3), (1.0, 0.7, 0.3), (0.0, 0.7, 0.3)),
    )
    def test_interval_holds_the_truth(self, seeds, parts):
        # The model of the module's docstring; its parts as errors of one seed.
        generator = np.random.default_rng(1908)
        lines, number = 60, 400
        seed, sentence, rest = parts
        held = 0
        for _ in range(number):
            values = (
                generator.normal(0, seed, (seeds, 1))
                + generator.normal(0, sentence * lines**0.5, lines)
                + generator.normal(0, rest * lines**0.5, (seeds, lines))
            )
            found = two_way.of_same_seeds(
                runs(*values), zeros(seeds, lines), MEAN
            )
            held += found.low <= 0 <= found.high
        # Three standard errors of so many comparisons.
        error = 3 * (0.05 * 0.95 / number) ** 0.5
        self.assertGreaterEqual(held / number, 0.95 - error)


class ChanceTest(parameterized.TestCase):
    """The campaign `chance`, with few lines, trials and comparisons."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        generator = np.random.default_rng(1899)
        lines = chance.made_lines(generator, lines=400, translations=6)
        cls.pool = chance.Pool(corpus_measures.Bleu(), *lines)
        cls.generator = generator

    def shares(self, kind, seeds, number=100):
        with mock.patch.object(significance, "TRIALS", 500):
            return chance.tally(self.pool, kind, seeds, number, self.generator)

    @parameterized.parameters(("equal", 2), ("mixed", 1), ("mixed", 5))
    def test_equal_labels_are_rarely_called_different(self, kind, seeds):
        found = self.shares(kind, seeds)
        self.assertLessEqual(found["better"], 0.05)
        if seeds == 1:
            self.assertEqual(found["better"], 0.0)
            self.assertGreater(found["sentences"], 0.1)
        else:
            error = 3 * (0.05 * 0.95 / 100) ** 0.5
            self.assertGreaterEqual(found["interval holds"], 0.95 - error)

    def test_true_differences_are_found(self):
        found = self.shares("3", 5)
        self.assertGreater(found["better"], 0.5)
        self.assertGreater(found["interval holds"], 0.9)
