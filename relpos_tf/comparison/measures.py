"""What a run's metrics.jsonl says of its training."""

import math
import statistics
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any


def of_training(events: Sequence[dict], last_step: int) -> dict[str, Any]:
    """Sums up the events of a run.

    Args:
        events: of metrics.jsonl. Those of earlier versions say less.
        last_step: int. What comes later does not count.

    Returns:
        dict of `steps_per_second` and `tokens_per_second`, source and target,
        medians over the intervals, so that a pause of the machine does not
        count; `minutes`, without evaluations; `target_tokens`, all that were
        trained on; `peak_memory_mb`; each None where it is not known; and
        `learning_curve`: `train`, `[step, loss]`, and `dev`, `[step, loss,
        bleu]`.
    """
    events = [event for event in events if event["step"] <= last_step]
    train = [event for event in events if event["split"] == "train"]
    dev = [
        event
        for event in events
        if event["split"] == "dev" and "averaged" not in event
    ]
    return {
        "steps_per_second": _over(statistics.median, train, "steps_per_second"),
        "tokens_per_second": _over(
            statistics.median, train, "tokens_per_second"
        ),
        "minutes": _minutes(train),
        "target_tokens": _whole(_over(sum, train, "target_tokens")),
        "peak_memory_mb": _over(max, train, "peak_memory_mb"),
        "learning_curve": {
            "train": _points(train, "loss"),
            "dev": _points(dev, "loss", "bleu"),
        },
    }


def finite(value: Any) -> Any:
    """Returns a value as JSON can hold it: numbers that are none are None.

    Example:

    >>> finite({"loss": float("nan"), "steps": [1, 2.5]})
    {'loss': None, 'steps': [1, 2.5]}
    """
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def quartiles(lengths: Iterable[int]) -> list[int]:
    """Returns upper limits that put about a quarter of lines in each bucket.

    Args:
        lengths: of the lines.

    Returns:
        list of int, ascending, the last bucket's being left out.
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
        lengths: of the lines.
        limits: Upper limits, ascending.

    Returns:
        For each limit, and for what is longer than all (None), the numbers
        of its lines, from 0.
    """
    found = [(limit, []) for limit in [*limits, None]]
    for number, length in enumerate(lengths):
        place = next(i for i, (u, _) in enumerate(found) if _holds(u, length))
        found[place][1].append(number)
    return found


def spread_out(lengths: Sequence[int], number: int) -> list[int]:
    """Returns the numbers of some lines, from the shortest to the longest.

    Always the same ones: the middles of as many equal parts of the lines,
    ordered by length.
    """
    order = sorted(range(len(lengths)), key=lambda i: (lengths[i], i))
    number = min(number, len(order))
    return [
        order[(2 * n + 1) * len(order) // (2 * number)] for n in range(number)
    ]


def _holds(limit, length):
    return limit is None or length <= limit


def _over(function, events, name):
    """Applies a function to a field, unless it is missing somewhere."""
    values = [event.get(name) for event in events]
    return function(values) if values and None not in values else None


def _whole(number):
    return None if number is None else round(number)


def _minutes(events):
    """Adds up the intervals; each tells its speed and its last step."""
    if not events or not all(event["steps_per_second"] for event in events):
        return None
    seconds, before = 0.0, 0
    for event in events:
        seconds += (event["step"] - before) / event["steps_per_second"]
        before = event["step"]
    return seconds / 60


def _points(events, *names):
    return [[event["step"], *(event.get(n) for n in names)] for event in events]
