"""Comparisons of two labels, and the verdict in words."""

import math
from unittest import mock

import numpy as np
from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf.comparison import corpus_measures
from relpos_tf.comparison import pairs
from relpos_tf.comparison import significance
from relpos_tf.comparison import two_way
from relpos_tf.training import metrics

REFERENCES = [f"the {n} small cats sat on mat {n} ." for n in range(12)]
WORSE = [line.replace("small", "big") for line in REFERENCES]
WORST = [line.replace("sat", "stood") for line in WORSE]


BLEU = corpus_measures.Bleu()


class Mean:
    """A measure whose score is the mean over lines; counts: value and 1."""

    name = "BLEU"

    def score(self, sums):
        return sums[..., 0] / sums[..., 1]


def results(**by_seed):
    """Returns results of lines, by seeds called s1, s2, ..."""
    found = {int(name[1:]): lines for name, lines in by_seed.items()}
    return pairs.SeedScores(
        {n: metrics.corpus_bleu(x, REFERENCES).bleu for n, x in found.items()},
        {n: BLEU.counts(x, REFERENCES) for n, x in found.items()},
    )


def pair(a="a", b="b", bleu=(30.0, 20.0), **changes):
    return {
        "a": a,
        "b": b,
        "measure": "BLEU",
        "seeds": [1, 2, 3],
        "score_a": bleu[0],
        "score_b": bleu[1],
        "spread_a": 0.5,
        "spread_b": 0.25,
        "p_value": 1 / 10_001,
        "by_seed": [10.5, 9.5, 10.0],
        "p_value_seeds": 0.0034,
        "p_value_both": 0.0041,
        "p_largest": 0.0041,
        "p_corrected": 0.0041,
        "tests": 1,
        "is_beyond_chance": True,
    } | changes


def summary(*labels_and_scores):
    return [{"label": a, "bleu_mean": bleu} for a, bleu in labels_and_scores]


class ChooseTest(parameterized.TestCase):
    @parameterized.parameters(
        ("a", ""),
        ("ab", "ab"),
        ("abcd", "ab ac ad bc bd cd"),
        ("abcde", "ab ac ad ae"),
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
        found = pairs.compare("a", "b", by_label, BLEU)
        full, worse, worst = 100.0, *by_label["b"].scores.values()
        worse, worst = sorted((worse, worst), reverse=True)
        self.assertEqual(found["seeds"], [1, 2])
        self.assertAlmostEqual(found["score_a"], (full + worse) / 2)
        self.assertAlmostEqual(found["score_b"], (worse + worst) / 2)
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
            [BLEU.counts(x, REFERENCES) for x in side]
            for side in ((REFERENCES, WORSE), (WORSE, WORST))
        ]
        sums = list(map(sum, counts))
        self.assertEqual(found["p_value"], significance.p_value(*sums, BLEU))
        both = two_way.of_same_seeds(*counts, BLEU)
        self.assertEqual(found["p_value_both"], both.p_value)
        self.assertEqual(found["both_low"], both.low)
        self.assertEqual(found["both_high"], both.high)
        self.assertEqual(
            found["p_largest"],
            max(found["p_value"], found["p_value_seeds"], both.p_value),
        )

    def test_single_runs_of_different_seeds_are_compared(self):
        by_label = {"a": results(s1=REFERENCES), "b": results(s2=WORSE)}
        found = pairs.compare("a", "b", by_label, BLEU)
        self.assertEqual(found["seeds"], [])
        self.assertEqual(found["by_seed"], [])
        self.assertLess(found["p_value"], 0.01)
        for name in ("p_value_seeds", "p_value_both", "both_low", "p_largest"):
            self.assertIsNone(found[name])
        (found,) = pairs.correct([found])
        self.assertFalse(found["is_beyond_chance"])

    def test_one_training_against_several_is_tested_over_sentences_only(self):
        for seed in (2, 3):  # one that both have, or none
            by_label = {
                "a": results(s1=REFERENCES, s2=WORSE),
                "b": results(**{f"s{seed}": WORST}),
            }
            found = pairs.compare("a", "b", by_label, BLEU)
            sums = [sum(own.counts.values()) for own in by_label.values()]
            self.assertEqual(
                found["p_value"],
                significance.p_value(sums[0], 2 * sums[1], BLEU),
            )
            self.assertEqual(
                found["score_a"],
                significance.mean([*by_label["a"].scores.values()]),
            )
            for name in ("p_value_seeds", "spread_b", "p_largest"):
                self.assertIsNone(found[name])

    def test_fewer_than_two_common_seeds_are_no_pairs(self):
        sides = [
            [
                REFERENCES,
                WORSE[:2] + REFERENCES[2:],
                REFERENCES[:9] + WORSE[9:],
            ],
            [WORST, WORSE[:2] + WORST[2:], WORST[:3] + WORSE[3:]],
        ]
        for numbers in ((1, 2, 3), (4, 5)), ((1, 2, 3), (3, 4, 5)):
            by_label = {
                label: results(
                    **{f"s{n}": x for n, x in zip(own, side, strict=False)}
                )
                for label, own, side in zip("ab", numbers, sides, strict=True)
            }
            found = pairs.compare("a", "b", by_label, BLEU)
            self.assertEqual((found["seeds"], found["by_seed"]), ([], []))
            scores, counts = (
                [[*getattr(x, name).values()] for x in by_label.values()]
                for name in ("scores", "counts")
            )
            self.assertEqual(
                found["p_value_seeds"], significance.p_of_groups(*scores)
            )
            self.assertEqual(
                found["p_value_both"],
                two_way.of_other_seeds(*counts, BLEU).p_value,
            )
            # As many translations of each line on either side.
            total = math.lcm(*map(len, counts))
            sums = [sum(own * (total // len(own))) for own in counts]
            self.assertEqual(
                found["p_value"], significance.p_value(*sums, BLEU)
            )
            (found,) = pairs.correct([found])
            self.assertTrue(found["is_beyond_chance"])

    def test_trainings_of_equal_scores_cannot_be_tested_over_seeds(self):
        for names in (("s1", "s2"), ("s3", "s4")):  # common, or not
            by_label = {
                "a": results(s1=WORSE, s2=WORSE),
                "b": results(**dict.fromkeys(names, WORST)),
            }
            (found,) = pairs.compare_all(by_label, BLEU)
            self.assertLess(found["p_value"], 0.01)
            self.assertIsNone(found["p_value_seeds"])
            self.assertFalse(found["is_beyond_chance"])
            rows = summary(("a", found["score_a"]), ("b", found["score_b"]))
            self.assertRegex(
                pairs.verdict(rows, [found]), "which cannot be tested.$"
            )

    def test_translations_of_unknown_seeds_weigh_as_much_as_ours(self):
        ours = [REFERENCES, WORSE[:2] + REFERENCES[2:], REFERENCES]
        theirs = [WORSE[:3] + REFERENCES[3:], REFERENCES[:9] + WORSE[9:]]
        by_label = {
            "a": results(s1=ours[0], s2=ours[1], s3=ours[2]),
            "b": results(s1=theirs[0], s2=theirs[1]),
        }
        for name in ("scores", "counts"):
            of_b = getattr(by_label["b"], name)
            for n in (1, 2):
                of_b[f"file {n}"] = of_b.pop(n)
        found = pairs.compare("a", "b", by_label, BLEU)
        # Six translations of each line on either side.
        sides = [
            sum(BLEU.counts(lines, REFERENCES) for lines in side)
            for side in (ours * 2, theirs * 3)
        ]
        self.assertEqual(found["p_value"], significance.p_value(*sides, BLEU))
        self.assertBetween(found["p_value"], 0.01, 0.9)
        self.assertEqual(
            found["p_value_seeds"],
            significance.p_of_groups(
                *(list(own.scores.values()) for own in by_label.values())
            ),
        )

    def test_files_of_two_systems_have_no_common_seed(self):
        sides = (REFERENCES, WORSE), (WORST, WORSE[:2] + WORST[2:])
        by_label = {
            label: results(s1=first, s2=second)
            for label, (first, second) in zip("ab", sides, strict=True)
        }
        for own in by_label.values():
            for name in ("scores", "counts"):
                values = getattr(own, name)
                for n in (1, 2):
                    values[f"file {n}"] = values.pop(n)
        found = pairs.compare("a", "b", by_label, BLEU)
        self.assertEqual((found["seeds"], found["by_seed"]), ([], []))
        groups = [list(own.scores.values()) for own in by_label.values()]
        self.assertEqual(
            found["p_value_seeds"], significance.p_of_groups(*groups)
        )
        both = two_way.of_other_seeds(
            *(list(own.counts.values()) for own in by_label.values()), BLEU
        )
        self.assertEqual(found["p_value_both"], both.p_value)

    def test_one_file_is_never_called_better(self):
        by_label = {
            "a": results(s1=REFERENCES, s2=REFERENCES, s3=REFERENCES),
            "b": results(s1=WORST),
        }
        for own in by_label["b"]:
            own[None] = own.pop(1)
        (found,) = pairs.compare_all(by_label, BLEU)
        self.assertLess(found["p_value"], 0.01)
        self.assertFalse(found["is_beyond_chance"])
        rows = summary(("a", found["score_a"]), ("b", found["score_b"]))
        self.assertRegex(
            pairs.verdict(rows, [found]),
            r"a has [\d.]+ BLEU more than b, which cannot be tested\. One "
            "training shows nothing about the next",
        )

    def test_groups_of_unequal_size_have_an_interval_over_both(self):
        by_label = {
            "a": results(s1=REFERENCES, s2=WORSE, s3=WORSE),
            "b": results(s4=WORST, s5=WORSE),
        }
        found = pairs.compare("a", "b", by_label, BLEU)
        both = two_way.of_other_seeds(
            *(list(side.counts.values()) for side in by_label.values()), BLEU
        )
        self.assertEqual(found["p_value_both"], both.p_value)
        self.assertIsNotNone(found["p_largest"])

    def test_equal_seeds_add_no_evidence_over_sentences(self):
        once = pairs.compare(
            "a", "b", {"a": results(s1=WORSE), "b": results(s1=WORST)}, BLEU
        )
        thrice = pairs.compare(
            "a",
            "b",
            {
                "a": results(s1=WORSE, s2=WORSE, s3=WORSE),
                "b": results(s1=WORST, s2=WORST, s3=WORST),
            },
            BLEU,
        )
        self.assertEqual(once["p_value"], thrice["p_value"])


class CompareAllTest(absltest.TestCase):
    def test_chosen_pairs_are_counted_compared_and_corrected(self):
        translations = {
            "a": {1: REFERENCES, 2: WORSE},
            "b": {1: WORSE, 2: WORST},
            "c": {1: WORST, 2: WORST},
        }
        for measure in (BLEU, corpus_measures.ChrF()):
            scores = pairs.score_all(translations, REFERENCES, measure)
            for label, by_seed in translations.items():
                for seed, lines in by_seed.items():
                    counts = measure.counts(lines, REFERENCES)
                    self.assertTrue(
                        (scores[label].counts[seed] == counts).all()
                    )
                    self.assertEqual(
                        scores[label].scores[seed],
                        measure.score(counts.sum(axis=0)),
                    )
            compared = [
                pairs.compare(a, b, scores, measure)
                for a, b in ("ab", "ac", "bc")
            ]
            self.assertEqual(
                pairs.compare_all(scores, measure), pairs.correct(compared)
            )

    def test_verdict_is_of_corrected_p_values(self):
        three = [pair(p_largest=p) for p in (0.02, 0.04, 0.01)]
        found = pairs.correct([*three, pair(p_largest=None)])
        # 3 times 0.01; 2 times 0.02; 0.04 once.
        for one, expected in zip(found, (0.04, 0.04, 0.03, None), strict=True):
            self.assertEqual(one["p_corrected"], expected)
            self.assertEqual(one["tests"], 3)
            self.assertEqual(one["is_beyond_chance"], expected is not None)
        (first, second) = pairs.correct([three[0], pair(p_largest=0.03)])
        self.assertTrue(first["is_beyond_chance"])
        self.assertTrue(second["is_beyond_chance"])
        found = pairs.correct([three[0], *[pair(p_largest=0.03)] * 2])
        self.assertFalse(any(one["is_beyond_chance"] for one in found))


class LevelTest(parameterized.TestCase):
    """Sets that are equally good are rarely called different."""

    CASES = 2000

    def share_of_better(self, names_of, spreads, common=0.0):
        """Returns how often a verdict calls one of equal sets better.

        The test over sentences always passes, which is the worst case: with
        many test lines, it tells apart two trainings of the same set.

        Args:
            names_of: dict of each label's seeds.
            spreads: The standard deviation of each label's scores.
            common: The standard deviation of what the labels' scores with one
                seed have in common.
        """
        generator = np.random.default_rng(1789)
        better = 0
        with mock.patch.object(significance, "p_value", return_value=1e-4):
            for _ in range(self.CASES):
                by_label = {}
                effects = generator.normal(0.0, common, 20)
                for (label, names), spread in zip(
                    names_of.items(), spreads, strict=True
                ):
                    drawn = generator.normal(30.0, spread, len(names))
                    drawn += effects[list(names)]
                    by_label[label] = pairs.SeedScores(
                        dict(zip(names, drawn.tolist(), strict=True)),
                        {
                            name: np.array([[score, 1.0]] * 2)
                            for name, score in zip(names, drawn, strict=True)
                        },
                    )
                chosen = pairs.choose(list(names_of))
                found = pairs.correct(
                    [pairs.compare(a, b, by_label, Mean()) for a, b in chosen]
                )
                rows = summary(
                    *(
                        (label, float(np.mean(list(r.scores.values()))))
                        for label, r in by_label.items()
                    )
                )
                better += "is better than" in pairs.verdict(rows, found)
        return better / self.CASES

    @parameterized.product(seeds=(1, 2, 3, 5), spreads=((1.0, 1.0), (1.0, 0.1)))
    def test_two_equal_sets_are_called_different_at_the_level(
        self, seeds, spreads
    ):
        names = range(1, seeds + 1)
        found = self.share_of_better(dict.fromkeys("ab", names), spreads)
        # Three standard errors of so many cases.
        error = (0.05 * 0.95 / self.CASES) ** 0.5
        self.assertLessEqual(found, 0.05 + 3 * error)
        self.assertEqual(found == 0.0, seeds == 1)

    def test_two_equal_sets_without_a_common_seed(self):
        for names in (((1, 2), (3, 4)), ((1, 2, 3), (4, 5, 6))):
            found = self.share_of_better(
                dict(zip("ab", names, strict=True)), (1.0, 0.1)
            )
            self.assertBetween(found, 0.001, 0.05)

    @parameterized.product(
        names=(((1, 2, 3), (4, 5)), ((1, 2, 3), (3, 4, 5))),
        spreads=((1.0, 0.1), (0.1, 1.0)),
        common=(0.0, 1.0),
    )
    def test_two_equal_sets_with_at_most_one_common_seed(
        self, names, spreads, common
    ):
        found = self.share_of_better(
            dict(zip("ab", map(list, names), strict=True)), spreads, common
        )
        error = (0.05 * 0.95 / self.CASES) ** 0.5
        self.assertLessEqual(found, 0.05 + 3 * error)

    def test_four_equal_sets(self):
        names = dict.fromkeys("abcd", range(1, 4))
        found = self.share_of_better(names, [1.0] * 4)
        self.assertBetween(found, 0.001, 0.05)


class VerdictTest(parameterized.TestCase):
    @parameterized.parameters(
        ({}, "a is better than b by 10.0 BLEU (p = 0.0041)."),
        (
            {"bleu": (20.0, 20.8), "p_corrected": 0.0123, "tests": 3},
            "b is better than a by 0.8 BLEU (p = 0.012).",
        ),
        (
            {"is_beyond_chance": False, "p_corrected": 0.14},
            "a and b differ by 10.0 BLEU, no more than by chance (p = 0.14).",
        ),
        (
            {"is_beyond_chance": False, "p_corrected": None, "spread_b": None},
            "a has 10.0 BLEU more than b, which cannot be tested. One training "
            "shows nothing about the next",
        ),
    )
    def test_sentence_on_two_labels(self, changes, expected):
        found = pair(**changes)
        rows = summary(("a", found["score_a"]), ("b", found["score_b"]))
        words = pairs.verdict(rows, [found])
        self.assertIn(expected, words)
        self.assertEqual(
            "corrected for 3 pairs" in words, found["tests"] == 3, words
        )

    def test_verdict_names_the_best_and_each_pair(self):
        scores = {"a": 30.0, "b": 20.0, "c": 33.0, "d": 29.5, "e": 31.0}
        p_values = {"b": 0.001, "c": 0.01, "d": 0.5, "e": None}
        found = pairs.correct(
            [
                pair("a", label, (30.0, scores[label]), p_largest=p)
                for label, p in p_values.items()
            ]
        )
        self.assertEqual(
            pairs.verdict(summary(*scores.items()), found),
            "c has the highest BLEU, 33.0. a is better than b by 10.0 BLEU (p "
            "= 0.003). c is better than a by 3.0 BLEU (p = 0.02). a and d "
            "differ by 0.5 BLEU, no more than by chance (p = 0.5). e has 1.0 "
            "BLEU more than a, which cannot be tested. p is the largest of "
            "the tests, corrected for 3 pairs.",
        )
        self.assertEqual(
            pairs.verdict(summary(("a", 1.0)), []),
            "a has the highest BLEU, 1.0.",
        )

    def test_five_equal_sets_of_three_seeds(self):
        generator = np.random.default_rng(7)
        wrong, cases = 0, 400
        for _ in range(cases):
            scores = generator.normal(30.0, 1.0, [5, 3])
            by_label = {
                label: pairs.SeedScores(
                    dict(enumerate(own.tolist())),
                    {n: np.array([[x, 1.0]] * 2) for n, x in enumerate(own)},
                )
                for label, own in zip("abcde", scores, strict=True)
            }
            with mock.patch.object(significance, "p_value", return_value=1e-4):
                found = pairs.compare_all(by_label, Mean())
            words = pairs.verdict(
                summary(*zip("abcde", scores.mean(axis=1), strict=True)), found
            )
            wrong += "is better than" in words
        self.assertBetween(
            wrong / cases, 0.001, 0.05 + 3 * (0.05 * 0.95 / cases) ** 0.5
        )

    @parameterized.parameters(
        (0.049, 0.049, 0.049, True),
        (0.05, 0.01, 0.01, False),
        (0.01, 0.05, 0.01, False),
        (0.01, 0.01, 0.05, False),
        (0.01, None, None, False),
        (None, 0.01, 0.01, False),
    )
    def test_all_p_values_must_be_below_the_level(
        self, p, p_seeds, p_both, expected
    ):
        both = p_both and two_way.Estimate(1.0, 0.5, 1.5, p_both, 0.1, 0.1)
        by_label = dict.fromkeys("ab", results(s1=WORSE, s2=WORST))
        with (
            mock.patch.object(significance, "p_value", return_value=p),
            mock.patch.object(
                significance, "p_of_differences", return_value=p_seeds
            ),
            mock.patch.object(two_way, "of_same_seeds", return_value=both),
        ):
            one = pairs.compare("a", "b", by_label, BLEU)
        (found,) = pairs.correct([one])
        self.assertEqual(found["is_beyond_chance"], expected)


if __name__ == "__main__":
    absltest.main()
