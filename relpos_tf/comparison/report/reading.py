"""Access to a report in which anything may be missing.

A report is the dict of report.json. A number is None where a run does not
record it, and reports of earlier versions have fewer fields.
"""

import math
import statistics
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

_LISTS = "runs", "pairs", "summary", "samples", "warnings"
_OBJECTS = "attention", "hparams_diff", "versions"
_TEXTS = "title", "verdict", "command", "problem", "split"

Report = Mapping[str, Any]


def complete(report: Report) -> dict[str, Any]:
    """Returns a report that has every part, perhaps empty."""
    labels = report.get("labels") or list(
        dict.fromkeys(run.get("label") for run in report.get("runs") or ())
    )
    return {
        **report,
        **{name: report.get(name) or [] for name in _LISTS},
        **{name: report.get(name) or {} for name in _OBJECTS},
        **{name: report.get(name) or "" for name in _TEXTS},
        "labels": list(labels),
    }


def runs_of(report: Report, label: str) -> list[Mapping[str, Any]]:
    """Returns the runs of a label, one for each seed."""
    return [run for run in report["runs"] if run.get("label") == label]


def values(report: Report, name: str) -> list[Any]:
    """Returns the distinct values of a field of the runs, ascending."""
    return sorted({run.get(name) for run in report["runs"]} - {None, ""})


def is_number(value: Any) -> bool:
    """Says whether a value is a finite number."""
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and math.isfinite(value)
    )


def numbers(values: Iterable[Any]) -> list[float]:
    """Returns the values that are finite numbers."""
    return [float(value) for value in values if is_number(value)]


def curve(run: Mapping[str, Any], split: str, column: int) -> dict[int, float]:
    """Returns a run's learning curve: the value at each step.

    Args:
        run: One of the report's runs.
        split: str. "dev" or "train".
        column: int. Of the rows: 1 loss, 2 BLEU.
    """
    rows = (run.get("learning_curve") or {}).get(split) or ()
    return {
        row[0]: float(row[column])
        for row in rows
        if len(row) > column and is_number(row[column])
    }


def mean_curve(curves: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """Returns the mean of curves, at the steps that all of them have.

    At a step that a seed lacks, the mean would jump.
    """
    steps = set.intersection(*(set(one) for one in curves))
    return {
        step: statistics.fmean(one[step] for one in curves)
        for step in sorted(steps)
    }


def length_buckets(report: Report) -> list[tuple[int | None, int | None]]:
    """Returns (upper limit, number of lines) of each bucket, ascending.

    The last bucket has no limit: None.
    """
    buckets = {}
    for run in report["runs"]:
        for cell in run.get("bleu_by_length") or ():
            up_to = cell.get("up_to")
            buckets[up_to] = buckets.get(up_to) or cell.get("lines")
    return sorted(
        buckets.items(),
        key=lambda item: math.inf if item[0] is None else item[0],
    )


def bucket_name(buckets: Sequence[tuple[int | None, Any]], index: int) -> str:
    """Returns the lengths that a bucket holds, in words.

    Example:

    >>> buckets = [(10, 7), (20, 5), (None, 3)]
    >>> [bucket_name(buckets, n) for n in range(3)]
    ['up to 10', '11 to 20', 'over 20']
    """
    up_to = buckets[index][0]
    before = buckets[index - 1][0] if index else None
    if before is None:
        return "all" if up_to is None else f"up to {up_to}"
    return f"over {before}" if up_to is None else f"{before + 1} to {up_to}"


def mean_in_bucket(
    report: Report, label: str, up_to: int | None, name: str
) -> float | None:
    """Returns the mean of a score over the runs of a label, in one bucket.

    Args:
        report: The report.
        label: str. The label.
        up_to: The bucket's upper limit.
        name: str. The score: "bleu" or "exact_match".
    """
    scores = numbers(
        cell.get(name)
        for run in runs_of(report, label)
        for cell in run.get("bleu_by_length") or ()
        if cell.get("up_to") == up_to
    )
    return statistics.fmean(scores) if scores else None
