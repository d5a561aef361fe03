"""Scores of lines from elsewhere, such as those of COMET or MetricX.

They are compared as BLEU is, over seeds and lines together; the score of a
model is their mean.

Shapes: L lines.
"""

import math
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np

from relpos_tf import errors
from relpos_tf.comparison import corpus_measures
from relpos_tf.problems import test_sets
from relpos_tf.training import metrics

_LARGEST = 1e30  # Sums and squares stay finite.
_COMPUTED = "BLEU", "chrF", "tokenized BLEU", *metrics.further()


class SegmentScores(corpus_measures.Measure):
    """A metric whose scores of lines are read from files.

    Args:
        name: str. For tables.
        values: `[L]`, by the title of each model.
    """

    digits = 4

    def __init__(self, name: str, values: Mapping[str, Sequence[float]]):
        super().__init__(name, None)
        self.field = f"segment_{name}"  # Names that differ in case may meet.
        self._values = values

    def signature(self) -> str:
        """Returns how the score is made."""
        return "mean of the scores of lines, from files"

    def covers(self, model: Any, test_set: test_sets.TestSet) -> bool:
        """Returns whether there are scores of a model."""
        return model.run.title in self._values

    def counts_of(self, model: Any, test_set: test_sets.TestSet) -> np.ndarray:
        """Returns the scores and ones: float64 `[L, 2]`."""
        values = np.array(self._values[model.run.title])
        return np.stack([values, np.ones_like(values)], axis=1)

    def score(self, sums: np.ndarray) -> np.ndarray:
        """Returns means, `[..., 2]` to `[...]`."""
        return sums[..., 0] / np.maximum(sums[..., 1], 1)


def read(
    items: Sequence[str], models: Sequence[Any], lines: int
) -> list[SegmentScores]:
    """Returns the metrics of `--segment_scores`.

    Args:
        items: `NAME:LABEL/SEED=FILE`, or `NAME:LABEL=FILE` for a system
            without seeds. A file has a number on each line.
        models: `Run`s and `Output`s.
        lines: int. Lines of the test set.

    Raises:
        UserError: a name is of no model, a label has files of some seeds only,
            or a file does not hold as many numbers.
    """
    titles = []  # with the key of each
    for one in models:
        seed = str(one.seed).removeprefix("file ")
        key = one.label if one.seed is None else f"{one.label}/{seed}"
        titles.append((key, one.title))
    found: dict[str, dict[str, list[float]]] = {}
    for item in items:
        name, _, rest = item.partition(":")
        meant = [x for x in titles if rest.startswith(f"{x[0]}=")]
        own = found.setdefault(name, {})
        key, title = meant[0] if len(meant) == 1 else ("", "")
        if not (name and title) or name in _COMPUTED or title in own:
            raise errors.UserError(
                "Expected NAME:LABEL/SEED=FILE, each once, with a name other "
                f"than {', '.join(_COMPUTED)}, and one of "
                f"{', '.join(key for key, _ in titles)}. Received: {item}."
            )
        path = rest[len(key) + 1 :]
        values = list(map(_number, test_sets.paired_lines([path], lines)))
        wrong = [n for n, x in enumerate(values, 1) if not abs(x) < _LARGEST]
        if wrong:
            raise errors.UserError(
                f"Expected a number below {_LARGEST:g} on each line of {path}. "
                f"Received on line {wrong[0]} another text."
            )
        own[title] = values
    for name, own in found.items():
        labels = {one.label for one in models if one.title in own}
        for one in models:
            if one.label in labels and one.title not in own:
                raise errors.UserError(
                    f"Expected scores of {name} for {one.title}, because other "
                    f"seeds of {one.label} have a file. Received: none."
                )
    return [SegmentScores(name, own) for name, own in found.items()]


def _number(line: str) -> float:
    """Returns the number of a line, NaN for other text."""
    try:
        return float(line.replace("_", "?"))  # 1_0 is 10 for Python alone
    except ValueError:
        return math.nan
