"""Significance in BLEU, against sacreBLEU's test and against counting."""

import os
from unittest import mock

import numpy as np
import sacrebleu.metrics
import sacrebleu.significance
from absl.testing import parameterized

from relpos_tf.comparison import corpus_measures
from relpos_tf.comparison import significance

WORDS = "the a cat dog sat ran on under one red blue mat house .".split()


def lines(seed, share=0.3, number=60):
    """Returns lines of words; each word is another with some probability."""
    drawn = np.random.default_rng(7).choice(WORDS, (number, 9))
    other = np.random.default_rng(seed).choice(WORDS, (number, 9))
    changed = np.random.default_rng(seed + 1).random((number, 9)) < share
    return [" ".join(row) for row in np.where(changed, other, drawn)]


REFERENCES = lines(0, share=0)
BLEU = corpus_measures.Bleu()
CHRF = corpus_measures.ChrF()


def counts(hypotheses, references=REFERENCES):
    return BLEU.counts(hypotheses, references)


class PValueTest(parameterized.TestCase):
    @parameterized.parameters(
        (BLEU, sacrebleu.metrics.BLEU(force=True), 3, 0.3),
        (CHRF, sacrebleu.metrics.CHRF(), 3, 0.34),
    )
    def test_p_value_is_sacrebleus_without_ties(
        self, measure, metric, seed, share
    ):
        worse, better = lines(seed, share), lines(5)
        with mock.patch.dict(os.environ, {"SACREBLEU_SEED": "12345"}):
            _, found = sacrebleu.significance.PairedTest(
                [("a", better), ("b", worse)],
                {measure.name: metric},
                [REFERENCES],
                test_type="ar",
            )()
        (key,) = set(found) - {"System"}
        expected = found[key][1]
        counts_of = [measure.counts(x, REFERENCES) for x in (better, worse)]
        self.assertAlmostEqual(
            measure.score(counts_of[1].sum(axis=0)), expected.score, places=9
        )
        self.assertEqual(
            significance.p_value(*counts_of, measure), expected.p_value
        )
        self.assertEqual(
            significance.p_value(counts_of[0], counts_of[0], measure), 1.0
        )

    @parameterized.parameters((1, 1.0), (2, 0.5), (4, 0.125), (6, 1 / 32))
    def test_only_two_of_all_trials_are_as_large(self, number, expected):
        # All others equal: only the two trials in which these lines stay
        # together differ as much, 2 of 2^number.
        better = list(REFERENCES)
        worse = ["wrong"] * number + list(REFERENCES[number:])
        found = significance.p_value(counts(better), counts(worse), BLEU)
        self.assertAlmostEqual(found, expected, delta=0.01)


class HolmTest(parameterized.TestCase):
    @parameterized.parameters(
        # Hand-worked: the smallest of m times m, the next times m - 1, ...,
        # and no less than the one before.
        ([0.01, 0.04, 0.03], [0.03, 0.06, 0.06]),
        ([0.01, 0.02, 0.03, 0.005], [0.03, 0.04, 0.04, 0.02]),
        ([0.4, 0.6], [0.8, 0.8]),
        ([0.03], [0.03]),
        ([0.02, None, 0.02], [0.04, None, 0.04]),
        ([None, None], [None, None]),
        ([], []),
    )
    def test_hand_worked(self, p_values, expected):
        found = significance.holm(p_values)
        self.assertEqual(
            [None if p is None else round(p, 12) for p in found], expected
        )


class SeedsTest(parameterized.TestCase):
    # Critical values of Student's t, two-sided, from a printed table.
    @parameterized.parameters(
        (1, 12.706, 0.05),
        (5, 2.015, 0.10),
        (6, 3.707, 0.01),
        (29, 2.045, 0.05),
    )
    def test_p_value_of_t_is_in_the_printed_table(self, freedom, t, expected):
        # A mean of t standard errors, in differences that sum to that.
        number = freedom + 1
        signs = np.arange(number) - (number - 1) / 2
        error = signs.std(ddof=1) / number**0.5
        found = significance.p_of_differences((signs + t * error).tolist())
        self.assertAlmostEqual(found, expected, delta=0.0003)

    def test_different_seeds_are_not_paired(self):
        # Means 3 apart, variances 1 and 4: t = 3 / sqrt(1/3 + 4/3), and two
        # degrees of freedom, of which p = 1 - t / sqrt(2 + t^2).
        first, second = [4.0, 5.0, 6.0], [0.0, 2.0, 4.0]
        t = 3 / (5 / 3) ** 0.5
        found = significance.p_of_groups(first, second)
        self.assertAlmostEqual(found, 1 - t / (2 + t**2) ** 0.5)
        shifted = significance.p_of_groups(second, first)
        self.assertAlmostEqual(shifted, found)

    def test_one_seed_has_no_p_value(self):
        for first, second in (([1.0], [2.0]), ([1.0], [2.0, 3.0]), ([], [])):
            self.assertIsNone(significance.p_of_groups(first, second))
        for differences in ([], [1.0]):
            self.assertIsNone(significance.p_of_differences(differences))

    def test_what_is_no_number_has_no_spread_and_no_p_value(self):
        for other in (np.nan, np.inf, -np.inf):
            values = [1.0, other, 3.0]
            self.assertIsNone(significance.spread(values))
            self.assertIsNone(significance.p_of_differences(values))
            self.assertIsNone(significance.p_of_groups([1.0, 2.0], values))

    def test_seeds_without_any_spread(self):
        # With nothing to compare a difference with, it cannot be tested.
        for other, expected in ((2.0, 1.0), (3.0, None)):
            found = significance.p_of_groups([2.0] * 2, [other] * 2)
            self.assertEqual(found, expected)
            found = significance.p_of_differences([2.0 - other] * 2)
            self.assertEqual(found, expected)
