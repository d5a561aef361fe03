"""Comparisons of two labels, and a verdict over all labels in words."""

import itertools
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from relpos_tf.comparison import corpus_measures
from relpos_tf.comparison import measures
from relpos_tf.comparison import two_way

# With more labels, each is compared with the first one only.
MOST_FOR_ALL_PAIRS = 4
# The models of each label, by seed.
Scores = Mapping[str, Mapping[int | str | None, corpus_measures.Scored]]


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


def compare_all(
    scores: Scores, measure: corpus_measures.Measure
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
    a: str, b: str, scores: Scores, measure: corpus_measures.Measure
) -> dict[str, Any]:
    """Compares two labels over the seeds that both have.

    If they share fewer than two seeds, as runs from elsewhere may, and either
    has more, all seeds are compared, not in pairs: one common seed would leave
    the others unused, and shows nothing by itself. Seeds of other systems are
    unknown, not numbers, and never common.

    Args:
        a: str. A label.
        b: str. Another.
        scores: By label.
        measure: The measure of the scores.

    Returns:
        dict with None for what is unknown:
        `a`, `b`: the labels; `measure`: its name; `digits`: its decimals;
        `seeds`: the common seeds, if they are compared in pairs;
        `score_a`, `score_b`, `spread_a`, `spread_b`: mean and standard
        deviation over the seeds;
        `by_seed`: the score of a minus that of b, for each common seed;
        the fields of `two_way.Difference`; and `test`, the name of the test.
    """
    first, second = scores[a], scores[b]
    are_known = all(isinstance(x, int) for x in (*first, *second))
    seeds = [x for x in first if are_known and x in second]
    if len(seeds) < min(2, max(len(first), len(second))):
        seeds = []
    sides = [[own[x] for x in seeds or own] for own in (first, second)]
    ours, others = ([one.score for one in side] for side in sides)
    return {
        "a": a,
        "b": b,
        "measure": measure.name,
        "digits": measure.digits,
        "seeds": seeds,
        "score_a": measures.mean(ours),
        "score_b": measures.mean(others),
        "spread_a": measures.spread(ours),
        "spread_b": measures.spread(others),
        "by_seed": [first[x].score - second[x].score for x in seeds],
        "test": two_way.TEST,
        **two_way.compare(sides[0], sides[1], bool(seeds))._asdict(),
    }


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
    tested = sorted((p, i) for i, p in enumerate(p_values) if p is not None)
    corrected, highest = list(p_values), 0.0
    for rank, (p, index) in enumerate(tested):
        highest = max(highest, min((len(tested) - rank) * p, 1.0))
        corrected[index] = highest
    return corrected


def correct(pairs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Corrects the p-values of all pairs of one measure, and decides.

    Args:
        pairs: Results of `compare`, all that are reported.

    Returns:
        The pairs, with `p_corrected`, Holm's, of `p_value`; `tests`, the
        number of pairs that could be tested; and `is_beyond_chance`: whether
        `p_corrected` is below `two_way.LEVEL`. It never is with one seed: two
        trainings of the same set differ as well.
    """
    p_values = [pair["p_value"] for pair in pairs]
    tests = sum(value is not None for value in p_values)
    return [
        {
            **pair,
            "p_corrected": corrected,
            "tests": tests,
            "is_beyond_chance": corrected is not None
            and corrected < two_way.LEVEL,
        }
        for pair, corrected in zip(pairs, holm(p_values), strict=True)
    ]


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
    if best["bleu_mean"] < 0.05:  # shown as 0.0
        words = ["No label reaches 0.1 BLEU."]
    words += map(_sentence, pairs)
    if any(None in (pair["spread_a"], pair["spread_b"]) for pair in pairs):
        words.append(
            "One training shows nothing about the next: more seeds are needed."
        )
    if any(pair["p_corrected"] is not None for pair in pairs):
        tests = pairs[0]["tests"]
        words.append(
            "p is over seeds and sentences together"
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
    p = format_p(pair["p_corrected"])
    if pair["is_beyond_chance"]:
        return f"{a} is better than {b} by {amount} (p = {p})."
    reason = "cannot be tested" if p == "–" else f"chance may explain (p = {p})"
    return f"{a} and {b} differ by {amount}, which {reason}."


def format_p(value: float | None) -> str:
    """Writes a p-value; a dash for None.

    Example:
    >>> format_p(0.0001), format_p(0.03456), format_p(None)
    ('0.0001', '0.035', '–')
    """
    return "–" if value is None else f"{value:.2g}"
