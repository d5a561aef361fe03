"""A difference between two labels, over seeds and test sentences together.

The model of a score: the label's quality, plus an effect of the seed, plus an
effect of each sentence on the difference between the labels, plus what is left
of each sentence with each seed:

    d[s, l] = difference + seed[s] + sentence[l] + rest[s, l]

Seeds and sentences cross: every seed's model translates every sentence. The
mean over both has the variance

    var(seed) / S + var(sentence) / L + var(rest) / (S L).

The variance of the seeds' differences, divided by S, estimates the first and
the third part together, with S - 1 degrees of freedom. The variance of the
sentences' contributions, divided by L, estimates the second and the third part
together; the contributions to a corpus score are the jackknife's pseudo-values.
Each of these two standard errors has its own quantile, t for the seeds and the
normal one for the sentences, and the half-width of the interval is the root
of the sum of both squares. So the third part counts twice, which widens the
interval by some percent.

Assumptions: seeds are drawn independently and their effects are normal;
sentences are drawn independently of each other and of the seeds; there are
enough sentences for the central limit theorem, say a hundred.

Other intervals are too narrow with few seeds. In simulations of 3,000
comparisons with two seeds, for seven proportions of the parts, this one held
the truth in 96.9 to 99.1 %, one with a common quantile of t (Satterthwaite's
degrees of freedom) in 88.8 to 96.5 %, and the bootstrap of both seeds and
sentences in 78 to 96 %.

Shapes: S seeds, L lines, C counts of a line.

References:
    Howe (1974), Approximate confidence limits on the mean of X + Y where X and
    Y are two tabled independent random variables. Owen (2007), The pigeonhole
    bootstrap, for the three parts of the variance.
"""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from relpos_tf.comparison import corpus_measures
from relpos_tf.comparison import significance

_LEVEL = 0.05
# Of smaller p-values, the normal distribution has no quantile.
_SMALLEST_P = 1e-15
_NORMAL = statistics.NormalDist()


class Estimate(NamedTuple):
    """A difference, from seeds and sentences together.

    Attributes:
        difference: float. Mean over seeds of the first minus the second.
        low: float. Lower bound of the 95 % interval.
        high: float. Upper bound.
        p_value: float. Of the hypothesis that the difference is 0: 1 minus the
            level of the widest interval without 0.
        seed_error: float. Standard error over seeds.
        sentence_error: float. Standard error over sentences.
    """

    difference: float
    low: float
    high: float
    p_value: float
    seed_error: float
    sentence_error: float


def of_same_seeds(
    first: Sequence[np.ndarray],
    second: Sequence[np.ndarray],
    measure: corpus_measures.Measure,
) -> Estimate | None:
    """Compares models that share their seeds, seed by seed.

    Args:
        first: `[L, C]` of each seed, of `measure.counts`.
        second: The same of the other models, in the order of the same seeds.
        measure: The measure.

    Returns:
        The estimate; None for fewer than two seeds or lines.
    """
    scores, by_line = _scores(first, measure)
    others, others_by_line = _scores(second, measure)
    differences = scores - others
    return _estimate(
        differences.mean(),
        _square_error(differences),
        _square_error(by_line - others_by_line),
        len(differences) - 1,
    )


def of_other_seeds(
    first: Sequence[np.ndarray],
    second: Sequence[np.ndarray],
    measure: corpus_measures.Measure,
) -> Estimate | None:
    """Compares models that share no seed; the numbers of seeds may differ.

    Args:
        first: `[L, C]` of each seed, of `measure.counts`.
        second: The same of the other models, of the same lines.
        measure: The measure.

    Returns:
        The estimate; None for fewer than two seeds of either, or two lines.
        The degrees of freedom are those of the smaller group, see
        `significance.p_of_groups`.
    """
    scores, by_line = _scores(first, measure)
    others, others_by_line = _scores(second, measure)
    return _estimate(
        scores.mean() - others.mean(),
        _square_error(scores) + _square_error(others),
        _square_error(by_line - others_by_line),
        min(len(scores), len(others)) - 1,
    )


def _scores(counts, measure):
    """Returns the score of each seed, `[S]`, and the sentences' shares, `[L]`.

    A sentence's share is its pseudo-value, L times the score of all lines minus
    L - 1 times the score without it; the mean over seeds.
    """
    scores, shares = [], []
    for of_lines in counts:
        total = of_lines.sum(axis=0)  # [C]
        score = float(measure.score(total))
        others = measure.score(total - of_lines)  # [L]
        lines = len(of_lines)
        scores.append(score)
        shares.append(lines * score - (lines - 1) * others)
    return np.array(scores), np.mean(shares, axis=0)


def _square_error(values):
    """Returns the squared standard error of a mean; infinity for one value."""
    if len(values) < 2:
        return math.inf
    return float(values.var(ddof=1)) / len(values)


def _estimate(difference, of_seeds, of_sentences, freedom):
    """Returns the estimate, from squared standard errors; perhaps None."""
    if math.inf in (of_seeds, of_sentences):
        return None
    errors = of_seeds**0.5, of_sentences**0.5
    half = _half_width(*errors, freedom)
    difference = float(difference)
    return Estimate(
        difference,
        difference - half,
        difference + half,
        _p_value(abs(difference), *errors, freedom),
        *errors,
    )


def _half_width(seed_error, sentence_error, freedom):
    """Returns the half-width of the interval."""
    from scipy import special  # slow to import

    t = float(special.stdtrit(freedom, 1 - _LEVEL / 2))
    return math.hypot(t * seed_error, _normal(_LEVEL) * sentence_error)


def _p_value(difference, seed_error, sentence_error, freedom):
    """Returns the level at which the half-width is the difference."""
    from scipy import optimize

    if not difference:
        return 1.0
    if not seed_error:
        if not sentence_error:
            return 0.0
        return 2 * _NORMAL.cdf(-difference / sentence_error)
    longest = difference / seed_error  # the t without an error over sentences

    def excess(t):
        z = _normal(significance.p_of_t(t, freedom))
        return math.hypot(t * seed_error, z * sentence_error) - difference

    t = longest
    if excess(longest) > 0:
        t = optimize.brentq(excess, 0.0, longest, maxiter=1000)
    return significance.p_of_t(t, freedom)


def _normal(p):
    """Returns the two-sided quantile of the normal distribution."""
    return -_NORMAL.inv_cdf(max(p, _SMALLEST_P) / 2)
