"""Tuning: the point of a grid that is best for each variant, by dev BLEU.

Every point is trained with one seed and scored on the development set alone.
Test sets are not read here.
"""

import pathlib
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

from relpos_tf import fields
from relpos_tf import hparam
from relpos_tf.comparison import collection
from relpos_tf.comparison import runs as runs_lib
from relpos_tf.comparison import score_cache
from relpos_tf.comparison import variants as variants_lib
from relpos_tf.training import metrics
from relpos_tf.utils import slots as slots_lib

# The cache of scores on the development set, in the comparison's folder.
FOLDER = "tuning"


class PointScore(NamedTuple):
    """The score of a variant at a point of the grid.

    Attributes:
        variant: The variant at the point.
        run: Its run.
        bleu: float. BLEU on the development set.
        loss: float. Loss on it.
    """

    variant: variants_lib.Variant
    run: runs_lib.Run
    bleu: float
    loss: float


class Tuning:
    """The scores of all points, and the best point of each variant.

    Args:
        scores: Of all points of all variants.
    """

    def __init__(self, scores: Sequence[PointScore]):
        self._by_label: dict[str, list[PointScore]] = {}
        for one in scores:
            self._by_label.setdefault(one.variant.label, []).append(one)

    def chosen(self) -> list[variants_lib.Variant]:
        """Returns each variant at its best point."""
        return [best(own).variant for own in self._by_label.values()]

    def describe(self) -> list[dict[str, Any]]:
        """Returns the entries of `tuning` in report.json, one for each label.

        Returns:
            list of dict of `label`, `seed`, `points` and `chosen`; `range`, the
            highest BLEU minus the lowest; `lead`, the highest minus the second,
            None if there is one point; and `at_edge`, the numeric fields whose
            chosen value is the smallest or the largest that was tried.
        """
        return [_entry(label, own) for label, own in self._by_label.items()]


def best(scores: Sequence[PointScore]) -> PointScore:
    """Returns the point with the highest BLEU.

    Of points with the same BLEU it is the one with the lowest loss, and then
    the first.
    """
    return _ranked(scores)[0]


def score(
    runs: Sequence[runs_lib.Run],
    variants: Sequence[variants_lib.Variant],
    train_steps: int,
    data_dir: str,
    folder: pathlib.Path,
    slots: slots_lib.Slots,
) -> Tuning:
    """Scores finished runs of a grid on the development set.

    Args:
        runs: One for each variant.
        variants: The variants at the points.
        train_steps: int. The last step of the runs.
        data_dir: str. Folder of prepared data.
        folder: The comparison's folder; see `FOLDER`.
        slots: Where models are scored.

    Raises:
        UserError: a run cannot be scored.
    """
    problem = collection.common_problem(runs)
    (dev,) = collection.open_test_sets(data_dir, problem, False)
    scorings = [
        score_cache.Scoring(
            run,
            runs_lib.final_checkpoint(run, train_steps),
            dev,
            folder / FOLDER,
        )
        for run in runs
    ]
    score_cache.score(scorings, slots)
    scores = []
    for variant, scoring in zip(variants, scorings, strict=True):
        result = scoring.result()
        bleu = metrics.corpus_bleu(result.translations, dev.references).bleu
        loss = result.record["loss"]
        scores.append(PointScore(variant, result.run, bleu, loss))
    return Tuning(scores)


def _ranked(scores):
    """Returns scores, the best first; NaN is the worst loss."""
    return sorted(
        scores,
        key=lambda one: (-one.bleu, one.loss != one.loss, one.loss),
    )


def _entry(label, scores):
    """Returns the entry of a label."""
    first, *others = _ranked(scores)
    bleu = [one.bleu for one in scores]
    return {
        "label": label,
        "seed": first.run.seed,
        "chosen": first.variant.point,
        "points": [
            {
                "hparams": one.variant.point,
                "bleu": one.bleu,
                "loss": one.loss,
                "is_chosen": one is first,
                "run": one.run.name,
            }
            for one in scores
        ],
        "range": max(bleu) - min(bleu),
        "lead": first.bleu - others[0].bleu if others else None,
        "at_edge": _at_edge(
            first.variant.point, [one.variant.point for one in scores]
        ),
    }


def _at_edge(chosen, points):
    """Returns the numeric fields in which a point is at the grid's edge."""
    values = [fields.parse(point, hparam.HParams) for point in points]
    found = []
    for name, value in fields.parse(chosen, hparam.HParams).items():
        tried = {one[name] for one in values}
        is_number = type(value) in (int, float)
        if is_number and len(tried) > 1 and value in (min(tried), max(tried)):
            found.append(name)
    return found
