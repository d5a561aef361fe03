"""Measures of a training run, means over seeds, and lines by length."""

import bisect
import json
import math
import statistics
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any


def of_training(events: Sequence[dict], last_step: int) -> dict[str, Any]:
    """Summarizes the events of a run.

    Args:
        events: Events of metrics.jsonl.
        last_step: int. Later events are left out.

    Returns:
        dict of `steps_per_second` and `tokens_per_second` (source and target),
        medians over the intervals, which a pause of the machine does not
        change; `minutes`, without evaluations; `target_tokens`, the number
        trained on; `peak_memory_mb`, in MiB; each None if there are no events
        of training or the system does not tell; and `learning_curve`: `train`,
        `[step, loss]`, and `dev`, `[step, loss, bleu]`, of the evaluations
        under the conditions of most.
    """
    events = [event for event in events if event["step"] <= last_step]
    train = [event for event in events if event["split"] == "train"]
    dev = [
        event
        for event in events
        if event["split"] == "dev" and "averaged" not in event
    ]
    if dev:
        found = [event.get("conditions") for event in reversed(dev)]
        most = max(found, key=found.count)
        dev = [event for event in dev if event.get("conditions") == most]
        by_step = {event["step"]: event for event in dev}  # the last of each
        dev = [by_step[step] for step in sorted(by_step)]
    tokens = _reduce(sum, train, "target_tokens")
    return {
        **{
            name: _reduce(statistics.median, train, name)
            for name in ("steps_per_second", "tokens_per_second")
        },
        "minutes": _minutes(train),
        "target_tokens": None if tokens is None else round(tokens),
        "peak_memory_mb": _reduce(max, train, "peak_memory_mb"),
        "learning_curve": {
            "train": _curve(train, "loss"),
            "dev": _curve(dev, "loss", "bleu"),
        },
    }


def finite(value: Any) -> Any:
    """Returns a value with None for NaN and infinity, which JSON lacks.

    Example:
    >>> finite({"loss": float("nan"), "steps": [1, 2.5]})
    {'loss': None, 'steps': [1, 2.5]}
    """
    return json.loads(json.dumps(value), parse_constant=lambda name: None)


def mean(values: Sequence[float | None]) -> float | None:
    """Returns the mean; None if a value is missing or the list is empty."""
    known = [x for x in values if x is not None]
    return statistics.fmean(known) if 0 < len(known) == len(values) else None


def spread(values: Sequence[float | None]) -> float | None:
    """Returns the sample standard deviation.

    None for fewer than two values, and if a value is missing, NaN or infinite.

    Example:
    >>> spread([1.0, 2.0, 3.0])
    1.0
    """
    known = [x for x in values if x is not None and math.isfinite(x)]
    return statistics.stdev(known) if 1 < len(known) == len(values) else None


def quartiles(lengths: Iterable[int]) -> list[int]:
    """Returns limits that put about a quarter of the lines in each bucket.

    Args:
        lengths: Lengths of the lines.

    Returns:
        list of int, ascending: the upper limits of all buckets but the last.
    """
    lengths = sorted(lengths)
    if len(lengths) < 4:
        return []
    ends = {lengths[len(lengths) * n // 4 - 1] for n in (1, 2, 3)}
    return sorted(ends - {lengths[-1]})


def buckets(
    lengths: Sequence[int], limits: Sequence[int]
) -> list[tuple[int | None, list[int]]]:
    """Sorts lines by length.

    Args:
        lengths: Lengths of the lines.
        limits: Upper limits, ascending.

    Returns:
        For each limit, and for longer lines (None), the indices of its lines.
    """
    indices: list[list[int]] = [[] for _ in range(len(limits) + 1)]
    for index, length in enumerate(lengths):
        indices[bisect.bisect_left(limits, length)].append(index)
    return list(zip([*limits, None], indices, strict=True))


def spread_out(lengths: Sequence[int], number: int) -> list[int]:
    """Returns the indices of some lines, from the shortest to the longest.

    The lines, ordered by length, are divided into `number` equal parts; the
    middle line of each is returned.
    """
    order = sorted(range(len(lengths)), key=lambda i: (lengths[i], i))
    number = min(number, len(order))
    return [
        order[(2 * n + 1) * len(order) // (2 * number)] for n in range(number)
    ]


def _reduce(function, events, name):
    """Applies a function to a field, unless it is None in an event."""
    values = [event[name] for event in events]
    return function(values) if values and None not in values else None


def _minutes(events):
    """Adds up the intervals, which have a speed and a last step."""
    if not events or not all(event["steps_per_second"] for event in events):
        return None
    seconds, before = 0.0, 0
    for event in events:
        seconds += (event["step"] - before) / event["steps_per_second"]
        before = event["step"]
    return seconds / 60


def _curve(events, *names):
    return [[event["step"], *(event[n] for n in names)] for event in events]
