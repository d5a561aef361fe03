"""Measures of a corpus: sacreBLEU's scores of its own counts of each line.

The score of any selection of lines follows from the sum of their counts.

Shapes: L lines, C counts.
"""

from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import numpy as np

from relpos_tf.problems import test_sets
from relpos_tf.training import metrics
from relpos_tf.utils import languages


class Scored(NamedTuple):
    """The translations of a model in a measure.

    Attributes:
        score: float. Of all lines.
        counts: `[L, C]`, of `Measure.counts`.
        shares: `[L]`, what each line adds to the score: the jackknife's
            pseudo-value, L times the score of all lines minus L - 1 times the
            score without this one.
    """

    score: float
    counts: np.ndarray
    shares: np.ndarray


class Measure:
    """A measure of translations.

    Args:
        name: str. For tables.
        metric: sacreBLEU's object.

    Attributes:
        name: str.
        field: str. The name for JSON.
        digits: int. Decimals to show.
    """

    digits = 2

    def __init__(self, name: str, metric: Any):
        self.name = name
        self.field = metrics.field(name)
        self._metric = metric

    def signature(self) -> str:
        """Returns sacreBLEU's description of the last counting."""
        return str(self._metric.get_signature())

    def counts(
        self, hypotheses: Sequence[str], references: Sequence[str]
    ) -> np.ndarray:
        """Returns the counts of each line, float64 `[L, C]`, whole numbers.

        Raises:
            UserError: see `metrics.comparable`.
        """
        sides = self._sides(hypotheses, references)
        # Private, but what sacreBLEU's own tests of significance are made of.
        rows = self._metric._extract_corpus_statistics(*sides)
        return np.array(rows, np.float64)

    def _sides(self, hypotheses, references):
        return metrics.comparable(hypotheses, references)

    def covers(self, model: Any, test_set: test_sets.TestSet) -> bool:
        """Returns whether a `ModelResult` has what is counted."""
        return test_set.name in model.translations

    def counts_of(self, model: Any, test_set: test_sets.TestSet) -> np.ndarray:
        """Returns the counts of a `ModelResult` on a test set."""
        lines = model.translations[test_set.name]
        return self.counts(lines, test_set.references)

    def score(self, sums: np.ndarray) -> np.ndarray:
        """Returns the score of sums of lines' counts, `[..., C]` to `[...]`."""
        # Private as well.
        score = self._metric._compute_score_from_stats
        rows = sums.reshape(-1, sums.shape[-1]).tolist()
        return np.reshape([score(row).score for row in rows], sums.shape[:-1])

    def scored(self, counts: np.ndarray) -> Scored:
        """Returns the score that `counts` gives."""
        total, lines = counts.sum(axis=0), len(counts)
        score = float(self.score(total))
        others = self.score(total - counts)  # [L]
        return Scored(score, counts, lines * score - (lines - 1) * others)


class TokenizedBleu(Measure):
    """BLEU on the scale of published papers; its counts are those of `bleu`.

    It counts Moses' tokens without smoothing, and is higher than `bleu`:
    compare it with scores of the same scale only.

    Args:
        language: str. ISO 639-1 code of both sides.
        scale: str. A key of `metrics.SCALES`.
    """

    def __init__(self, language: str, scale: str = metrics.MULTI30K):
        super().__init__("tokenized BLEU", metrics.tokenized())
        self._of = language, scale

    def signature(self) -> str:
        """Returns the signature of what was counted last."""
        return metrics.tokenized_signature(*self._of)

    def _sides(self, hypotheses, references):
        return metrics.moses_tokens(hypotheses, references, *self._of)


def bleu(tokenize: str = "13a") -> Measure:
    """Returns BLEU as of `metrics.corpus_bleu`: cased, tokenized, smoothed.

    Its ten counts are the numbers of tokens of the hypothesis and of the
    reference; of n-grams that are in the reference, n = 1 to 4; and of all
    n-grams.

    Args:
        tokenize: str. The tokenizer, see `metrics.tokenizer_of`.

    Example:
    >>> counts = bleu().counts(["a b c d e", "f g"], ["a b c d e", "x"])
    >>> counts[0].astype(int).tolist()
    [5, 5, 5, 4, 3, 2, 5, 4, 3, 2]
    >>> bleu().score(counts[:1].sum(axis=0)).round(2).item()
    100.0
    """
    return Measure("BLEU", metrics.bleu(tokenize))


def chrf() -> Measure:
    """Returns chrF2 as of `metrics.corpus_bleu`.

    Its counts are, for n = 1 to 6, the numbers of character n-grams of the
    hypothesis, of the reference, and of those in both. An n-gram of the
    hypothesis counts only where the reference has n characters.

    Example:
    >>> counts = chrf().counts(["ab d"], ["abc"])
    >>> counts[0].astype(int).tolist()
    [3, 3, 2, 2, 2, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    >>> chrf().score(counts[0]).round(2).item()
    38.89
    """
    return Measure("chrF", metrics.chrf())


def of_language(
    language: str, tokenize: str, scale: str | None = None
) -> list[Measure]:
    """Returns the measures of translations into a language, BLEU first.

    Args:
        language: str. The code of the language.
        tokenize: str. The tokenizer for BLEU.
        scale: str. That of tokenized BLEU, a key of `metrics.SCALES`. None: the
            first, where Moses' tokenizer knows the language.
    """
    language = languages.base(language)
    # Where the language is unknown, "zh" and "ja-mecab" tell it.
    asian = not languages.has_blanks(language or tokenize[:2])
    found: list[Measure] = [bleu(tokenize), chrf()]
    if scale or language in metrics.MOSES_LANGUAGES:
        found.append(TokenizedBleu(language, scale or metrics.MULTI30K))
    return found + [Measure(*x) for x in metrics.further(asian).items()]
