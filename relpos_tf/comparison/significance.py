"""Whether a difference in BLEU is more than chance.

Two kinds of chance, which nothing here mixes. That of the test sentences: had
others been drawn, would the score of one model still be higher? Approximate
randomisation answers with a p-value, the bootstrap with an interval. And that
of the seeds: would training again give the same? The spread over seeds answers,
as far as a few seeds can.
"""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from relpos_tf import metrics

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


def are_apart(first: Sequence[float], second: Sequence[float]) -> bool | None:
    """Says whether every value of one is above every value of the other.

    None where one has fewer than two: then seeds say nothing.
    """
    if min(len(first), len(second)) < 2:
        return None
    return max(first) < min(second) or max(second) < min(first)


def chance_of_apart(first: int, second: int) -> float:
    """Returns how often `are_apart` is true of values that do not differ.

    Example:

    >>> chance_of_apart(3, 3)
    0.1
    """
    return 2 / math.comb(first + second, first)


def are_one_sided(differences: Sequence[float]) -> bool:
    """Says whether two or more differences, seed by seed, have one sign.

    Models of one seed have seen the same batches in the same order, and what
    was easy or hard about them is in the scores of both.

    Example:

    >>> are_one_sided([0.3, 1.2]), are_one_sided([0.3, -1.2])
    (True, False)
    """
    return len(differences) > 1 and (
        min(differences) > 0 or max(differences) < 0
    )


def chance_of_one_sided(number: int) -> float:
    """Returns how often `are_one_sided` is true where neither is better.

    Example:

    >>> chance_of_one_sided(3)
    0.25
    """
    return 2.0 ** (1 - number)


def _mixed(sides, first, second):
    """Returns the sums of trials in which `sides` come from the first."""
    sides = sides.astype(np.float64)  # Whole numbers: the sums are exact.
    return sides @ first + (1.0 - sides) @ second


def _bleu(sums):
    return metrics.bleu_of_counts(sums.tolist())
