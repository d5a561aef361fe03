"""Comparisons of two labels, and a verdict over all labels in words."""

import itertools
import math
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import numpy as np

from relpos_tf.comparison import corpus_measures
from relpos_tf.comparison import significance
from relpos_tf.comparison import two_way

# With more labels, each is compared with the first one only.
MOST_FOR_ALL_PAIRS = 4
# With at most this probability, any of several equal pairs is called different.
LEVEL = 0.05
# The smallest p-value that 10,000 trials can show.
_SMALLEST_P = 0.0001


class SeedScores(NamedTuple):
    """The scores of a label in a measure, by seed.

    Attributes:
        scores: The score of each model.
        counts: `measure.counts` of each model's translations.
    """

    scores: dict[int | str | None, float]
    counts: dict[int | str | None, np.ndarray]


def choose(labels: Sequence[str]) -> list[tuple[str, str]]:
    """Returns the pairs of labels to compare, whatever their scores.

    Of up to four labels, all pairs; of more, each label with the first, the
    baseline: the more pairs are tested, the larger Holm's correction.

    Example:

    >>> choose(["a", "b", "c", "d", "e"])
    [('a', 'b'), ('a', 'c'), ('a', 'd'), ('a', 'e')]
    """
    if len(labels) <= MOST_FOR_ALL_PAIRS:
        return list(itertools.combinations(labels, 2))
    first, *others = labels
    return [(first, other) for other in others]


def score_all(
    translations: Mapping[str, Mapping[int | str | None, Sequence[str]]],
    references: Sequence[str],
    measure: corpus_measures.Measure,
) -> dict[str, SeedScores]:
    """Returns the scores of all labels in a measure.

    Args:
        translations: By label and seed.
        references: Of the lines.
        measure: The measure.
    """
    scores = {}
    for label, by_seed in translations.items():
        counts = {
            seed: measure.counts(lines, references)
            for seed, lines in by_seed.items()
        }
        sums = {seed: own.sum(axis=0) for seed, own in counts.items()}
        scores[label] = SeedScores(
            {seed: float(measure.score(own)) for seed, own in sums.items()},
            counts,
        )
    return scores


def compare_all(
    scores: Mapping[str, SeedScores], measure: corpus_measures.Measure
) -> list[dict[str, Any]]:
    """Compares labels in a measure, in the pairs that `choose` returns.

    Args:
        scores: By label.
        measure: The measure.

    Returns:
        The result of `correct`.
    """
    return correct(
        [compare(a, b, scores, measure) for a, b in choose(list(scores))]
    )


def compare(
    a: str,
    b: str,
    scores: Mapping[str, SeedScores],
    measure: corpus_measures.Measure,
) -> dict[str, Any]:
    """Compares two labels over the seeds that both have.

    If they share fewer than two seeds, as runs from elsewhere may, and either
    has more, all seeds are compared, not in pairs: one common seed would leave
    the others unused, and shows nothing by itself. Seeds of other systems are
    unknown, not numbers, and never common.

    If there are not as many trainings on the other side, the translations of
    either side count several times in the test over sentences, so that both
    weigh the same.

    Args:
        a: str. A label.
        b: str. Another.
        scores: By label.
        measure: The measure of the scores.

    Returns:
        dict with None for what is unknown:
        `a`, `b`: the labels; `measure`: its name;
        `seeds`: the common seeds, if they are compared in pairs;
        `score_a`, `score_b`, `spread_a`, `spread_b`: mean and standard
        deviation over the seeds;
        `by_seed`: the score of a minus that of b, for each common seed;
        `p_value`: over test sentences, and `test`, its name;
        `p_value_seeds`: over seeds;
        `both_low`, `both_high` and `p_value_both`: the 95 % interval of the
        mean difference and the p-value over seeds and sentences, `two_way`;
        `p_largest`: the largest of the three p-values, if none is unknown.
    """
    first, second = scores[a], scores[b]
    are_known = all(isinstance(x, int) for x in (*first.scores, *second.scores))
    seeds = [x for x in first.scores if are_known and x in second.scores]
    if len(seeds) < min(2, max(len(first.scores), len(second.scores))):
        seeds = []
    scores_a, counts_a = _of_seeds(first, seeds)
    scores_b, counts_b = _of_seeds(second, seeds)
    by_seed = [first.scores[seed] - second.scores[seed] for seed in seeds]
    pair = {
        "a": a,
        "b": b,
        "measure": measure.name,
        "seeds": seeds,
        "score_a": significance.mean(scores_a),
        "score_b": significance.mean(scores_b),
        "spread_a": significance.spread(scores_a),
        "spread_b": significance.spread(scores_b),
        "by_seed": by_seed,
        "test": significance.TEST,
        "p_value_seeds": significance.p_of_differences(by_seed)
        if seeds
        else significance.p_of_groups(scores_a, scores_b),
        "p_value": _p_over_sentences(counts_a, counts_b, measure),
        **_over_both(counts_a, counts_b, measure, bool(seeds)),
    }
    p_values = [pair[f"p_value{name}"] for name in ("", "_seeds", "_both")]
    pair["p_largest"] = None if None in p_values else max(p_values)
    return pair


def _of_seeds(scores, seeds):
    """Returns scores and counts of some seeds; of all, if none are given."""
    seeds = seeds or list(scores.scores)
    return (
        [scores.scores[seed] for seed in seeds],
        [scores.counts[seed] for seed in seeds],
    )


def correct(pairs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Corrects the p-values of all pairs of one measure, and decides.

    Args:
        pairs: Results of `compare`, all that are reported.

    Returns:
        The pairs, with `p_corrected`, Holm's, of `p_largest`; `tests`, the
        number of pairs that could be tested; and `is_beyond_chance`: whether
        `p_corrected` is below `LEVEL`. It never is with one seed: two trainings
        of the same set differ as well.
    """
    p_values = [pair["p_largest"] for pair in pairs]
    tests = sum(value is not None for value in p_values)
    return [
        {
            **pair,
            "p_corrected": corrected,
            "tests": tests,
            "is_beyond_chance": corrected is not None and corrected < LEVEL,
        }
        for pair, corrected in zip(
            pairs, significance.holm(p_values), strict=True
        )
    ]


def _p_over_sentences(counts_a, counts_b, measure):
    """Returns the p-value over sentences, with all seeds together."""
    # As many translations of a sentence on either side.
    total = math.lcm(len(counts_a), len(counts_b))
    sums = [sum(own) * (total // len(own)) for own in (counts_a, counts_b)]
    return significance.p_value(*sums, measure)


def _over_both(counts_a, counts_b, measure, is_paired):
    """Returns the results over seeds and sentences."""
    test = two_way.of_same_seeds if is_paired else two_way.of_other_seeds
    estimate = test(counts_a, counts_b, measure)
    return {
        "both_low": estimate and estimate.low,
        "both_high": estimate and estimate.high,
        "p_value_both": estimate and estimate.p_value,
    }


def verdict(
    summary: Sequence[Mapping[str, Any]], pairs: Sequence[Mapping[str, Any]]
) -> str:
    """Says which label is best, and what each comparison of two shows.

    Args:
        summary: of the report, by label, in order.
        pairs: Results of `correct`, in BLEU.
    """
    best = max(summary, key=lambda row: row["bleu_mean"])
    words = [f"{best['label']} has the highest BLEU, {best['bleu_mean']:.1f}."]
    words += map(_sentence, pairs)
    if any(None in (pair["spread_a"], pair["spread_b"]) for pair in pairs):
        words.append(
            "One training shows nothing about the next: more seeds are needed."
        )
    if any(pair["p_corrected"] is not None for pair in pairs):
        tests = pairs[0]["tests"]
        words.append(
            "p is the largest of three tests"
            + (f", corrected for {tests} pairs." if tests > 1 else ".")
        )
    return " ".join(words)


def _sentence(pair):
    """Says what the comparison of two labels shows."""
    a, b = pair["a"], pair["b"]
    difference = pair["score_a"] - pair["score_b"]
    if difference < 0:
        a, b = b, a
    amount = f"{abs(difference):.1f} {pair['measure']}"
    if pair["p_corrected"] is None:
        return f"{a} has {amount} more than {b}, which cannot be tested."
    p = format_p(pair["p_corrected"])
    if pair["is_beyond_chance"]:
        return f"{a} is better than {b} by {amount} (p = {p})."
    return (
        f"{a} and {b} differ by {amount}, which chance may explain (p = {p})."
    )


def format_p(value: float) -> str:
    """Writes a p-value, but no smaller one than the trials can show.

    Example:

    >>> format_p(1 / 10_001), format_p(0.03456), format_p(0.7), format_p(0.0)
    ('0.0001', '0.035', '0.7', '0.0001')
    """
    return f"{max(value, _SMALLEST_P):.2g}"
