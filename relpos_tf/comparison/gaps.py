"""The sentences that one label translates better than another.

Shapes: L lines, C counts.
"""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np

from relpos_tf.comparison import corpus_measures


def largest(
    first: Sequence[np.ndarray],
    second: Sequence[np.ndarray],
    measure: corpus_measures.Measure,
    number: int,
) -> list[tuple[int, float, float]]:
    """Returns the lines in which the first label is most above the second.

    Args:
        first: `[L, C]` of each of its models, of `measure.counts`.
        second: The same of the other label.
        measure: The measure, which must be able to score single lines.
        number: int. How many lines to return at most.

    Returns:
        (index, mean score of the first, mean score of the second) of lines in
        which the first is better, from the largest difference on.
    """
    ours, others = (
        np.mean([measure.score(counts) for counts in side], axis=0)  # [L]
        for side in (first, second)
    )
    order = np.argsort(others - ours, kind="stable")
    return [
        (int(i), float(ours[i]), float(others[i]))
        for i in order[:number]
        if ours[i] > others[i]
    ]


def describe(
    found: Sequence[tuple[int, float, float]],
    labels: tuple[str, str],
    sources: Sequence[str],
    references: Sequence[str],
    translations: Mapping[str, Sequence[str]],
) -> list[dict[str, Any]]:
    """Returns the lines with their texts.

    Args:
        found: See `largest`.
        labels: The better label and the other.
        sources: All lines.
        references: Of all lines.
        translations: Of all lines by one model of each label.

    Returns:
        For each line, a dict of `source`, `reference`, and of `scores` and
        `translations` by label.
    """
    return [
        {
            "source": sources[index],
            "reference": references[index],
            "scores": dict(zip(labels, scores, strict=True)),
            "translations": {
                label: translations[label][index] for label in labels
            },
        }
        for index, *scores in found
    ]
