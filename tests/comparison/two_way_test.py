"""The difference over seeds and sentences: by hand, and in simulations."""

import math
import statistics

import numpy as np
from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf.comparison import corpus_measures
from relpos_tf.comparison import two_way
from tests.campaigns import chance

NORMAL = statistics.NormalDist()
# From printed tables: t of one degree of freedom, and the normal quantile.
T, Z = 12.7062, 1.95996


def models(*by_seed):
    """Returns models whose score is the mean over these scores of lines."""
    # The pseudo-values of a mean are the values themselves.
    return [
        corpus_measures.Scored(float(np.mean(x)), None, np.array(x))
        for x in by_seed
    ]


def zeros(seeds, lines):
    return models(*[[0.0] * lines] * seeds)


class TwoWayTest(parameterized.TestCase):
    def assert_intervals(self, found, mean, half, half_of_sentences):
        for value, expected in zip(
            found[:4],
            [
                mean + sign * x
                for x in (half, half_of_sentences)
                for sign in (-1, 1)
            ],
            strict=True,
        ):
            self.assertAlmostEqual(value, expected, places=3)

    def test_two_seeds_and_three_lines_by_hand(self):
        # Differences of the seeds: 3 and 5, variance 2. Of the lines, over
        # both seeds: 2, 4, 6, variance 4.
        found = two_way.compare(
            models([1, 3, 5], [3, 5, 7]), zeros(2, 3), are_paired=True
        )
        half = (T**2 + Z**2 * 4 / 3) ** 0.5
        self.assert_intervals(found, 4.0, half, Z * (4 / 3) ** 0.5)

    def test_groups_of_unequal_size_by_hand(self):
        # Scores 2, 3, 4 (variance 1) and 0, 2 (variance 2); lines over the
        # seeds: 2, 4 and 0, 2, so that their differences are equal.
        sides = models([1, 3], [2, 4], [3, 5]), models([-1, 1], [1, 3])
        error = (1 / 3 + 2 / 2) ** 0.5
        # The distribution function of t with one degree of freedom.
        p_value = 1 - 2 / math.pi * math.atan(2 / error)
        for first, second, sign in ((*sides, 1), (*sides[::-1], -1)):
            found = two_way.compare(first, second, are_paired=False)
            self.assert_intervals(found, sign * 2.0, T * error, 0.0)
            self.assertAlmostEqual(found.p_value, p_value)

    @parameterized.parameters(0.5, 4.0, 20.0, 300.0)
    def test_p_value_is_the_level_whose_interval_ends_at_zero(self, shift):
        lines = [[1 + shift, 3 + shift, 6 + shift], [3.5 + shift] * 3]
        found = two_way.compare(models(*lines), zeros(2, 3), are_paired=True)
        # Differences 10/3 and 7/2; lines 2.25, 3.25, 4.75.
        errors = 1 / 12, statistics.stdev([2.25, 3.25, 4.75]) / 3**0.5
        p = found.p_value
        self.assertBetween(p, 1.1e-4, 0.999)
        quantiles = math.tan(math.pi / 2 * (1 - p)), NORMAL.inv_cdf(1 - p / 2)
        half = math.hypot(*np.multiply(quantiles, errors))
        self.assertAlmostEqual(half, 41 / 12 + shift, places=5)
        self.assertEqual(p < 0.05, found.low > 0)

    def test_no_p_value_is_below_one_in_ten_thousand(self):
        sides = models([1e6, 1e6], [1e6 + 1, 1e6 + 1]), zeros(2, 2)
        self.assertEqual(two_way.compare(*sides, True).p_value, 1e-4)

    def test_what_cannot_be_known_is_none(self):
        half = Z * (4 / 3) ** 0.5
        one, copies = models([1, 3, 5]), models(*[[1, 3, 5]] * 3)
        for first, seeds in ((one, 1), (one, 3), (copies, 3), (copies, 1)):
            for are_paired in {False, len(first) == seeds}:
                found = two_way.compare(first, zeros(seeds, 3), are_paired)
                self.assertEqual(found[:2] + found[4:], (None,) * 3)
                for value, end in zip(found[2:4], (-half, half), strict=True):
                    self.assertAlmostEqual(value, 3 + end, places=4)
        # Rounding is no spread: .3 - .1 is not .4 - .2.
        sides = models([0.3] * 3, [0.4] * 3), models([0.1] * 3, [0.2] * 3)
        self.assertIsNone(two_way.compare(*sides, True).p_value)
        # Equal models differ by nothing, which chance explains.
        self.assertEqual(two_way.compare(copies, copies, True).p_value, 1.0)
        found = two_way.compare(models([1], [2]), zeros(2, 1), True)
        self.assertEqual(set(found), {None})

    @parameterized.parameters(corpus_measures.bleu(), corpus_measures.chrf())
    def test_interval_over_sentences_is_that_of_the_bootstrap(self, measure):
        generator = np.random.default_rng(3)
        references, translations = chance.made_lines(generator, 200, 4)
        counts = [measure.counts(t, references) for t in translations]
        scored = [*map(measure.scored, counts)]
        found = two_way.compare(scored[:2], scored[2:], are_paired=True)
        sides = sum(counts[:2]), sum(counts[2:])
        drawn = generator.integers(200, size=(1000, 200))  # with repetition
        ours, others = (measure.score(x[drawn].sum(axis=1)) for x in sides)
        half = Z * (ours - others).std(ddof=1)
        width = found.sentences_high - found.sentences_low
        self.assertAlmostEqual(width / half, 2.0, delta=0.2)


class CampaignTest(absltest.TestCase):
    def test_campaign_finds_true_differences_and_none_with_one_seed(self):
        generator = np.random.default_rng(1899)
        lines = chance.made_lines(generator, lines=400, translations=6)
        pool = chance.Pool(corpus_measures.bleu(), *lines)
        found = chance.tally(pool, "mixed", 1, 60, generator)
        self.assertEqual(found["better"], 0.0)
        self.assertGreater(found["sentences"], 0.1)
        found = chance.tally(pool, "3", 5, 30, generator)
        self.assertGreater(found["better"], 0.5)
        self.assertGreater(found["interval holds"], 0.8)
