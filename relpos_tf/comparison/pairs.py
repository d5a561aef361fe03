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

# Up to so many labels, all pairs are compared.
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
        See `correct`.
    """
    return correct(
        [compare(a, b, scores, measure) for a, b in choose(list(scores))]
    )


def complete(
    found: Sequence[Mapping[str, Any]],
    scores: Mapping[str, SeedScores],
    measure: corpus_measures.Measure,
) -> list[dict[str, Any]]:
    """Compares all pairs of labels, and corrects for all of them.

    Args:
        found: Results of `compare_all`, which are not computed again.
        scores: By label.
        measure: The measure.

    Returns:
        See `correct`.
    """
    known = {(pair["a"], pair["b"]): pair for pair in found}
    return correct(
        [
            known.get((a, b)) or compare(a, b, scores, measure)
            for a, b in itertools.combinations(scores, 2)
        ]
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
    the others unused, and shows nothing by itself. Seeds that are no numbers
    are unknown, as those of other systems, and never common.

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
        `has_known_seeds`: whether all are numbers, without which none is
        common;
        `score_a`, `score_b`, `spread_a`, `spread_b`: mean and standard
        deviation over the seeds;
        `by_seed`: the score of a minus that of b, for each common seed;
        `difference`: the score of a minus that of b, of the translations of
        all seeds together, and `difference_low` and `difference_high`, its
        95 % interval by the bootstrap of sentences;
        `p_value`: over test sentences, and `test`, its name;
        `p_value_seeds`: over seeds;
        `both_low`, `both_high` and `p_value_both`: the 95 % interval of the
        mean difference and the p-value over seeds and sentences, `two_way`;
        `p_largest`: the largest of the three p-values, if none is unknown.
    """
    first, second = scores[a], scores[b]
    are_known = _are_known(first.scores, second.scores)
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
        "has_known_seeds": are_known,
        "score_a": significance.mean(scores_a),
        "score_b": significance.mean(scores_b),
        "spread_a": significance.spread(scores_a),
        "spread_b": significance.spread(scores_b),
        "by_seed": by_seed,
        "test": significance.TEST,
        "p_value_seeds": significance.p_of_differences(by_seed)
        if seeds
        else significance.p_of_groups(scores_a, scores_b),
        **_over_sentences(counts_a, counts_b, measure),
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


def _are_known(*sides):
    """Returns whether all seeds of the labels are known."""
    return all(isinstance(seed, int) for side in sides for seed in side)


def _over_sentences(counts_a, counts_b, measure):
    """Returns the results over sentences, with all seeds together."""
    names = "difference", "difference_low", "difference_high", "p_value"
    # As many translations of a sentence on either side.
    total = math.lcm(len(counts_a), len(counts_b))
    sums = [sum(own) * (total // len(own)) for own in (counts_a, counts_b)]
    interval = significance.interval(*sums, measure)
    p_value = significance.p_value(*sums, measure)
    return dict(zip(names, (*interval, p_value), strict=True))


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
    """Says which label is best, compared with the next and with the first.

    Args:
        summary: of the report, by label, in order.
        pairs: Results of `correct`, in BLEU.
    """
    if len(summary) < 2:
        return f"{summary[0]['label']} has nothing to be compared with."
    rows = sorted(summary, key=lambda row: -row["bleu_mean"])
    best = rows[0]["label"]
    if len(rows) > MOST_FOR_ALL_PAIRS:
        return _verdict_of_many(rows[0], summary[0]["label"], pairs)
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
            f"{len(pairs)} pairs were compared: better needs a p below "
            f"{LEVEL} after Holm's correction."
        )
    return " ".join(sentences)


def _verdict_of_many(best, baseline, pairs):
    """Says which of many labels differ from the baseline."""
    found = {"better": [], "worse": [], "equal": [], "open": []}
    for pair in sorted(pairs, key=lambda one: -one["score_b"]):
        gain = pair["score_b"] - pair["score_a"]
        if pair["p_corrected"] is None:
            found["open"].append(pair["b"])
        elif not pair["is_beyond_chance"]:
            found["equal"].append(pair["b"])
        else:
            found["better" if gain > 0 else "worse"].append(
                f"{pair['b']} by {abs(gain):.1f} {pair['measure']} (p = "
                f"{format_p(pair['p_corrected'])})"
            )
    sentences = [
        f"{best['label']} has the highest BLEU, {best['bleu_mean']:.1f}."
    ]
    if not found["better"]:
        sentences.append(f"No label is better than {baseline} beyond chance.")
    for kind, words in (
        ("better", f"Better than {baseline}"),
        ("worse", f"Worse than {baseline}"),
        ("equal", f"Not different from {baseline} beyond chance"),
        ("open", "Not decided, for lack of trainings that differ"),
    ):
        if found[kind]:
            sentences.append(f"{words}: {', '.join(found[kind])}.")
    sentences.append(_chance_of_many(pairs))
    return " ".join(sentences)


def _chance_of_many(pairs):
    """Says how often one of several equal pairs looks as different."""
    tested = [pair for pair in pairs if pair["p_corrected"] is not None]
    if not tested:
        return _advice(pairs[0], True)
    clearest = min(tested, key=lambda pair: pair["p_largest"])
    p = clearest["p_corrected"]
    number = len(tested)
    if number == 1:
        return _chance(clearest)
    return (
        f"p is corrected for {number} pairs (Holm); below {LEVEL} it is beyond "
        f"chance. Of {number} pairs of equal systems, one differs as clearly "
        f"as {clearest['b']} does here in {_at_most(p)}."
    )


def _at_most(p):
    """Says in how many comparisons something of probability p happens."""
    if p > 0.5:
        return "perhaps more than half of all comparisons"
    return f"at most 1 of {round(1 / max(p, _SMALLEST_P)):,} comparisons"


def _pair_sentence(pair):
    """Returns the sentences for a pair."""
    a, b = pair["a"], pair["b"]
    single = [x for x in "ab" if pair[f"spread_{x}"] is None]
    difference = pair["score_a"] - pair["score_b"]
    if difference < 0:
        a, b, difference = b, a, -difference
    amount = f"{difference:.1f} {pair['measure']}"
    evidence = f"({_evidence(pair)})"
    more = f"{a} has {amount} more than {b}"
    if pair["is_beyond_chance"]:
        return f"{a} is better than {b} by {amount} {evidence}. {_chance(pair)}"
    if pair["p_largest"] is None and not single:
        return (
            f"{more}, but the scores of either's trainings do not differ at "
            "all, as those of copies: nothing follows for other trainings "
            f"{evidence}."
        )
    if pair["p_largest"] is None:
        of = pair[single[0]] if len(single) == 1 else "each"
        return (
            f"{more}, but one training of {of} cannot show which is better "
            f"{evidence}. {_advice(pair, len(single) != 1)}"
        )
    return (
        f"{a} and {b} differ by {amount}: no difference beyond chance "
        f"{evidence}. {_chance(pair)}"
    )


def _advice(pair, are_alike):
    """Says what would show which label is better."""
    if are_alike and pair["has_known_seeds"]:
        return "Train with more seeds, as in --seeds=1,2,3."
    return "More trainings can."


def _evidence(pair):
    """Returns the results of the tests, in words."""
    parts = [_seed_evidence(pair), _sentence_evidence(pair)]
    if pair["p_value_both"] is not None:
        parts.append(f"p = {format_p(pair['p_value_both'])} over both")
    if pair["p_corrected"] is not None and pair["tests"] > 1:
        parts.append(
            f"p = {format_p(pair['p_corrected'])} after correction for "
            f"{pair['tests']} pairs"
        )
    return "; ".join(parts)


def _chance(pair):
    """Says how often equal labels look as different.

    Of several pairs that are tested, it is how often one of them does, by
    Bonferroni's bound: for the clearest pair, that is the corrected p.
    """
    p, number = pair["p_largest"], pair["tests"]
    if number > 1:
        return (
            f"Of {number} pairs of equal systems, one differs as clearly in "
            f"{_at_most(min(number * p, 1.0))}."
        )
    if p > 0.5:
        often = "more than half of all comparisons"
    else:
        number = round(1 / max(p, _SMALLEST_P))
        often = f"about 1 of {number:,} comparisons"
    return f"Equal systems show as clear a difference in {often}."


def _sentence_evidence(pair):
    """Returns the result of the test over sentences, in words."""
    return f"p = {format_p(pair['p_value'])} over test sentences"


def _seed_evidence(pair):
    """Returns the result of the test over seeds, in words."""
    number = len(pair["seeds"])
    others = "different" if pair["has_known_seeds"] else "unknown"
    seeds = f"{number or others} seeds"
    if None in (pair["spread_a"], pair["spread_b"]):
        return "one seed" if number == 1 else seeds
    if pair["p_value_seeds"] is None:
        return f"{seeds} of equal scores"
    spreads = sorted((pair["spread_a"], pair["spread_b"]))
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
