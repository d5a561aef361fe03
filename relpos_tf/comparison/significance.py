"""Whether a difference in a score is larger than chance explains.

There are two sources of chance. One is the choice of test sentences: would the
difference remain with other sentences? Approximate randomisation gives a
p-value. The other is the seed: would the difference remain after training
again? A t-test over the seeds' scores gives a p-value. `two_way` joins both.
Where several pairs are compared, `holm` corrects their p-values.

Shapes: L lines, C counts of a line (see `corpus_measures`).
"""

import functools
import statistics
from collections.abc import Sequence

import numpy as np

from relpos_tf.comparison import corpus_measures

# The number of trials and the seed are sacreBLEU's defaults.
TRIALS = 10_000
SEED = 12345
TEST = (
    f"paired approximate randomisation of test sentences, {TRIALS:,} trials, "
    f"seed {SEED}"
)
# A shuffled difference that equals the true one, up to rounding, counts.
_TIE = 1e-9
# Trials computed together; limits the memory for long test sets.
_CHUNK = 500


def p_value(
    first: np.ndarray, second: np.ndarray, measure: corpus_measures.Measure
) -> float:
    """Tests whether two systems differ in a measure, two-sided.

    In each trial, the translations of every sentence change sides with
    probability 1/2. The p-value is the share of trials whose difference is at
    least the true one; the true one counts as a trial. This is sacreBLEU's
    approximate randomisation with the same draws, except that sacreBLEU does
    not count ties: two systems that differ in a single line have p = 1 here
    and p = 0.0001 in sacreBLEU.

    Args:
        first: `[L, C]`, of `measure.counts`. For several seeds, the sum over
            the seeds: all translations of a sentence change sides together,
            because they resemble one another.
        second: `[L, C]`, of the same lines.
        measure: The measure.

    Returns:
        float, above 0 and at most 1.
    """
    both = (first + second).sum(axis=0)  # [C]
    true = abs(_difference(first.sum(axis=0), second.sum(axis=0), measure))
    change = first - second
    as_large = 0
    for sides in _sides(len(first)):
        # Whole numbers: the sums are exact.
        mixed = second.sum(axis=0) + sides @ change  # [trials, C]
        differences = np.abs(_difference(mixed, both - mixed, measure))
        as_large += int((differences >= true - _TIE).sum())
    return (as_large + 1) / (TRIALS + 1)


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Corrects the p-values of several tests.

    The probability that any corrected p-value of a true hypothesis is below a
    level is at most that level, also if the tests depend on one another.

    Args:
        p_values: A p-value for each test. None, where a test is impossible,
            remains, and counts as no test.

    Reference:
        Holm (1979), A simple sequentially rejective multiple test procedure.

    Example:

    >>> holm([0.04, None, 0.01, 0.03])
    [0.06, None, 0.03, 0.06]
    """
    tested = [i for i, value in enumerate(p_values) if value is not None]
    tested.sort(key=p_values.__getitem__)
    corrected, highest = list(p_values), 0.0
    for rank, index in enumerate(tested):
        own = min((len(tested) - rank) * p_values[index], 1.0)
        highest = max(highest, own)
        corrected[index] = highest
    return corrected


def mean(values: Sequence[float | None]) -> float | None:
    """Returns the mean; None if a value is missing or the list is empty."""
    if not values or None in values:
        return None
    return statistics.fmean(values)


def spread(values: Sequence[float | None]) -> float | None:
    """Returns the sample standard deviation.

    None for fewer than two values, and if a value is missing, NaN or infinite.

    Example:

    >>> spread([1.0, 2.0, 3.0])
    1.0
    """
    if len(values) < 2 or None in values or not np.isfinite(values).all():
        return None
    return statistics.stdev(values)


def p_of_differences(differences: Sequence[float]) -> float | None:
    """Tests whether the differences of the seeds have the mean 0, two-sided.

    This is Student's paired t-test. It assumes that the differences are drawn
    from a normal distribution; the variances of the two sides and their
    correlation may be any.

    Returns:
        The p-value; None for differences without a `spread`, and for equal
        ones but 0, which give nothing to compare them with.

    Example:

    >>> round(p_of_differences([1.45, 1.35, 2.79]), 3)
    0.057
    """
    if (deviation := spread(differences)) is None:
        return None
    error = deviation / len(differences) ** 0.5
    return _p_of_error(mean(differences), error, len(differences) - 1)


def p_of_groups(
    first: Sequence[float], second: Sequence[float]
) -> float | None:
    """Tests whether two groups of seeds have the same mean, two-sided.

    This is Welch's t-test, for models that share no seed, with the degrees of
    freedom of the smaller group. They are fewer than Welch's, so that the test
    keeps its level whatever the two variances are.

    Returns:
        The p-value; None if a group has no `spread`, or if the spreads are 0
        and the means differ.
    """
    if None in map(spread, (first, second)):
        return None
    smaller = min(len(first), len(second))
    error = sum(statistics.variance(x) / len(x) for x in (first, second)) ** 0.5
    difference = statistics.fmean(first) - statistics.fmean(second)
    return _p_of_error(difference, error, smaller - 1)


def p_of_t(t: float, freedom: int) -> float:
    """Returns the two-sided p-value of Student's t.

    Example:

    >>> round(p_of_t(12.706, 1), 4), round(p_of_t(4.303, 2), 4)
    (0.05, 0.05)
    """
    from scipy import special  # slow to import

    return float(2 * special.stdtr(freedom, -abs(t)))


def _p_of_error(difference, error, freedom):
    """Returns the p-value of a difference with its standard error.

    Without an error, as of copies of one training, a difference has none.
    """
    if not error:
        return None if difference else 1.0
    return p_of_t(difference / error, freedom)


@functools.lru_cache(maxsize=1)  # all pairs of a test set share the draws
def _packed_sides(trials, lines):
    """Returns whether each line changes sides, packed, `[trials, L / 8]`."""
    generator = np.random.default_rng(SEED)
    sides = generator.integers(2, size=(trials, lines), dtype=bool)
    return np.packbits(sides, axis=1)


def _sides(lines):
    """Yields 1.0 or 0.0 for each line, `[trials, L]`, for all trials."""
    packed = _packed_sides(TRIALS, lines)
    for start in range(0, len(packed), _CHUNK):
        chunk = packed[start : start + _CHUNK]
        yield np.unpackbits(chunk, axis=1, count=lines).astype(np.float64)


def _difference(first, second, measure):
    """Returns the score of sums of counts minus that of others."""
    return measure.score(first) - measure.score(second)
