"""Comparisons of two labels, and the verdict in words."""

import math

from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf.comparison import corpus_measures
from relpos_tf.comparison import pairs
from relpos_tf.comparison import significance
from relpos_tf.comparison import two_way

REFERENCES = [f"the {n} small cats sat on mat {n} ." for n in range(12)]
WORSE = [line.replace("small", "big") for line in REFERENCES]
WORST = [line.replace("sat", "stood") for line in WORSE]
BLEU = corpus_measures.Bleu()


def counts(lines):
    return BLEU.counts(lines, REFERENCES)


def scores(**by_label):
    """Returns the scores of labels, each a dict of lines by seed."""
    return pairs.score_all(by_label, REFERENCES, BLEU)


def pair(a="a", b="b", bleu=(30.0, 20.0), **changes):
    return {
        "a": a,
        "b": b,
        "measure": "BLEU",
        "score_a": bleu[0],
        "score_b": bleu[1],
        "spread_a": 0.5,
        "spread_b": 0.25,
        "p_largest": 0.0041,
        "p_corrected": 0.0041,
        "tests": 1,
        "is_beyond_chance": True,
    } | changes


def summary(**scores_of):
    return [{"label": a, "bleu_mean": bleu} for a, bleu in scores_of.items()]


class CompareTest(parameterized.TestCase):
    def test_uses_the_seeds_that_both_have(self):
        a, b = {1: REFERENCES, 2: WORSE, 3: WORST}, {2: WORST, 1: WORSE}
        by_label = scores(a=a, b=b)
        found = pairs.compare("a", "b", by_label, BLEU)
        full, worse, worst = by_label["a"].scores.values()
        self.assertEqual(found["seeds"], [1, 2])
        self.assertAlmostEqual(found["score_a"], (full + worse) / 2)
        self.assertAlmostEqual(found["score_b"], (worse + worst) / 2)
        self.assertAlmostEqual(found["spread_a"], (full - worse) / 2**0.5)
        self.assertEqual(found["by_seed"], [full - worse, worse - worst])
        sides = [[counts(x[seed]) for seed in (1, 2)] for x in (a, b)]
        p_values = [
            significance.p_value(*map(sum, sides), BLEU),
            significance.p_of_differences(found["by_seed"]),
            (both := two_way.of_same_seeds(*sides, BLEU)).p_value,
        ]
        self.assertEqual(
            [found[f"p_value{x}"] for x in ("", "_seeds", "_both")], p_values
        )
        self.assertEqual(
            (found["both_low"], found["both_high"]), (both.low, both.high)
        )
        self.assertEqual(found["p_largest"], max(p_values))

    @parameterized.parameters(
        ((1, 2, 3), (3, 4, 5)),
        (("file 1", "file 2"), ("file 1", "file 2")),
    )
    def test_fewer_than_two_common_seeds_are_no_pairs(self, *seeds):
        lines = [
            [
                REFERENCES,
                WORSE[:2] + REFERENCES[2:],
                REFERENCES[:9] + WORSE[9:],
            ],
            [WORST, WORSE[:2] + WORST[2:], WORST[:3] + WORSE[3:]],
        ]
        a, b = (
            dict(zip(own, side, strict=False))
            for own, side in zip(seeds, lines, strict=True)
        )
        by_label = scores(a=a, b=b)
        found = pairs.compare("a", "b", by_label, BLEU)
        self.assertEqual((found["seeds"], found["by_seed"]), ([], []))
        sides = [[counts(x) for x in own.values()] for own in (a, b)]
        groups = [list(x.scores.values()) for x in by_label.values()]
        self.assertEqual(
            found["p_value_seeds"], significance.p_of_groups(*groups)
        )
        self.assertEqual(
            found["p_value_both"], two_way.of_other_seeds(*sides, BLEU).p_value
        )
        # As many translations of each line on either side.
        total = math.lcm(*map(len, sides))
        sums = [sum(own * (total // len(own))) for own in sides]
        self.assertEqual(found["p_value"], significance.p_value(*sums, BLEU))

    @parameterized.parameters(
        ({1: REFERENCES}, {2: WORSE}),
        ({1: REFERENCES}, {1: WORSE}),
        ({1: REFERENCES, 2: WORSE}, {3: WORST}),
        ({1: REFERENCES, 2: REFERENCES}, {None: WORST}),
        # Trainings of equal scores, with common seeds and without.
        ({1: WORSE, 2: WORSE}, {1: WORST, 2: WORST}),
        ({1: WORSE, 2: WORSE}, {3: WORST, 4: WORST}),
    )
    def test_one_training_or_copies_are_never_called_better(self, a, b):
        (found,) = pairs.compare_all(scores(a=a, b=b), BLEU)
        self.assertLess(found["p_value"], 0.01)
        self.assertIsNone(found["p_value_seeds"])
        self.assertIsNone(found["p_largest"])
        self.assertFalse(found["is_beyond_chance"])


class CorrectTest(parameterized.TestCase):
    @parameterized.parameters(
        ("a", ""),
        ("ab", "ab"),
        ("abcd", "ab ac ad bc bd cd"),
        ("abcde", "ab ac ad ae"),
    )
    def test_pairs_of_few_and_of_many_labels(self, labels, expected):
        found = pairs.choose(list(labels))
        self.assertEqual(" ".join(map("".join, found)), expected)

    def test_better_is_decided_by_corrected_p_values(self):
        three = [pair(p_largest=p) for p in (0.02, 0.04, 0.01)]
        found = pairs.correct([*three, pair(p_largest=None)])
        # 3 times 0.01; 2 times 0.02; 0.04 once.
        for one, expected in zip(found, (0.04, 0.04, 0.03, None), strict=True):
            self.assertEqual(one["p_corrected"], expected)
            self.assertEqual(one["tests"], 3)
            self.assertEqual(one["is_beyond_chance"], expected is not None)
        found = pairs.correct([three[0], *[pair(p_largest=0.03)] * 2])
        self.assertFalse(any(one["is_beyond_chance"] for one in found))


class VerdictTest(absltest.TestCase):
    def test_names_the_best_and_says_what_each_pair_shows(self):
        of = {"a": 30.0, "b": 20.0, "c": 33.0, "d": 29.5, "e": 31.0}
        p_values = {"b": 0.001, "c": 0.01, "d": 0.5, "e": None}
        found = pairs.correct(
            [
                pair("a", label, (30.0, of[label]), p_largest=p)
                for label, p in p_values.items()
            ]
        )
        found[-1]["spread_b"] = None
        self.assertRegex(
            pairs.verdict(summary(**of), found),
            "c has the highest BLEU.*a is better than b by 10.0 BLEU .p = "
            "0.003.. c is better than a by 3.0 BLEU .p = 0.02.. a and d .*may "
            "explain .p = 0.5.. e has 1.0 BLEU more.*cannot be tested.*more "
            "seeds.*corrected for 3 pairs",
        )
        alone = pairs.verdict(summary(a=1.0), [])
        self.assertEqual(alone, "a has the highest BLEU, 1.0.")
