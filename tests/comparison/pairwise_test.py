"""Comparisons of two labels, and the verdict in words."""

from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf.comparison import corpus_measures
from relpos_tf.comparison import pairwise
from relpos_tf.comparison import two_way

REFERENCES = [f"the {n} small cats sat on mat {n} ." for n in range(12)]
WORSE = [line.replace("small", "big") for line in REFERENCES]
WORST = [line.replace("sat", "stood") for line in WORSE]
BLEU = corpus_measures.bleu()


def scores(**by_label):
    """Returns the scores of labels, each a dict of lines by seed."""
    return {
        label: {
            seed: BLEU.scored(BLEU.counts(lines, REFERENCES))
            for seed, lines in by_seed.items()
        }
        for label, by_seed in by_label.items()
    }


def pair(a="a", b="b", bleu=(30.0, 20.0), **changes):
    return {
        "a": a,
        "b": b,
        "measure": "BLEU",
        "score_a": bleu[0],
        "score_b": bleu[1],
        "spread_a": 0.5,
        "spread_b": 0.25,
        "p_value": 0.0041,
        "p_corrected": 0.0041,
        "tests": 1,
        "is_beyond_chance": True,
    } | changes


def summary(**scores_of):
    return [{"label": a, "bleu_mean": bleu} for a, bleu in scores_of.items()]


class CompareTest(parameterized.TestCase):
    def assert_compared(self, found, ours, others, are_paired):
        """Checks intervals and p-value, which `two_way_test` tests."""
        expected = two_way.compare(ours, others, are_paired)._asdict()
        self.assertIsNotNone(expected["p_value"])
        self.assertEqual(found, found | expected)

    def test_uses_the_seeds_that_both_have(self):
        by_label = scores(
            a={1: REFERENCES, 2: WORSE, 3: WORST}, b={2: WORST, 1: WORSE}
        )
        found = pairwise.compare("a", "b", by_label, BLEU)
        a, b = by_label.values()
        full, worse, worst = (x.score for x in a.values())
        self.assertEqual(found["seeds"], [1, 2])
        self.assertAlmostEqual(found["score_a"], (full + worse) / 2)
        self.assertAlmostEqual(found["score_b"], (worse + worst) / 2)
        self.assertAlmostEqual(found["spread_a"], (full - worse) / 2**0.5)
        self.assertEqual(found["by_seed"], [full - worse, worse - worst])
        self.assert_compared(found, [a[1], a[2]], [b[1], b[2]], True)

    @parameterized.parameters(
        ((1, 2, 3), (3, 4)), (("file 1", "file 2", "x"), ("file 1", "file 2"))
    )
    def test_fewer_than_two_common_seeds_are_no_pairs(self, *seeds):
        sides = [REFERENCES, WORSE, WORSE[:2] + REFERENCES[2:]], [WORST, WORSE]
        (a, b), (c, d) = seeds, sides
        a, b = dict(zip(a, c, strict=True)), dict(zip(b, d, strict=True))
        by_label = scores(a=a, b=b)
        found = pairwise.compare("a", "b", by_label, BLEU)
        self.assertEqual((found["seeds"], found["by_seed"]), ([], []))
        models = (list(x.values()) for x in by_label.values())
        self.assert_compared(found, *models, False)

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
        (found,) = pairwise.compare_all(scores(a=a, b=b), BLEU)
        self.assertGreater(found["sentences_low"], 0)
        self.assertIsNone(found["p_value"])
        self.assertFalse(found["is_beyond_chance"])


class CorrectTest(parameterized.TestCase):
    @parameterized.parameters(
        ("a", ""),
        ("ab", "ab"),
        ("abcd", "ab ac ad bc bd cd"),
        ("abcde", "ab ac ad ae"),
    )
    def test_pairs_of_few_and_of_many_labels(self, labels, expected):
        found = pairwise.choose(list(labels))
        self.assertEqual(" ".join(map("".join, found)), expected)

    @parameterized.parameters(
        # Hand-worked: the smallest of m times m, the next times m - 1, ...,
        # and no less than the one before.
        ([0.02, 0.04, 0.01, None], [0.04, 0.04, 0.03, None]),
        ([0.01, 0.04, 0.03], [0.03, 0.06, 0.06]),
        ([0.01, 0.02, 0.03, 0.005], [0.03, 0.04, 0.04, 0.02]),
        ([0.4, 0.6], [0.8, 0.8]),
        ([0.7, 0.6], [1.0, 1.0]),
        ([None, None], [None, None]),
    )
    def test_better_is_decided_by_corrected_p_values(self, p_values, expected):
        found = pairwise.correct([pair(p_value=p) for p in p_values])
        for one, p in zip(found, expected, strict=True):
            self.assertAlmostEqual(one["p_corrected"], p, places=12)
            self.assertEqual(one["tests"], len(p_values) - p_values.count(None))
            self.assertEqual(
                one["is_beyond_chance"], p is not None and p < 0.05
            )


class VerdictTest(absltest.TestCase):
    def test_names_the_best_and_says_what_each_pair_shows(self):
        of = {"a": 30.0, "b": 20.0, "c": 33.0, "d": 29.5, "e": 31.0}
        p_values = {"b": 0.001, "c": 0.01, "d": 0.5, "e": None}
        found = pairwise.correct(
            [
                pair("a", label, (30.0, of[label]), p_value=p)
                for label, p in p_values.items()
            ]
        )
        found[-1]["spread_b"] = None
        self.assertRegex(
            pairwise.verdict(summary(**of), found),
            "c has the highest BLEU.*a is better than b by 10.0 BLEU .p = "
            "0.003.. c is better than a by 3.0 BLEU .p = 0.02.. a and d .*may "
            "explain .p = 0.5.. e and a differ by 1.0.*cannot be tested.*more "
            "seeds.*corrected for 3 pairs",
        )
        alone = pairwise.verdict(summary(a=1.0), [])
        self.assertEqual(alone, "a has the highest BLEU, 1.0.")
        none = pairwise.verdict(summary(a=0.04, b=0.0), [])
        self.assertEqual(none, "No label reaches 0.1 BLEU.")
