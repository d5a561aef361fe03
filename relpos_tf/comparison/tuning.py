"""Tuning: the point of a grid that is best for each variant, by dev BLEU.

Every point is trained with one seed and scored on the development set alone.
Test sets are not read here.
"""

import pathlib
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

from relpos_tf import errors
from relpos_tf import fields
from relpos_tf import hparam
from relpos_tf.comparison import collection
from relpos_tf.comparison import runs as runs_lib
from relpos_tf.comparison import scoring
from relpos_tf.comparison import variants as variants_lib
from relpos_tf.training import metrics

# The scores on the development set, in the comparison's folder.
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


def score(
    runs: Sequence[runs_lib.Run],
    variants: Sequence[variants_lib.Variant],
    train_steps: int,
    data_dir: str,
    folder: pathlib.Path,
    tokenize: str = "",
) -> list[PointScore]:
    """Scores finished runs of a grid on the development set.

    Args:
        runs: One for each variant.
        variants: The variants at the points.
        train_steps: int. The last step of the runs.
        data_dir: str. Folder of prepared data.
        folder: The comparison's folder, which gets the folder `FOLDER`.
        tokenize: str. The tokenizer for BLEU; "": that of the language.

    Raises:
        UserError: a run cannot be scored.
    """
    _check_all(runs, [x for x in runs if runs_lib.is_finished(x, train_steps)])
    problem = collection.common_problem(runs)
    tokenize = metrics.tokenizer_of(problem["target_language"], tokenize)
    (dev,) = collection.open_test_sets(data_dir, problem, False)
    results = scoring.score(runs, train_steps, [dev], folder / FOLDER)
    _check_all(runs, [one.run for one in results])
    return [
        PointScore(
            variant,
            result.run,
            metrics.corpus_bleu(
                result.translations[dev.name], dev.references, tokenize
            ).bleu,
            result.record["loss"],
        )
        for variant, result in zip(variants, results, strict=True)
    ]


def _check_all(runs, found):
    """Raises UserError unless all runs are found."""
    if missing := [run.title for run in runs if run not in found]:
        raise errors.UserError(
            f"Expected results of all {len(runs)} runs of the grid. Received: "
            f"none of {', '.join(missing)}. See the logs named above; run it "
            "again, or remove their points from --grid."
        )


def choose(
    scores: Sequence[PointScore],
) -> tuple[list[variants_lib.Variant], list[dict[str, Any]]]:
    """Chooses the point with the highest BLEU for each variant.

    Of points with the same BLEU it is the one with the lowest loss, and then
    the first; NaN is the worst loss.

    Args:
        scores: Of all points of all variants.

    Returns:
        The variants at these points; and the entries of `tuning` in
        report.json, one for each label: dict of `label`, `seed`, `points` and
        `chosen`; `range`, the highest BLEU minus the lowest; and `at_edge`, the
        numeric fields whose chosen value is the smallest or the largest that
        was tried.
    """
    by_label: dict[str, list[PointScore]] = {}
    for one in scores:
        by_label.setdefault(one.variant.label, []).append(one)
    best = [
        min(own, key=lambda one: (-one.bleu, one.loss != one.loss, one.loss))
        for own in by_label.values()
    ]
    entries = [
        {
            "label": first.variant.label,
            "seed": first.run.seed,
            "chosen": first.variant.point,
            "points": [
                {
                    "hparams": one.variant.point,
                    "bleu": one.bleu,
                    "loss": one.loss,
                    "is_chosen": one is first,
                }
                for one in own
            ],
            "range": first.bleu - min(one.bleu for one in own),
            "at_edge": _at_edge(
                first.variant.point, [one.variant.point for one in own]
            ),
        }
        for first, own in zip(best, by_label.values(), strict=True)
    ]
    return [one.variant for one in best], entries


def _at_edge(chosen, points):
    """Returns the numeric fields in which a point is at the grid's edge."""
    values = [fields.parse(point, hparam.HParams) for point in points]
    found = []
    for name, value in fields.parse(chosen, hparam.HParams).items():
        tried = {one[name] for one in values if name in one}
        is_number = type(value) in (int, float)
        if is_number and len(tried) > 1 and value in (min(tried), max(tried)):
            found.append(name)
    return found
