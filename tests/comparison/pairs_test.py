"""Comparisons of two labels, and the verdict in words."""

from unittest import mock

import numpy as np
from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf.comparison import pairs
from relpos_tf.comparison import significance
from relpos_tf.training import metrics

REFERENCES = [f"the {n} small cats sat on mat {n} ." for n in range(12)]
WORSE = [line.replace("small", "big") for line in REFERENCES]
WORST = [line.replace("sat", "stood") for line in WORSE]


def results(**by_seed):
    """Returns results of lines, by seeds called s1, s2, ..."""
    found = {int(name[1:]): lines for name, lines in by_seed.items()}
    return pairs.SeedScores(
        {n: metrics.corpus_bleu(x, REFERENCES).bleu for n, x in found.items()},
        {n: metrics.line_counts(x, REFERENCES) for n, x in found.items()},
    )


def pair(a="a", b="b", bleu=(30.0, 20.0), **changes):
    return {
        "a": a,
        "b": b,
        "seeds": [1, 2, 3],
        "bleu_a": bleu[0],
        "bleu_b": bleu[1],
        "spread_a": 0.5,
        "spread_b": 0.25,
        "p_value": 1 / 10_001,
        "by_seed": [10.5, 9.5, 10.0],
        "p_value_seeds": 0.0034,
        "p_below": 0.05,
    } | changes


def summary(*labels_and_scores):
    return [{"label": a, "bleu_mean": bleu} for a, bleu in labels_and_scores]


class ChooseTest(parameterized.TestCase):
    @parameterized.parameters(
        ("a", ""),
        ("ab", "ab"),
        ("abcd", "ab ac ad bc bd cd"),
        ("abcde", "ab ac ad ae bc cd de"),
    )
    def test_pairs_of_few_and_of_many_labels(self, labels, expected):
        found = pairs.choose(list(labels))
        self.assertEqual(" ".join(map("".join, found)), expected)


class CompareTest(absltest.TestCase):
    def test_uses_the_seeds_that_both_have(self):
        by_label = {
            "a": results(s1=REFERENCES, s2=WORSE, s3=WORST),
            "b": results(s2=WORST, s1=WORSE),
        }
        found = pairs.compare("a", "b", by_label)
        full, worse, worst = 100.0, *by_label["b"].bleu.values()
        worse, worst = sorted((worse, worst), reverse=True)
        self.assertEqual(found["seeds"], [1, 2])
        self.assertAlmostEqual(found["bleu_a"], (full + worse) / 2)
        self.assertAlmostEqual(found["bleu_b"], (worse + worst) / 2)
        self.assertAlmostEqual(found["spread_a"], (full - worse) / 2**0.5)
        self.assertEqual(
            found["p_value_seeds"],
            significance.p_of_differences(found["by_seed"]),
        )
        # The first seed is better in a, and so is the second.
        self.assertLen(found["by_seed"], 2)
        self.assertAlmostEqual(found["by_seed"][0], full - worse)
        self.assertAlmostEqual(found["by_seed"][1], worse - worst)
        counts = [
            sum(metrics.line_counts(x, REFERENCES) for x in side)
            for side in ((REFERENCES, WORSE), (WORSE, WORST))
        ]
        self.assertEqual(found["p_value"], significance.p_value(*counts))
        self.assertEqual(
            [found["difference_low"], found["difference_high"]],
            list(significance.interval(*counts)[1:]),
        )
        joined = [
            metrics.corpus_bleu(x, REFERENCES * 2).bleu
            for x in (REFERENCES + WORSE, WORSE + WORST)
        ]
        self.assertAlmostEqual(found["difference"], joined[0] - joined[1])

    def test_single_runs_of_different_seeds_are_compared(self):
        by_label = {"a": results(s1=REFERENCES), "b": results(s2=WORSE)}
        found = pairs.compare("a", "b", by_label)
        self.assertEqual(found["seeds"], [])
        self.assertEqual(found["by_seed"], [])
        self.assertLess(found["p_value"], 0.01)
        self.assertIsNone(found["p_value_seeds"])
        self.assertFalse(found["is_beyond_chance"])

    def test_unequal_numbers_of_different_seeds_are_not_tested(self):
        by_label = {
            "a": results(s1=REFERENCES, s2=WORSE),
            "b": results(s3=WORST),
        }
        found = pairs.compare("a", "b", by_label)
        for name in ("p_value", "difference", "p_value_seeds", "spread_b"):
            self.assertIsNone(found[name])
        self.assertGreater(found["bleu_a"], found["bleu_b"])

    def test_equal_seeds_add_no_evidence_over_sentences(self):
        once = pairs.compare(
            "a", "b", {"a": results(s1=WORSE), "b": results(s1=WORST)}
        )
        thrice = pairs.compare(
            "a",
            "b",
            {
                "a": results(s1=WORSE, s2=WORSE, s3=WORSE),
                "b": results(s1=WORST, s2=WORST, s3=WORST),
            },
        )
        self.assertEqual(once["p_value"], thrice["p_value"])
        self.assertTrue(
            np.allclose(once["difference_low"], thrice["difference_low"])
        )


class LevelTest(parameterized.TestCase):
    """Sets that are equally good are rarely called different."""

    CASES = 2000

    def share_of_better(self, labels, seeds, spreads, own_seeds=False):
        """Returns how often a verdict calls one of equal sets better.

        The test over sentences always passes, which is the worst case: with
        many test lines, it tells apart two trainings of the same set.
        """
        generator = np.random.default_rng(1789)
        certain = significance.Interval(1.0, 0.5, 1.5)
        numbers = range(1, seeds + 1)
        better = 0
        with (
            mock.patch.object(significance, "p_value", return_value=1e-4),
            mock.patch.object(significance, "interval", return_value=certain),
        ):
            for _ in range(self.CASES):
                by_label = {}
                for index, label in enumerate(labels):
                    drawn = generator.normal(30.0, spreads[index], seeds)
                    names = [n + own_seeds * index * seeds for n in numbers]
                    by_label[label] = pairs.SeedScores(
                        dict(zip(names, drawn.tolist(), strict=True)),
                        dict.fromkeys(names, np.zeros([1, 10])),
                    )
                chosen = pairs.choose(labels)
                found = [
                    pairs.compare(a, b, by_label, pairs.level(len(chosen)))
                    for a, b in chosen
                ]
                rows = summary(
                    *(
                        (label, float(np.mean(list(r.bleu.values()))))
                        for label, r in by_label.items()
                    )
                )
                better += "is better than" in pairs.verdict(rows, found)
        return better / self.CASES

    @parameterized.product(seeds=(1, 2, 3, 5), spreads=((1.0, 1.0), (1.0, 0.1)))
    def test_two_equal_sets_are_called_different_at_the_level(
        self, seeds, spreads
    ):
        found = self.share_of_better("ab", seeds, spreads)
        # Three standard errors of so many cases.
        error = (0.05 * 0.95 / self.CASES) ** 0.5
        self.assertLessEqual(found, 0.05 + 3 * error)
        self.assertEqual(found == 0.0, seeds == 1)

    def test_two_equal_sets_without_a_common_seed(self):
        for seeds in (2, 3):
            found = self.share_of_better("ab", seeds, (1.0, 0.1), True)
            self.assertBetween(found, 0.001, 0.05)

    def test_four_equal_sets(self):
        found = self.share_of_better("abcd", 3, [1.0] * 4)
        self.assertBetween(found, 0.001, 0.05)


class VerdictTest(parameterized.TestCase):
    @parameterized.parameters(
        (
            {},
            "a is better than b by 10.0 BLEU (3 seeds, spread 0.2 and 0.5, "
            "p = 0.003 over seeds; p = 0.0001 over test sentences).",
        ),
        (
            {"bleu": (20.0, 20.8)},
            "b is better than a by 0.8 BLEU (3 seeds, spread 0.2 and 0.5, "
            "p = 0.003 over seeds; p = 0.0001 over test sentences).",
        ),
        (
            {"p_value_seeds": None, "seeds": [1], "p_value": 0.034},
            "a has 10.0 BLEU more than b, but one training of each cannot show "
            "which is better (one seed; p = 0.034 over test sentences). Train "
            "with more seeds, as in --seeds=1,2,3.",
        ),
        (
            {"p_value_seeds": None, "seeds": []},
            "a has 10.0 BLEU more than b, but one training of each cannot show "
            "which is better (different seeds; p = 0.0001 over test "
            "sentences). Train with more seeds, as in --seeds=1,2,3.",
        ),
        (
            {"p_value_seeds": 0.057},
            "a and b differ by 10.0 BLEU: no difference beyond chance (3 "
            "seeds, spread 0.2 and 0.5, p = 0.057 over seeds; p = 0.0001 over "
            "test sentences).",
        ),
        (
            {"p_value": 0.21},
            "a and b differ by 10.0 BLEU: no difference beyond chance (3 "
            "seeds, spread 0.2 and 0.5, p = 0.003 over seeds; p = 0.21 over "
            "test sentences).",
        ),
        (
            {"p_value": None, "seeds": []},
            "a has 10.0 BLEU more than b (different seeds, spread 0.2 and "
            "0.5, p = 0.003 over seeds; not tested, because they do not have "
            "the same seeds).",
        ),
    )
    def test_verdict_on_two_labels(self, changes, expected):
        found = pair(**changes)
        rows = summary(("a", found["bleu_a"]), ("b", found["bleu_b"]))
        self.assertEqual(pairs.verdict(rows, [found]), expected)

    def test_best_of_many_is_compared_with_the_next_and_the_first(self):
        rows = summary(("a", 20.0), ("b", 30.0), ("c", 28.0), ("d", 29.0))
        found = [
            pair("a", "b", (20.0, 30.0)),
            pair("a", "c", (20.0, 28.0)),
            pair("b", "c", (30.0, 28.0), p_value=0.4),
        ]
        for one in found:
            one["p_below"] = pairs.level(len(found))
        words = pairs.verdict(rows, found)
        self.assertStartsWith(
            words,
            "b has the highest BLEU, 30.0. b and c differ by 2.0 BLEU: no",
        )
        self.assertIn("). b is better than a by 10.0 BLEU (", words)
        self.assertEqual(words.count("differ"), 2)
        self.assertEqual(words.count("is better"), 1)
        self.assertEndsWith(
            words,
            ". Because 3 pairs were compared, better needs p below 0.017.",
        )

    def test_verdict_on_one_label(self):
        self.assertEqual(
            pairs.verdict(summary(("a", 1.0)), []),
            "a has nothing to be compared with.",
        )

    @parameterized.parameters(
        (0.049, 0.049, 0.05, True),
        (0.05, 0.01, 0.05, False),
        (0.01, 0.05, 0.05, False),
        (0.01, 0.02, 0.017, False),
        (0.01, 0.01, 0.017, True),
        (0.01, None, 0.05, False),
        (None, 0.01, 0.05, False),
    )
    def test_both_p_values_must_be_below_the_level(
        self, p, p_seeds, p_below, expected
    ):
        found = pair(p_value=p, p_value_seeds=p_seeds, p_below=p_below)
        self.assertEqual(pairs.is_beyond_chance(found), expected)


if __name__ == "__main__":
    absltest.main()
