"""Which of two variants is better, and in words which of all."""

import itertools
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import numpy as np

from relpos_tf.comparison import significance

# Up to so many variants, each is compared with each.
_FEW = 4
# Less probable than this is called more than chance, as is usual.
LEVEL = 0.05


class Results(NamedTuple):
    """What one variant reached, by seed.

    Attributes:
        bleu: BLEU of each seed's model.
        counts: `metrics.line_counts` of its translations.
    """

    bleu: dict[int | None, float]
    counts: dict[int | None, np.ndarray]


def chosen(labels: Sequence[str]) -> list[tuple[str, str]]:
    """Returns the pairs of labels to compare, before any result is known.

    All pairs of a few; of more, each with the first and with its neighbour.

    Example:

    >>> chosen(["a", "b", "c", "d", "e"])[3:]
    [('a', 'e'), ('b', 'c'), ('c', 'd'), ('d', 'e')]
    """
    if len(labels) <= _FEW:
        return list(itertools.combinations(labels, 2))
    first, *others = labels
    return [(first, other) for other in others] + list(
        itertools.pairwise(others)
    )


def compare(a: str, b: str, results: Mapping[str, Results]) -> dict[str, Any]:
    """Compares two variants over the seeds that both have.

    Where they share none, as runs from elsewhere may, over all they have, if
    each has one.

    Args:
        a: str. A label.
        b: str. Another.
        results: By label.

    Returns:
        dict of `a`, `b`; `seeds`; `bleu_a` and `bleu_b`, means over the
        seeds, and `spread_a` and `spread_b`; `by_seed`, the BLEU of a minus
        that of b for each of the seeds; `difference`, BLEU of a minus
        that of b, of the translations of all seeds together, and
        `difference_low` and `difference_high`, its 95 % interval by the
        bootstrap; `p_value`; `test`, its name; and `seeds_apart`, see
        `significance.are_apart`. What cannot be known is None.
    """
    first, second = results[a], results[b]
    seeds = [seed for seed in first.bleu if seed in second.bleu]
    if seeds:
        seeds_a = seeds_b = seeds
    else:
        seeds_a, seeds_b = list(first.bleu), list(second.bleu)
    bleu_a = [first.bleu[seed] for seed in seeds_a]
    bleu_b = [second.bleu[seed] for seed in seeds_b]
    found = {
        "a": a,
        "b": b,
        "seeds": seeds,
        "bleu_a": significance.mean(bleu_a),
        "bleu_b": significance.mean(bleu_b),
        "spread_a": significance.spread(bleu_a),
        "spread_b": significance.spread(bleu_b),
        "by_seed": [first.bleu[seed] - second.bleu[seed] for seed in seeds],
        "difference": None,
        "difference_low": None,
        "difference_high": None,
        "p_value": None,
        "test": significance.TEST,
        "seeds_apart": significance.are_apart(bleu_a, bleu_b),
    }
    if len(seeds_a) != len(seeds_b):
        return found
    counts = [
        sum(side.counts[seed] for seed in chosen_seeds)
        for side, chosen_seeds in ((first, seeds_a), (second, seeds_b))
    ]
    interval = significance.interval(*counts)
    return found | {
        "difference": interval.difference,
        "difference_low": interval.low,
        "difference_high": interval.high,
        "p_value": significance.p_value(*counts),
    }


def verdict(
    summary: Sequence[Mapping[str, Any]], found: Sequence[Mapping[str, Any]]
) -> str:
    """Says in words what came out: the best against the first, or the next.

    Args:
        summary: of the report, by label, in order.
        found: What `compare` returned for some pairs.
    """
    if len(summary) < 2:
        return f"{summary[0]['label']} has nothing to be compared with."
    rows = sorted(summary, key=lambda row: -row["bleu_mean"])
    best = rows[0]["label"]
    if len(rows) == 2:
        return _pair_in_words(_pair_of(best, rows[1]["label"], found))
    sentences = [f"{best} has the highest BLEU, {rows[0]['bleu_mean']:.1f}."]
    others = [row["label"] for row in rows[1:]]
    tested = [_pair_of(best, other, found) for other in others]
    tested = [pair for pair in tested if pair is not None]
    # The nearest of those, and the first, which all are compared with.
    shown = tested[:1]
    shown += [
        pair
        for pair in tested[1:]
        if summary[0]["label"] in (pair["a"], pair["b"])
    ]
    return " ".join(sentences + [_pair_in_words(pair) for pair in shown])


def is_beyond_chance(pair: Mapping[str, Any]) -> bool:
    """Says whether neither sentences nor seeds explain a difference.

    Of seeds, either all of one are above all of the other, or one is ahead in
    so many of them, each for itself, that chance has it rarely.
    """
    chance = significance.chance_of_one_sided(len(pair["by_seed"]))
    return (
        pair["p_value"] is not None
        and pair["p_value"] < LEVEL
        and (
            pair["seeds_apart"] is not False
            or (significance.are_one_sided(pair["by_seed"]) and chance < LEVEL)
        )
    )


def _pair_of(a, b, found):
    """Returns the comparison of two labels, if there is one."""
    wanted = {a, b}
    return next((p for p in found if {p["a"], p["b"]} == wanted), None)


def _pair_in_words(pair):
    """Returns the sentence for a pair."""
    a, b = pair["a"], pair["b"]
    difference = pair["bleu_a"] - pair["bleu_b"]
    if difference < 0:
        a, b, difference = b, a, -difference
    why = f"({_seeds_in_words(pair)}; {_chance_in_words(pair)})"
    if is_beyond_chance(pair):
        return f"{a} is better than {b} by {difference:.1f} BLEU {why}."
    if pair["p_value"] is None:
        return f"{a} has {difference:.1f} BLEU more than {b} {why}."
    return (
        f"{a} and {b} differ by {difference:.1f} BLEU: no difference beyond "
        f"chance {why}."
    )


def _chance_in_words(pair):
    """Returns what the test of sentences says."""
    if pair["p_value"] is None:
        return "not tested, because they do not have the same seeds"
    return f"p = {format_p(pair['p_value'])} over test sentences"


def _seeds_in_words(pair):
    """Returns what the seeds say."""
    if pair["seeds_apart"] is None:
        return "one seed, so chance between seeds is unknown"
    number = len(pair["seeds"])
    spreads = sorted((pair["spread_a"], pair["spread_b"]))
    start = f"{number} seeds" if number else "different seeds"
    start += f", spread {spreads[0]:.1f} and {spreads[1]:.1f}"
    if not pair["seeds_apart"]:
        return f"{start}, with scores that overlap{_ahead_in_words(pair)}"
    if not number:
        return f"{start}, all of one above the other's"
    chance = 100 * significance.chance_of_apart(number, number)
    return (
        f"{start}, all of one above the other's, as chance has it {chance:.0f} "
        "times in 100"
    )


def _ahead_in_words(pair):
    """Returns who is ahead whatever the seed, if anybody is."""
    differences = pair["by_seed"]
    if not significance.are_one_sided(differences):
        return ""
    ahead = pair["a"] if differences[0] > 0 else pair["b"]
    chance = 100 * significance.chance_of_one_sided(len(differences))
    return (
        f", {ahead} ahead in each seed, as chance has it {chance:.0f} times in "
        "100"
    )


def format_p(value: float) -> str:
    """Writes a p-value, never as less than the trials can tell.

    Example:

    >>> format_p(1 / 10_001), format_p(0.03456), format_p(0.7)
    ('0.0001', '0.035', '0.70')
    """
    if value >= 0.095:
        return f"{value:.2f}"
    return f"{value:.2g}" if value >= 0.0095 else f"{value:.1g}"
