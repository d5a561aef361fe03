"""Whether a difference in BLEU is more than chance.

There are two kinds of chance. That of the test sentences: had others been
drawn, would the score of one model still be higher? Approximate randomisation
answers with a p-value, the bootstrap with an interval. And that of the seeds:
would training again give the same? A t-test over the scores of the seeds
answers with a p-value of its own. A difference is more than chance only if it
is more than both.
"""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from relpos_tf.training import metrics

# sacreBLEU's own numbers of trials, and its seed.
TRIALS = 10_000
RESAMPLES = 1_000
SEED = 12345
TEST = (
    f"paired approximate randomisation of test sentences, {TRIALS:,} trials, "
    f"seed {SEED}"
)
# Rounding apart, a shuffled difference as large as the true one counts.
_TIE = 1e-9
# Trials at a time, so that long test sets fit into memory.
_CHUNK = 500


class Interval(NamedTuple):
    """A difference and where the middle 95 % of the resampled ones lie."""

    difference: float
    low: float
    high: float


def p_value(first: np.ndarray, second: np.ndarray) -> float:
    """Tests whether two systems differ in BLEU, two-sided.

    In each trial every sentence's translations change sides with probability
    one half; the p-value is the share of trials whose difference is at least
    the true one, counting the true one as a trial. It is sacreBLEU's
    approximate randomisation with the same draws, but for ties, which
    sacreBLEU does not count: two systems that differ in a single line have
    p = 1 here, and 0.0001 there.

    Args:
        first: `[lines, 10]`, what `metrics.line_counts` gives. For several
            seeds, the sum over them: a sentence changes sides with all its
            translations, because those of one sentence resemble one another
            whatever the seed.
        second: likewise, of the same lines.

    Returns:
        float, above 0 and at most 1.
    """
    generator = np.random.default_rng(SEED)
    sides = generator.integers(2, size=(TRIALS, len(first)), dtype=bool)
    both = (first + second).sum(axis=0)
    true = abs(_bleu(first.sum(axis=0)) - _bleu(second.sum(axis=0)))
    as_large = 0
    for start in range(0, TRIALS, _CHUNK):
        some = sides[start : start + _CHUNK]
        for sums in _mixed(some, first, second):
            difference = abs(_bleu(sums) - _bleu(both - sums))
            as_large += difference >= true - _TIE
    return (as_large + 1) / (TRIALS + 1)


def interval(first: np.ndarray, second: np.ndarray) -> Interval:
    """Returns first's BLEU minus second's, and how far sentences move it.

    Args:
        first: see `p_value`.
        second: likewise.

    Returns:
        The difference and, by the paired bootstrap over `RESAMPLES` drawings
        of sentences, the bounds of the middle 95 %.
    """
    generator = np.random.default_rng(SEED)
    lines = len(first)
    found = []
    for _ in range(RESAMPLES):
        drawn = np.bincount(generator.integers(lines, size=lines), None, lines)
        found.append(_bleu(drawn @ first) - _bleu(drawn @ second))
    low, high = np.quantile(found, (0.025, 0.975))
    difference = _bleu(first.sum(axis=0)) - _bleu(second.sum(axis=0))
    return Interval(difference, float(low), float(high))


def mean(values: Sequence[float | None]) -> float | None:
    """Returns the mean, or None if a value is missing or there are none."""
    if not values or None in values:
        return None
    return statistics.fmean(values)


def spread(values: Sequence[float | None]) -> float | None:
    """Returns the sample standard deviation; None for fewer than two values.

    Example:

    >>> spread([1.0, 2.0, 3.0])
    1.0
    """
    if len(values) < 2 or None in values:
        return None
    return statistics.stdev(values)


def p_of_differences(differences: Sequence[float]) -> float | None:
    """Tests whether differences, seed by seed, have the mean 0, two-sided.

    Student's paired t-test: it takes the differences for draws from a normal
    distribution, and keeps its level however much the two sides vary, and
    however alike the two models of one seed are.

    Returns:
        The p-value; None for fewer than two: one seed shows no spread.

    Example:

    >>> round(p_of_differences([1.45, 1.35, 2.79]), 3)
    0.057
    """
    number = len(differences)
    if number < 2:
        return None
    error = statistics.stdev(differences) / number**0.5
    return _p_of_t(statistics.fmean(differences), error, number - 1)


def p_of_groups(
    first: Sequence[float], second: Sequence[float]
) -> float | None:
    """Tests whether two groups of seeds have the same mean, two-sided.

    Welch's t-test, for models that share no seed, with the degrees of freedom
    of the smaller group: fewer than Welch's, so that it keeps its level however
    much the two sides vary.

    Returns:
        The p-value; None where a group has fewer than two.
    """
    smaller = min(len(first), len(second))
    if smaller < 2:
        return None
    error = sum(statistics.variance(x) / len(x) for x in (first, second)) ** 0.5
    difference = statistics.fmean(first) - statistics.fmean(second)
    return _p_of_t(difference, error, smaller - 1)


def _p_of_t(difference, error, freedom):
    """Returns the two-sided p-value of Student's t.

    For whole degrees of freedom the integral is a finite sum of powers of
    cosines (Abramowitz and Stegun, 26.7.3 and 26.7.4).
    """
    if not error:
        return float(not difference)
    angle = math.atan(abs(difference) / error / freedom**0.5)
    sine, cosine = math.sin(angle), math.cos(angle)
    is_odd = freedom % 2
    term = cosine if is_odd else 1.0
    total = 0.0
    for power in range(2 + is_odd, freedom + 1, 2):
        total += term
        term *= cosine**2 * (power - 1) / power
    inside = sine * total
    if is_odd:
        inside = 2 / math.pi * (angle + inside)
    return max(1.0 - inside, 0.0)


def _mixed(sides, first, second):
    """Returns the sums of trials in which `sides` come from the first."""
    sides = sides.astype(np.float64)  # Whole numbers: the sums are exact.
    return sides @ first + (1.0 - sides) @ second


def _bleu(sums):
    return metrics.bleu_of_counts(sums.tolist())
