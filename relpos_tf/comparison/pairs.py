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
# Equal sets may be called different no more often than that, as is usual.
LEVEL = 0.05
# No p-value is written as less: 10,000 trials cannot tell.
_SMALLEST = 0.0001


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


def level(number: int) -> float:
    """Returns the level of each of several tests.

    One of them finds a difference where there is none no more often than
    `LEVEL`, whichever of them is looked at (Bonferroni).

    Example:

    >>> level(1), level(5)
    (0.05, 0.01)
    """
    return LEVEL / max(number, 1)


def compare(
    a: str, b: str, results: Mapping[str, Results], p_below: float = LEVEL
) -> dict[str, Any]:
    """Compares two variants over the seeds that both have.

    Where they share none, as runs from elsewhere may, over all they have, if
    each has one.

    Args:
        a: str. A label.
        b: str. Another.
        results: By label.
        p_below: float. What both p-values must be below, see `level`.

    Returns:
        dict of `a`, `b`; `seeds`; `bleu_a` and `bleu_b`, means over the
        seeds, and `spread_a` and `spread_b`; `by_seed`, the BLEU of a minus
        that of b for each of the seeds; `difference`, BLEU of a minus
        that of b, of the translations of all seeds together, and
        `difference_low` and `difference_high`, its 95 % interval by the
        bootstrap; `p_value`, over test sentences; `test`, its name;
        `p_value_seeds`, over seeds; `p_below`; and `is_beyond_chance`. What
        cannot be known is None.
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
        "p_value_seeds": significance.p_of_groups(bleu_a, bleu_b),
        "p_below": p_below,
        "is_beyond_chance": False,
    }
    if seeds:
        found["p_value_seeds"] = significance.p_of_differences(found["by_seed"])
    if len(seeds_a) != len(seeds_b):
        return found
    counts = [
        sum(side.counts[seed] for seed in chosen_seeds)
        for side, chosen_seeds in ((first, seeds_a), (second, seeds_b))
    ]
    interval = significance.interval(*counts)
    found |= {
        "difference": interval.difference,
        "difference_low": interval.low,
        "difference_high": interval.high,
        "p_value": significance.p_value(*counts),
    }
    return found | {"is_beyond_chance": is_beyond_chance(found)}


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
    sentences += [_pair_in_words(pair) for pair in shown]
    if len(found) > 1:
        sentences.append(
            f"Because {len(found)} pairs were compared, better needs p below "
            f"{format_p(found[0]['p_below'])}."
        )
    return " ".join(sentences)


def is_beyond_chance(pair: Mapping[str, Any]) -> bool:
    """Says whether neither other sentences nor other seeds explain it.

    Never with one seed: two trainings of one set differ as well.
    """
    found = pair["p_value"], pair["p_value_seeds"]
    return None not in found and max(found) < pair["p_below"]


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
    why = f"({_seeds_in_words(pair)}; {_sentences_in_words(pair)})"
    more = f"{a} has {difference:.1f} BLEU more than {b}"
    if is_beyond_chance(pair):
        return f"{a} is better than {b} by {difference:.1f} BLEU {why}."
    if pair["p_value"] is None:
        return f"{more} {why}."
    if pair["p_value_seeds"] is None:
        return (
            f"{more}, but one training of each cannot show which is better "
            f"{why}. Train with more seeds, as in --seeds=1,2,3."
        )
    return (
        f"{a} and {b} differ by {difference:.1f} BLEU: no difference beyond "
        f"chance {why}."
    )


def _sentences_in_words(pair):
    """Returns what the test of sentences says."""
    if pair["p_value"] is None:
        return "not tested, because they do not have the same seeds"
    return f"p = {format_p(pair['p_value'])} over test sentences"


def _seeds_in_words(pair):
    """Returns what the seeds say."""
    number = len(pair["seeds"])
    if pair["p_value_seeds"] is None:
        return "one seed" if number else "different seeds"
    spreads = sorted((pair["spread_a"], pair["spread_b"]))
    start = f"{number} seeds" if number else "different seeds"
    return (
        f"{start}, spread {spreads[0]:.1f} and {spreads[1]:.1f}, "
        f"p = {format_p(pair['p_value_seeds'])} over seeds"
    )


def format_p(value: float) -> str:
    """Writes a p-value, never as less than the trials can tell.

    Example:

    >>> format_p(1 / 10_001), format_p(0.03456), format_p(0.7), format_p(0.0)
    ('0.0001', '0.035', '0.70', '0.0001')
    """
    value = max(value, _SMALLEST)
    if value >= 0.095:
        return f"{value:.2f}"
    return f"{value:.2g}" if value >= 0.0095 else f"{value:.1g}"
