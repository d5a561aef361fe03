"""Whether a difference in BLEU is larger than chance explains.

There are two sources of chance. One is the choice of test sentences: would the
difference remain with other sentences? Approximate randomisation gives a
p-value and the bootstrap an interval. The other is the seed: would the
difference remain after training again? A t-test over the seeds' scores gives a
p-value. A difference is significant only if both p-values are small.
"""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from relpos_tf.training import metrics

# The numbers of trials and the seed are sacreBLEU's defaults.
TRIALS = 10_000
RESAMPLES = 1_000
SEED = 12345
TEST = (
    f"paired approximate randomisation of test sentences, {TRIALS:,} trials, "
    f"seed {SEED}"
)
# A shuffled difference that equals the true one, up to rounding, counts.
_TIE = 1e-9
# Trials computed together; limits the memory for long test sets.
_CHUNK = 500


class Interval(NamedTuple):
    """A difference and the bounds of the middle 95 % of resampled ones."""

    difference: float
    low: float
    high: float


def p_value(first: np.ndarray, second: np.ndarray) -> float:
    """Tests whether two systems differ in BLEU, two-sided.

    In each trial, the translations of every sentence change sides with
    probability 1/2. The p-value is the share of trials whose difference is at
    least the true one; the true one counts as a trial. This is sacreBLEU's
    approximate randomisation with the same draws, except that sacreBLEU does
    not count ties: two systems that differ in a single line have p = 1 here
    and p = 0.0001 in sacreBLEU.

    Args:
        first: `[lines, 10]`, of `metrics.line_counts`. For several seeds, the
            sum over the seeds: all translations of a sentence change sides
            together, because they resemble one another.
        second: `[lines, 10]`, of the same lines.

    Returns:
        float, above 0 and at most 1.
    """
    generator = np.random.default_rng(SEED)
    sides = generator.integers(2, size=(TRIALS, len(first)), dtype=bool)
    both = (first + second).sum(axis=0)
    true = abs(_bleu(first.sum(axis=0)) - _bleu(second.sum(axis=0)))
    as_large = 0
    for start in range(0, TRIALS, _CHUNK):
        for sums in _mixed(sides[start : start + _CHUNK], first, second):
            difference = abs(_bleu(sums) - _bleu(both - sums))
            as_large += difference >= true - _TIE
    return (as_large + 1) / (TRIALS + 1)


def interval(first: np.ndarray, second: np.ndarray) -> Interval:
    """Returns BLEU of the first minus BLEU of the second, with an interval.

    The interval is that of the paired bootstrap with `RESAMPLES` resamples of
    the sentences.

    Args:
        first: See `p_value`.
        second: See `p_value`.
    """
    generator = np.random.default_rng(SEED)
    lines = len(first)
    resampled = []
    for _ in range(RESAMPLES):
        drawn = np.bincount(generator.integers(lines, size=lines), None, lines)
        resampled.append(_bleu(drawn @ first) - _bleu(drawn @ second))
    low, high = np.quantile(resampled, (0.025, 0.975))
    difference = _bleu(first.sum(axis=0)) - _bleu(second.sum(axis=0))
    return Interval(difference, float(low), float(high))


def mean(values: Sequence[float | None]) -> float | None:
    """Returns the mean; None if a value is missing or the list is empty."""
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
    """Tests whether the differences of the seeds have the mean 0, two-sided.

    This is Student's paired t-test. It assumes that the differences are drawn
    from a normal distribution; the variances of the two sides and their
    correlation may be any.

    Returns:
        The p-value; None for fewer than two seeds, which have no spread.

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

    This is Welch's t-test, for models that share no seed, with the degrees of
    freedom of the smaller group. They are fewer than Welch's, so that the test
    keeps its level whatever the two variances are.

    Returns:
        The p-value; None if a group has fewer than two seeds.
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
    """Returns the sums of trials that take `sides` from the first."""
    sides = sides.astype(np.float64)  # Whole numbers: the sums are exact.
    return sides @ first + (1.0 - sides) @ second


def _bleu(sums):
    return metrics.bleu_of_counts(sums.tolist())
