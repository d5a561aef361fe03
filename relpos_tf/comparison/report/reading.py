"""Access to a report, the dict of report.json that `content.make` returns.

A number is None where a run does not record it.
"""

import statistics
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

Report = Mapping[str, Any]


def runs_of(report: Report, label: str) -> list[Mapping[str, Any]]:
    """Returns the runs of a label, one for each seed."""
    return [run for run in report["runs"] if run["label"] == label]


def labels_without_run(report: Report) -> list[str]:
    """Returns the labels of which only translations are known."""
    labels = {
        run["label"] for run in report["runs"] if run["train_steps"] is None
    }
    return [label for label in report["labels"] if label in labels]


def has_runs(report: Report) -> bool:
    """Returns whether there is a run of ours, not only translations."""
    return len(labels_without_run(report)) < len(report["labels"])


def values(report: Report, name: str) -> list[Any]:
    """Returns the distinct values of a field of the runs, ascending."""
    return sorted({run.get(name) for run in report["runs"]} - {None})


def has_tokenized_bleu(report: Report) -> bool:
    """Returns whether the report has tokenized BLEU beside the cased one."""
    return bool(values(report, "tokenized_bleu"))


def sharing_text(run: Mapping[str, Any]) -> str:
    """Says how many runs were trained at once with a run; "" if it was alone.

    Example:

    >>> sharing_text({"sharing": {"jobs": 2, "cores": 4, "gpus": 0}})
    '2 at once on 4 cores'
    >>> sharing_text({"sharing": {"jobs": 2, "cores": 4, "gpus": 2}})
    '2 at once on 4 cores and 2 GPUs'
    """
    sharing = run.get("sharing")
    if not sharing:
        return ""
    gpus = f" and {sharing['gpus']} GPUs" if sharing["gpus"] else ""
    return f"{sharing['jobs']} at once on {sharing['cores']} cores{gpus}"


def conditions_of_time(report: Report) -> str:
    """Says which runs were trained side by side; "" if none was."""
    runs = report["runs"]
    texts = list(dict.fromkeys(map(sharing_text, runs)))
    if texts == [""]:
        return ""
    if len(texts) == 1:
        return f"The runs were trained {texts[0]}."
    parts = []
    for text in texts:
        own = [
            run["label"]
            + ("" if run["seed"] is None else f" seed {run['seed']}")
            for run in runs
            if sharing_text(run) == text
        ]
        parts.append(f"{', '.join(own)}: {text or 'alone'}")
    return f"The runs were trained so: {'; '.join(parts)}."


def known(numbers: Iterable[float | None]) -> list[float]:
    """Returns the numbers that are not None."""
    return [number for number in numbers if number is not None]


def curve(run: Mapping[str, Any], split: str, column: int) -> dict[int, float]:
    """Returns a run's learning curve: the value at each step.

    Args:
        run: One of the report's runs.
        split: str. "dev" or "train".
        column: int. Of the rows: 1 loss, 2 BLEU.
    """
    return {
        row[0]: row[column]
        for row in run["learning_curve"][split]
        if row[column] is not None
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


def length_buckets(report: Report) -> list[tuple[str, int]]:
    """Returns (lengths in words, number of lines) of each bucket, ascending.

    Example:

    >>> cells = [{"up_to": 10, "lines": 7}, {"up_to": 20, "lines": 5}]
    >>> cells.append({"up_to": None, "lines": 3})
    >>> length_buckets({"runs": [{"bleu_by_length": cells}]})
    [('up to 10', 7), ('11 to 20', 5), ('over 20', 3)]
    """
    buckets, before = [], None
    for cell in report["runs"][0]["bleu_by_length"]:
        up_to = cell["up_to"]
        if before is None:
            name = "all" if up_to is None else f"up to {up_to}"
        elif up_to is None:
            name = f"over {before}"
        else:
            name = f"{before + 1} to {up_to}"
        buckets.append((name, cell["lines"]))
        before = up_to
    return buckets


def mean_in_bucket(
    report: Report,
    label: str,
    index: int,
    name: str,
    field: str = "bleu_by_length",
) -> float | None:
    """Returns the mean of a score over the runs of a label, in one bucket.

    Args:
        report: The report.
        label: str. The label.
        index: int. Of the bucket.
        name: str. The score: "bleu" or "exact_match"; of words, "f1" or
            "recall".
        field: str. Of a run: "bleu_by_length" or "words_by_frequency".
    """
    scores = known(run[field][index][name] for run in runs_of(report, label))
    return statistics.fmean(scores) if scores else None


def word_buckets(report: Report) -> list[tuple[str, int]]:
    """Returns (frequencies in words, words) of each bucket, ascending.

    Example:

    >>> cells = [{"up_to": 0, "words": 3}, {"up_to": 9, "words": 5}]
    >>> cells.append({"up_to": None, "words": 70})
    >>> word_buckets({"runs": [{"words_by_frequency": cells}]})
    [('never', 3), ('1 to 9', 5), ('over 9', 70)]
    """
    buckets, before = [], 0
    for cell in report["runs"][0]["words_by_frequency"] or ():
        up_to = cell["up_to"]
        if up_to == 0:
            name = "never"
        elif up_to is None:
            name = f"over {before}"
        else:
            name = f"{before + 1} to {up_to}"
        buckets.append((name, cell["words"]))
        before = up_to
    return buckets


def curves(
    report: Report, split: str, column: int
) -> dict[str, list[dict[int, float]]]:
    """Returns the learning curves of each label that has any, by label.

    Args:
        report: The report.
        split: str. "dev" or "train".
        column: int. See `curve`.
    """
    by_label = {}
    for label in report["labels"]:
        own = [curve(run, split, column) for run in runs_of(report, label)]
        if own := [one for one in own if one]:
            by_label[label] = own
    return by_label


def spread_curve(curves: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """Returns the standard deviation of curves at the steps of all of them.

    Returns:
        dict, empty for fewer than two curves.
    """
    if len(curves) < 2:
        return {}
    return {
        step: statistics.stdev(one[step] for one in curves)
        for step in mean_curve(curves)
    }
