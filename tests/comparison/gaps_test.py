"""Sentences that one label translates better, against sacreBLEU's scores."""

import statistics

import sacrebleu
from absl.testing import absltest

from relpos_tf.comparison import corpus_measures
from relpos_tf.comparison import gaps

SOURCES = ["s1", "s2", "s3", "s4"]
REFERENCES = ["one small cat", "two big dogs", "three birds", "four"]
A = [
    ["one small cat", "two big dogs", "birds", "four"],
    ["one smaller cat", "two bigger dogs", "three bird", "four"],
]
B = [
    ["one cat", "two big dogs", "three birds", "four"],
    ["cats", "two big frogs", "three birds", "four"],
]
CHRF = corpus_measures.ChrF()


def mean_scores(side):
    """Returns the mean sentence chrF of each line."""
    chrf = sacrebleu.CHRF()
    return [
        statistics.fmean(
            chrf.corpus_score([lines[i]], [[REFERENCES[i]]]).score
            for lines in side
        )
        for i in range(len(REFERENCES))
    ]


class GapsTest(absltest.TestCase):
    def largest(self, first, second, number):
        return gaps.largest(
            *(
                [CHRF.counts(lines, REFERENCES) for lines in side]
                for side in (first, second)
            ),
            CHRF,
            number,
        )

    def test_lines_are_ordered_by_the_difference_of_means(self):
        ours, others = mean_scores(A), mean_scores(B)
        found = self.largest(A, B, 5)
        differences = [a - b for a, b in zip(ours, others, strict=True)]
        order = sorted(range(4), key=lambda i: -differences[i])
        expected = [i for i in order if differences[i] > 0]
        self.assertEqual(expected, [0, 1])
        self.assertEqual([i for i, _, _ in found], expected)
        for index, score, other in found:
            self.assertAlmostEqual(score, ours[index])
            self.assertAlmostEqual(other, others[index])
        self.assertEqual(self.largest(A, B, 1), found[:1])
        (other,) = self.largest(B, A, 5)
        self.assertEqual(other[0], 2)

    def test_equal_lines_are_no_gap(self):
        self.assertEmpty(self.largest(A, A, 5))

    def test_texts_are_those_of_the_line(self):
        (found,) = gaps.describe(
            [(1, 90.0, 50.0)],
            ("a", "b"),
            SOURCES,
            REFERENCES,
            {"a": A[0], "b": B[1]},
        )
        self.assertEqual(
            found,
            {
                "source": "s2",
                "reference": "two big dogs",
                "scores": {"a": 90.0, "b": 50.0},
                "translations": {"a": "two big dogs", "b": "two big frogs"},
            },
        )


if __name__ == "__main__":
    absltest.main()
