"""Measures of a corpus that are functions of counts summed over its lines.

The score of any selection of lines, or of a mixture of two systems, follows
from the counts of each line without counting again, for many selections at
once.

Shapes: L lines, C counts.
"""

import abc
from collections.abc import Sequence
from typing import Any

import numpy as np

from relpos_tf.training import metrics

_BETA = 2  # chrF weighs recall beta times as much as precision


class Measure(abc.ABC):
    """A measure of translations, whose counts are sacreBLEU's.

    Args:
        name: str. For tables. Also an attribute.
        metric: sacreBLEU's object.
    """

    def __init__(self, name: str, metric: Any):
        self.name = name
        self._metric = metric

    def counts(
        self, hypotheses: Sequence[str], references: Sequence[str]
    ) -> np.ndarray:
        """Returns the counts of each line, float64 `[L, C]`, whole numbers.

        Raises:
            UserError: see `metrics.check_pairs`.
        """
        sides = self._sides(hypotheses, references)
        # Private, but what sacreBLEU's own tests of significance are made of.
        rows = self._metric._extract_corpus_statistics(*sides)
        return np.array(rows, np.float64)

    def _sides(self, hypotheses, references):
        return metrics.comparable(hypotheses, references)

    @abc.abstractmethod
    def score(self, sums: np.ndarray) -> np.ndarray:
        """Returns the score of sums of lines' counts, `[..., C]` to `[...]`."""


class Bleu(Measure):
    """BLEU as of `metrics.corpus_bleu`: cased, tokenized, smoothed.

    Its ten counts are the numbers of tokens of the hypothesis and of the
    reference; of n-grams that are in the reference, n = 1 to 4; and of all
    n-grams.

    Args:
        tokenize: str. The tokenizer, see `metrics.tokenizer_of`.

    Example:

    >>> bleu = Bleu()
    >>> counts = bleu.counts(["a b c d e", "f g"], ["a b c d e", "x"])
    >>> counts[0].astype(int).tolist()
    [5, 5, 5, 4, 3, 2, 5, 4, 3, 2]
    >>> bleu.score(counts[:1].sum(axis=0)).round(2).item()
    100.0
    """

    def __init__(self, tokenize: str = "13a"):
        super().__init__("BLEU", metrics.bleu(tokenize))

    def score(self, sums: np.ndarray) -> np.ndarray:
        correct, total = sums[..., 2:6], sums[..., 6:]  # [..., 4]
        # The nth precision without a match counts 1 / 2^n matches.
        is_zero = (correct == 0) & (total > 0)
        halves = 0.5 ** np.cumsum(is_zero, axis=-1)
        smoothed = np.where(is_zero, halves, correct)
        has_match = (correct > 0).any(axis=-1, keepdims=True)
        return _bleu(sums, np.where(has_match, smoothed, 0.0))


class TokenizedBleu(Measure):
    """BLEU as of `metrics.tokenized_bleu`; its counts are those of `Bleu`.

    Args:
        language: str. ISO 639-1 code of both sides.
    """

    def __init__(self, language: str):
        super().__init__("tokenized BLEU", metrics.tokenized())
        self._language = language

    def _sides(self, hypotheses, references):
        return metrics.moses_tokens(hypotheses, references, self._language)

    def score(self, sums: np.ndarray) -> np.ndarray:
        return _bleu(sums, sums[..., 2:6])


class ChrF(Measure):
    """chrF2 as of `metrics.corpus_bleu`.

    Its counts are, for n = 1 to 6, the numbers of character n-grams of the
    hypothesis, of the reference, and of those in both. An n-gram of the
    hypothesis counts only where the reference has n characters.

    Example:

    >>> chrf = ChrF()
    >>> counts = chrf.counts(["ab d"], ["abc"])
    >>> counts[0].astype(int).tolist()
    [3, 3, 2, 2, 2, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    >>> chrf.score(counts[0]).round(2).item()
    38.89
    """

    def __init__(self):
        super().__init__("chrF", metrics.chrf())

    def score(self, sums: np.ndarray) -> np.ndarray:
        hypothesis, reference, both = (sums[..., i::3] for i in range(3))
        is_known = (hypothesis > 0) & (reference > 0)  # [..., 6]
        lengths = np.maximum(is_known.sum(axis=-1), 1)
        precision, recall = (
            np.divide(both, of, np.zeros_like(both), where=is_known).sum(-1)
            / lengths
            for of in (hypothesis, reference)
        )
        total = _BETA**2 * precision + recall
        product = (1 + _BETA**2) * precision * recall
        found = np.divide(product, total, np.zeros_like(total), where=total > 0)
        return 100 * found


def _bleu(sums: np.ndarray, matches: np.ndarray) -> np.ndarray:
    """Returns BLEU: the mean of the precisions times the brevity penalty.

    Args:
        sums: `[..., 10]`.
        matches: `[..., 4]`, perhaps smoothed.
    """
    length, expected, total = sums[..., 0], sums[..., 1], sums[..., 6:]
    is_known = (matches > 0).all(axis=-1)
    precisions = np.divide(
        100.0 * matches, total, np.ones_like(total), where=matches > 0
    )
    is_short = (length > 0) & (length < expected)
    ratios = np.divide(expected, length, np.ones_like(length), where=is_short)
    scores = np.exp(1.0 - ratios) * np.exp(np.log(precisions).mean(axis=-1))
    return np.where(is_known, scores, 0.0)
