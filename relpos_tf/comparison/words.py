"""How well words are translated, by their frequency in the training data.

Words are the tokens of BLEU (sacreBLEU's 13a). In a line, a word of the
translation is right as often as the reference has it too.
"""

import bisect
import collections
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from relpos_tf.training import metrics

# Upper limits of the frequencies in a bucket; the last bucket has none.
LIMITS = 0, 9, 99, 999


def count(lines: Iterable[str]) -> collections.Counter[str]:
    """Returns how often each word occurs.

    Example:

    >>> sorted(count(["A dog, or two.", "dog"]).items())
    [(',', 1), ('.', 1), ('A', 1), ('dog', 2), ('or', 1), ('two', 1)]
    """
    counts = collections.Counter()
    for line in lines:
        counts.update(metrics.words(line))
    return counts


def by_frequency(
    translations: Sequence[str],
    references: Sequence[str],
    frequencies: Mapping[str, int],
) -> list[dict[str, Any]]:
    """Returns how many words are right, by their frequency.

    Args:
        translations: A translation of each line.
        references: A reference for each.
        frequencies: How often each word occurs in the training data. Words
            that it lacks do not occur there.

    Returns:
        For each bucket of `LIMITS`, a dict of `up_to`, its limit or None;
        `words`, the number of words of the references; `recall`, the
        percentage of these in the translations; and `f1`, the harmonic mean of
        recall and precision, in percent. Both are None if there are no words.
    """
    expected, made, right = ([0] * (len(LIMITS) + 1) for _ in range(3))

    def add(buckets, words):
        for word, number in words.items():
            frequency = frequencies.get(word, 0)
            buckets[bisect.bisect_left(LIMITS, frequency)] += number

    for translation, reference in zip(translations, references, strict=True):
        ours, others = count([translation]), count([reference])
        add(made, ours)
        add(expected, others)
        add(right, ours & others)
    return [
        {
            "up_to": limit,
            "words": expected[i],
            "recall": 100 * right[i] / expected[i] if expected[i] else None,
            # 2 P R / (P + R), of right / made and right / expected.
            "f1": 200 * right[i] / (made[i] + expected[i])
            if expected[i]
            else None,
        }
        for i, limit in enumerate((*LIMITS, None))
    ]
