"""The tables of a comparison's report, as HTML."""

from collections.abc import Mapping
from typing import Any

from relpos_tf.comparison import html_parts as parts
from relpos_tf.comparison import report_parts

_RUN_NUMBERS = {  # and their decimals
    "train_steps": 0,
    "target_tokens": 0,
    "parameters": 0,
    "loss": 4,
    "bleu": 2,
    "chrf": 2,
    "exact_match": 2,
    "beam_size": 0,
    "alpha": 2,
    "steps_per_second": 2,
    "tokens_per_second": 0,
    "peak_memory_mb": 0,
    "minutes": 1,
}


def summary(report: report_parts.Report) -> str:
    """Returns what is known of each label."""
    rows = []
    for line in report["summary"]:
        seeds = line.get("seeds")
        scores = (
            parts.with_spread(
                line.get(f"{name}_mean"), line.get(f"{name}_spread"), digits
            )
            for name, digits in (("bleu", 2), ("chrf", 2), ("loss", 4))
        )
        speeds = (
            parts.number(line.get(f"{name}_per_second"), digits)
            + _in_brackets(line.get(f"{name}_ratio"), 2)
            for name, digits in (("steps", 2), ("tokens", 0))
        )
        rows.append(
            [
                line.get("label"),
                len(seeds) if isinstance(seeds, list) else seeds,
                parts.number(line.get("parameters")),
                *scores,
                parts.number(line.get("exact_match_mean"), 2),
                *speeds,
                parts.number(line.get("peak_memory_mb")),
            ]
        )
    return parts.table(
        "Mean over seeds ± standard deviation. Loss in nats per target token. "
        "In brackets: speed as a multiple of the first label's.",
        (
            "label",
            "seeds",
            "parameters",
            "BLEU",
            "chrF",
            "loss",
            "exact match, %",
            "steps/s",
            "tokens/s",
            "peak memory, MB",
        ),
        rows,
    )


def signatures(report: report_parts.Report) -> str:
    """Returns how the scores were computed; no score goes without it."""
    lines = []
    for name, field in (("BLEU", "bleu"), ("chrF", "chrf")):
        known = {run.get(f"{field}_signature") for run in report["runs"]}
        known = sorted(known - {None, ""})
        if known:
            lines.append(f"{name}: {' or '.join(known)}")
    return parts.paragraph("; ".join(lines), "small")


def pairs(report: report_parts.Report) -> str:
    """Returns the differences, and how probable they are by chance."""
    rows = [
        [
            pair.get("a"),
            pair.get("b"),
            parts.number(pair.get("bleu_a"), 2),
            parts.number(pair.get("bleu_b"), 2),
            _difference(pair),
            _p_value(pair.get("p_value")),
            _p_value(pair.get("p_value_seeds")),
            _by_seed(pair),
        ]
        for pair in report["pairs"]
    ]
    tests = {pair.get("test") for pair in report["pairs"]} - {None, ""}
    table = parts.table(
        "Pairs. In brackets: where the difference lies with a probability of "
        "95 %. p: how probable one as large is if both are equally good. The "
        "brackets and p over sentences measure what other test sentences could "
        "change; p over seeds, a t-test, what another training could change. "
        "One is called better only if both p are small enough, and never with "
        "one seed.",
        (
            "a",
            "b",
            "BLEU of a",
            "BLEU of b",
            "a - b",
            "p, sentences",
            "p, seeds",
            "by seed",
        ),
        rows,
        words=[1],
    )
    named = f"p over sentences: {' or '.join(sorted(tests))}." if tests else ""
    return table + parts.paragraph(named, "small")


def by_length(report: report_parts.Report) -> str:
    """Returns the scores of each label by the length of the source."""
    buckets = report_parts.length_buckets(report)
    rows = []
    for n, (up_to, lines) in enumerate(buckets):
        cells = (
            [
                report_parts.of_length(report, label, up_to, name)
                for name in ("bleu", "exact_match")
            ]
            for label in report["labels"]
        )
        rows.append(
            [
                report_parts.bucket_name(buckets, n),
                parts.number(lines),
                *(
                    parts.number(bleu, 2) + _in_brackets(exact, 1)
                    for bleu, exact in cells
                ),
            ]
        )
    return parts.table(
        "BLEU by length of the source in pieces, EOS included, the mean over "
        "seeds. In brackets: exact match, %.",
        ("pieces", "lines", *report["labels"]),
        rows,
    )


def difference(report: report_parts.Report) -> str:
    """Returns the hyper-parameters that are not the same for all labels."""
    rows = [
        [field, *(_value(values.get(label)) for label in report["labels"])]
        for field, values in report["hparams_diff"].items()
    ]
    return parts.table(
        "Every hyper-parameter that is not the same for all labels.",
        ("hparam", *report["labels"]),
        rows,
        words=range(1, len(report["labels"]) + 1),
    )


def runs(report: report_parts.Report) -> str:
    """Returns every run, with the names of report.json."""
    before, after = ("label", "seed", "hparams_set", "hparams"), ("output_dir",)
    rows = [
        [
            *(run.get(name) for name in before),
            *(parts.number(run.get(n), d) for n, d in _RUN_NUMBERS.items()),
            *(run.get(name) for name in after),
        ]
        for run in report["runs"]
    ]
    head = [*before, *_RUN_NUMBERS, *after]
    return parts.table(
        "Every run, with the names of report.json.",
        head,
        rows,
        words=[2, 3, len(head) - 1],
    )


def _in_brackets(value: Any, digits: int) -> str:
    if not report_parts.is_number(value):
        return ""
    return f" ({parts.number(value, digits)})"


def _by_seed(pair: Mapping[str, Any]) -> str | None:
    """Returns BLEU of a minus that of b for each seed that both have."""
    values = report_parts.numbers(pair.get("by_seed") or [])
    return ", ".join(f"{value:+.2f}" for value in values) or None


def _difference(pair: Mapping[str, Any]) -> str | None:
    """Returns BLEU of a minus that of b, with the interval if it is known."""
    difference = pair.get("difference")
    scores = [pair.get("bleu_a"), pair.get("bleu_b")]
    if difference is None and all(map(report_parts.is_number, scores)):
        difference = scores[0] - scores[1]
    if not report_parts.is_number(difference):
        return None
    ends = [pair.get(f"difference_{end}") for end in ("low", "high")]
    if not all(map(report_parts.is_number, ends)):
        return f"{difference:+.2f}"
    return f"{difference:+.2f} ({ends[0]:+.2f} to {ends[1]:+.2f})"


def _p_value(value: Any) -> str:
    if not report_parts.is_number(value):
        return parts.NOTHING
    return "< 0.0001" if value < 0.00005 else f"{value:.4f}"


def _value(value: Any) -> Any:
    """Returns a hyper-parameter as one writes it in --hparams."""
    return str(value).lower() if isinstance(value, bool) else value
