"""Scores of summed counts: against sacreBLEU's scores of the same lines."""

import numpy as np
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
    """Returns the score of lines, or of Moses' tokens, by sacreBLEU."""
    if measure.name == "BLEU":
        return sacrebleu.corpus_bleu(hypotheses, [references], force=True).score
    if measure.name == "chrF":
        return sacrebleu.corpus_chrf(hypotheses, [references]).score
    sides = metrics.moses_tokens(hypotheses, references, "de")
    return metrics.tokenized().corpus_score(*sides).score


class CorpusMeasuresTest(parameterized.TestCase):
    @parameterized.product(
        measure=(
            corpus_measures.bleu(),
            corpus_measures.chrf(),
            corpus_measures.TokenizedBleu("de"),
        ),
        lines=([0, 1, 2, 3, 4], [3, 0, 0, 2], [4], [2, 3]),
        references=(REFERENCES, ODD),
    )
    def test_score_of_a_selection_is_that_of_its_lines(
        self, measure, lines, references
    ):
        hypotheses = HYPOTHESES if references is REFERENCES else ODD[::-1]

        def oracle(chosen):
            sides = ([x[i] for i in chosen] for x in (hypotheses, references))
            return expected(measure, *sides)

        counts = measure.counts(hypotheses, references)
        score, own, shares = measure.scored(counts[lines])
        self.assertAlmostEqual(score, oracle(lines), places=11)
        np.testing.assert_array_equal(own, counts[lines])
        # The score without each line; of no line there is none.
        for i in range(len(lines) if len(lines) > 1 else 0):
            without = (len(lines) * score - shares[i]) / (len(lines) - 1)
            rest = lines[:i] + lines[i + 1 :]
            if any(references[i].strip() for i in rest):
                self.assertAlmostEqual(without, oracle(rest), places=10)
