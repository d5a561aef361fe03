"""Scores of summed counts: against sacreBLEU's scores of the same lines."""

import sacrebleu
from absl.testing import parameterized

from relpos_tf.comparison import corpus_measures
from relpos_tf.training import metrics
from tests.training import metrics_test

REFERENCES = metrics_test.REFERENCES
HYPOTHESES = metrics_test.HYPOTHESES
# Blanks of all kinds, and a language whose words have none.
ODD = (
    "",
    "a",
    "  two\u3000 blanks\tand a tab ",
    "漢字 かな",
    "“Curly” -- it's 1,000.5 & more!",
)


def expected(measure, hypotheses, references):
    """Returns the score of lines by sacreBLEU, or by `tokenized_bleu`."""
    if measure.name == "BLEU":
        return sacrebleu.corpus_bleu(hypotheses, [references], force=True).score
    if measure.name == "chrF":
        return sacrebleu.corpus_chrf(hypotheses, [references]).score
    return metrics.tokenized_bleu(hypotheses, references, "de")[0]


ALL = (
    corpus_measures.Bleu(),
    corpus_measures.ChrF(),
    corpus_measures.TokenizedBleu("de"),
)


class CorpusMeasuresTest(parameterized.TestCase):
    @parameterized.product(
        measure=ALL,
        lines=([0, 1, 2, 3, 4], [3, 0, 0, 2], [4], [1, 1], [3], [2, 3]),
        references=(REFERENCES, ODD),
    )
    def test_score_of_a_selection_is_that_of_its_lines(
        self, measure, lines, references
    ):
        hypotheses = HYPOTHESES if references is REFERENCES else ODD[::-1]
        counts = measure.counts(hypotheses, references)
        found = measure.score(counts[lines].sum(axis=0))
        chosen = [[side[i] for i in lines] for side in (hypotheses, references)]
        self.assertAlmostEqual(found, expected(measure, *chosen), places=11)

    def test_counts_of_chrf(self):
        # "aab" in "aaba": a twice, b; aa, ab; aab. The reference has a three
        # times, b; aa, ab, ba; aab, aba; aaba.
        counts = corpus_measures.ChrF().counts(["a ab"], ["aa b a"])[0]
        self.assertEqual(counts[0::3].tolist(), [3, 2, 1, 0, 0, 0])
        self.assertEqual(counts[1::3].tolist(), [4, 3, 2, 1, 0, 0])
        self.assertEqual(counts[2::3].tolist(), [3, 2, 1, 0, 0, 0])
        # Precisions are 1; recall is (3/4 + 2/3 + 1/2) / 3.
        recall = (3 / 4 + 2 / 3 + 1 / 2) / 3
        self.assertAlmostEqual(
            corpus_measures.ChrF().score(counts),
            100 * 5 * recall / (4 + recall),
        )
