"""Comparisons of two labels, and a verdict over all labels in words."""

import itertools
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import numpy as np

from relpos_tf.comparison import significance

# Up to so many labels, all pairs are compared.
_MOST_FOR_ALL_PAIRS = 4
# Equal sets are called different with at most this probability.
LEVEL = 0.05
# The smallest p-value that 10,000 trials can show.
_SMALLEST_P = 0.0001


class SeedScores(NamedTuple):
    """The scores of a label, by seed.

    Attributes:
        bleu: BLEU of each model.
        counts: `metrics.line_counts` of each model's translations.
    """

    bleu: dict[int | None, float]
    counts: dict[int | None, np.ndarray]


def choose(labels: Sequence[str]) -> list[tuple[str, str]]:
    """Returns the pairs of labels to compare, whatever their scores.

    Of up to four labels, all pairs; of more, each label with the first and
    with its neighbour.

    Example:

    >>> choose(["a", "b", "c", "d", "e"])[3:]
    [('a', 'e'), ('b', 'c'), ('c', 'd'), ('d', 'e')]
    """
    if len(labels) <= _MOST_FOR_ALL_PAIRS:
        return list(itertools.combinations(labels, 2))
    first, *others = labels
    return [(first, other) for other in others] + list(
        itertools.pairwise(others)
    )


def level(number: int) -> float:
    """Returns the significance level of each of several tests.

    With it, the probability that any of them finds a difference between equal
    sets is at most `LEVEL` (Bonferroni).

    Example:

    >>> level(1), level(5)
    (0.05, 0.01)
    """
    return LEVEL / max(number, 1)


def compare(
    a: str, b: str, scores: Mapping[str, SeedScores], p_below: float = LEVEL
) -> dict[str, Any]:
    """Compares two labels over the seeds that both have.

    If they share no seed, as runs from elsewhere may, all seeds are compared,
    provided that both labels have equally many.

    Args:
        a: str. A label.
        b: str. Another.
        scores: By label.
        p_below: float. The level of both p-values, see `level`.

    Returns:
        dict with None for what is unknown:
        `a`, `b`: the labels;
        `seeds`: the common seeds;
        `bleu_a`, `bleu_b`, `spread_a`, `spread_b`: mean and standard deviation
        over the seeds;
        `by_seed`: BLEU of a minus BLEU of b, for each common seed;
        `difference`: BLEU of a minus BLEU of b, of the translations of all
        seeds together, and `difference_low` and `difference_high`, its 95 %
        interval by the bootstrap;
        `p_value`: over test sentences, and `test`, its name;
        `p_value_seeds`: over seeds;
        `p_below` and `is_beyond_chance`.
    """
    first, second = scores[a], scores[b]
    seeds = [seed for seed in first.bleu if seed in second.bleu]
    seeds_a, seeds_b = seeds or list(first.bleu), seeds or list(second.bleu)
    bleu_a = [first.bleu[seed] for seed in seeds_a]
    bleu_b = [second.bleu[seed] for seed in seeds_b]
    by_seed = [first.bleu[seed] - second.bleu[seed] for seed in seeds]
    pair = {
        "a": a,
        "b": b,
        "seeds": seeds,
        "bleu_a": significance.mean(bleu_a),
        "bleu_b": significance.mean(bleu_b),
        "spread_a": significance.spread(bleu_a),
        "spread_b": significance.spread(bleu_b),
        "by_seed": by_seed,
        "difference": None,
        "difference_low": None,
        "difference_high": None,
        "p_value": None,
        "test": significance.TEST,
        "p_value_seeds": significance.p_of_differences(by_seed)
        if seeds
        else significance.p_of_groups(bleu_a, bleu_b),
        "p_below": p_below,
        "is_beyond_chance": False,
    }
    if len(seeds_a) == len(seeds_b):
        counts = (
            sum(first.counts[seed] for seed in seeds_a),
            sum(second.counts[seed] for seed in seeds_b),
        )
        interval = significance.interval(*counts)
        pair |= {
            "difference": interval.difference,
            "difference_low": interval.low,
            "difference_high": interval.high,
            "p_value": significance.p_value(*counts),
        }
        pair["is_beyond_chance"] = is_beyond_chance(pair)
    return pair


def verdict(
    summary: Sequence[Mapping[str, Any]], pairs: Sequence[Mapping[str, Any]]
) -> str:
    """Says which label is best, compared with the next and with the first.

    Args:
        summary: of the report, by label, in order.
        pairs: Results of `compare`.
    """
    if len(summary) < 2:
        return f"{summary[0]['label']} has nothing to be compared with."
    rows = sorted(summary, key=lambda row: -row["bleu_mean"])
    best = rows[0]["label"]
    by_labels = {frozenset((pair["a"], pair["b"])): pair for pair in pairs}
    if len(rows) == 2:
        (pair,) = by_labels.values()
        return _pair_sentence(pair)
    sentences = [f"{best} has the highest BLEU, {rows[0]['bleu_mean']:.1f}."]
    with_best = (frozenset((best, row["label"])) for row in rows[1:])
    tested = [labels for labels in with_best if labels in by_labels]
    for labels in tested:
        # The first label is the baseline.
        if labels == tested[0] or summary[0]["label"] in labels:
            sentences.append(_pair_sentence(by_labels[labels]))
    if len(pairs) > 1:
        sentences.append(
            f"Because {len(pairs)} pairs were compared, better needs p below "
            f"{format_p(pairs[0]['p_below'])}."
        )
    return " ".join(sentences)


def is_beyond_chance(pair: Mapping[str, Any]) -> bool:
    """Says whether neither test sentences nor seeds explain a difference.

    False with one seed: two trainings of the same set differ as well.
    """
    p_values = pair["p_value"], pair["p_value_seeds"]
    return None not in p_values and max(p_values) < pair["p_below"]


def _pair_sentence(pair):
    """Returns the sentence for a pair."""
    a, b = pair["a"], pair["b"]
    difference = pair["bleu_a"] - pair["bleu_b"]
    if difference < 0:
        a, b, difference = b, a, -difference
    evidence = f"({_seed_evidence(pair)}; {_sentence_evidence(pair)})"
    more = f"{a} has {difference:.1f} BLEU more than {b}"
    if is_beyond_chance(pair):
        return f"{a} is better than {b} by {difference:.1f} BLEU {evidence}."
    if pair["p_value"] is None:
        return f"{more} {evidence}."
    if pair["p_value_seeds"] is None:
        return (
            f"{more}, but one training of each cannot show which is better "
            f"{evidence}. Train with more seeds, as in --seeds=1,2,3."
        )
    return (
        f"{a} and {b} differ by {difference:.1f} BLEU: no difference beyond "
        f"chance {evidence}."
    )


def _sentence_evidence(pair):
    """Returns the result of the test over sentences, in words."""
    if pair["p_value"] is None:
        return "not tested, because they do not have the same seeds"
    return f"p = {format_p(pair['p_value'])} over test sentences"


def _seed_evidence(pair):
    """Returns the result of the test over seeds, in words."""
    number = len(pair["seeds"])
    if pair["p_value_seeds"] is None:
        return "one seed" if number else "different seeds"
    spreads = sorted((pair["spread_a"], pair["spread_b"]))
    seeds = f"{number} seeds" if number else "different seeds"
    return (
        f"{seeds}, spread {spreads[0]:.1f} and {spreads[1]:.1f}, "
        f"p = {format_p(pair['p_value_seeds'])} over seeds"
    )


def format_p(value: float) -> str:
    """Writes a p-value, but no smaller one than the trials can show.

    Example:

    >>> format_p(1 / 10_001), format_p(0.03456), format_p(0.7), format_p(0.0)
    ('0.0001', '0.035', '0.70', '0.0001')
    """
    value = max(value, _SMALLEST_P)
    if value >= 0.095:
        return f"{value:.2f}"
    return f"{value:.2g}" if value >= 0.0095 else f"{value:.1g}"
