"""report.md: the report as text with tables."""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from relpos_tf.comparison import pairs
from relpos_tf.comparison import significance
from relpos_tf.comparison import variants

NOTHING = "-"


def render(report: Mapping[str, Any]) -> str:
    """Returns report.json's content as Markdown."""
    parts = [
        f"# {escape(report['title'])}",
        f"**{escape(report['verdict'])}**",
        _conditions(report),
        *_warnings(report["warnings"]),
        "## Scores",
        _summary(report),
        "Mean over the seeds, ± the standard deviation between them. Loss in "
        "nats per target token, given the reference's own past. "
        + _signed(report),
        "## Cost",
        _cost(report),
        "Medians over the run, evaluations left out; in brackets against the "
        "first row. Peak memory is the whole process's.",
        *_pairs(report["pairs"]),
        "## What differs",
        _differences(report),
        "## BLEU by length of the source",
        _by_length(report),
        "Mean over the seeds, in brackets exact match in %. Length in pieces "
        f"with the end of the sentence; {NOTHING}: no line has four words.",
        *_samples(report),
        "## Runs",
        _runs(report["runs"]),
        "## How it was made",
        _origin(report),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def short_table(report: Mapping[str, Any]) -> str:
    """Returns the scores as lines for a terminal."""
    rows = [
        (
            row["label"],
            _plus_minus(row, "bleu", 2),
            _plus_minus(row, "chrf", 2),
            _plus_minus(row, "loss", 3),
            number(row["exact_match_mean"], 2),
            number(row["steps_per_second"], 2),
        )
        for row in report["summary"]
    ]
    head = ("", "BLEU", "chrF", "loss", "exact match %", "steps/s")
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (head, *rows)
    ]
    return "\n".join([*lines, "", report["verdict"]]) + "\n"


def number(value: float | None, digits: int) -> str:
    """Writes a number, or a dash.

    Example:

    >>> number(1234.567, 1), number(None, 2)
    ('1,234.6', '-')
    """
    return NOTHING if value is None else f"{value:,.{digits}f}"


def escape(text: Any) -> str:
    """Writes text so that Markdown, and HTML in it, leave it as it is.

    Example:

    >>> escape("a|b <i> *c*")
    'a\\\\|b &lt;i> \\\\*c\\\\*'
    """
    text = " ".join(str(text).split()).replace("\\", "\\\\")
    for sign in "|*_`[]#~":
        text = text.replace(sign, f"\\{sign}")
    return text.replace("&", "&amp;").replace("<", "&lt;")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a table; cells after the first are aligned to the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _conditions(report):
    steps = sorted({row["train_steps"] for row in report["runs"]})
    lines = sum(row["lines"] for row in report["runs"][0]["bleu_by_length"])
    listed = " and ".join(f"{n:,}" for n in steps)
    return (
        f"{escape(report['problem'])}, {report['split']} split, {lines:,} "
        f"lines; {listed} updates each."
    )


def _warnings(warnings):
    if not warnings:
        return []
    return ["Mind:", "\n".join(f"- {escape(line)}" for line in warnings)]


def _summary(report):
    head = ["", "seeds", "parameters", "BLEU", "chrF", "loss", "exact match %"]
    rows = [
        [
            escape(row["label"]),
            str(len(row["seeds"])),
            number(row["parameters"], 0),
            _plus_minus(row, "bleu", 2),
            _plus_minus(row, "chrf", 2),
            _plus_minus(row, "loss", 3),
            number(row["exact_match_mean"], 2),
        ]
        for row in report["summary"]
    ]
    return table(head, rows)


def _signed(report):
    """Returns the signatures of the scores."""
    found = []
    for name, key in (("BLEU", "bleu"), ("chrF", "chrf")):
        signatures = {row[f"{key}_signature"] for row in report["runs"]}
        found.append(f"{name}: `{'`, `'.join(sorted(signatures))}`.")
    return " ".join(found)


def _cost(report):
    head = ["", "steps/s", "tokens/s", "peak memory, MiB"]
    rows = [
        [
            escape(row["label"]),
            _with_ratio(row, "steps", 2),
            _with_ratio(row, "tokens", 0),
            number(row["peak_memory_mb"], 0),
        ]
        for row in report["summary"]
    ]
    return table(head, rows)


def _with_ratio(row, name, digits):
    value, ratio = row[f"{name}_per_second"], row[f"{name}_ratio"]
    brackets = "" if ratio is None else f" ({ratio:.2f})"
    return number(value, digits) + brackets


def _plus_minus(row, name, digits):
    spread = row[f"{name}_spread"]
    more = "" if spread is None else f" ± {number(spread, digits)}"
    return number(row[f"{name}_mean"], digits) + more


def _pairs(found):
    if not found:
        return []
    head = ["", "BLEU", "against", "difference, 95 %", "p, sentences"]
    head += ["p, seeds", "seed by seed"]
    rows = [
        [
            f"{escape(pair['a'])} against {escape(pair['b'])}",
            number(pair["bleu_a"], 2),
            number(pair["bleu_b"], 2),
            _interval(pair),
            _p_value(pair["p_value"]),
            _p_value(pair["p_value_seeds"]),
            ", ".join(f"{value:+.2f}" for value in pair["by_seed"]) or NOTHING,
        ]
        for pair in found
    ]
    level = pairs.format_p(found[0]["p_below"])
    divided = f" (.05 divided by {len(found)} pairs)" * (len(found) > 1)
    return [
        "## Differences",
        table(head, rows),
        f"p, sentences: {found[0]['test']}; a sentence's translations of all "
        "seeds change sides together. The interval: paired bootstrap of "
        f"sentences, {significance.RESAMPLES:,} drawings, of the BLEU of all "
        "seeds together. Both say what other test sentences could change. p, "
        "seeds: a t-test over the differences seed by seed, which says what "
        "another training could change; one seed says nothing. One is called "
        f"better only if both p are below {level}{divided}: equal ones are, "
        "at most 5 times in 100.",
    ]


def _interval(pair):
    if pair["difference"] is None:
        return NOTHING
    low, high = pair["difference_low"], pair["difference_high"]
    return f"{pair['difference']:+.2f} ({low:+.2f} to {high:+.2f})"


def _p_value(value):
    return NOTHING if value is None else pairs.format_p(value)


def _differences(report):
    differences = report["hparams_diff"]
    if not differences:
        return "Nothing, in the hparams."
    head = ["", *map(escape, report["labels"])]
    rows = [
        [
            f"`{name}`",
            *(escape(variants.in_words(values[k])) for k in report["labels"]),
        ]
        for name, values in differences.items()
    ]
    return table(head, rows)


def _by_length(report):
    head = ["", "lines", *map(escape, report["labels"])]
    rows, before = [], 0
    for n, bucket in enumerate(report["runs"][0]["bleu_by_length"]):
        limit = bucket["up_to"]
        name = f"{before + 1} to {limit}" if limit else f"above {before}"
        cells = (_of_length(report, n, label) for label in report["labels"])
        rows.append([name, str(bucket["lines"]), *cells])
        before = limit
    return table(head, rows)


def _of_length(report, n, label):
    """Returns the scores of a label in a bucket."""
    found = [
        run["bleu_by_length"][n]
        for run in report["runs"]
        if run["label"] == label
    ]
    bleu, exact = (
        significance.mean([bucket[name] for bucket in found])
        for name in ("bleu", "exact_match")
    )
    brackets = "" if exact is None else f" ({number(exact, 1)})"
    return number(bleu, 2) + brackets


def _samples(report):
    if not report["samples"]:
        return []
    found = ["## Translations", "From short to long, of the first seed."]
    for sample in report["samples"]:
        lines = [
            ("source", sample["source"]),
            ("reference", sample["reference"]),
        ]
        lines += sample["translations"].items()
        found.append(
            "\n".join(f"- {escape(k)}: {escape(text)}" for k, text in lines)
        )
    return found


def _runs(rows):
    head = ["", "seed", "updates", "target tokens", "minutes", "loss"]
    head += ["BLEU", "chrF", "exact match %", "run"]
    return table(
        head,
        [
            [
                escape(row["label"]),
                NOTHING if row["seed"] is None else str(row["seed"]),
                number(row["train_steps"], 0),
                number(row["target_tokens"], 0),
                number(row["minutes"], 1),
                number(row["loss"], 3),
                number(row["bleu"], 2),
                number(row["chrf"], 2),
                number(row["exact_match"], 2),
                f"`{row['output_dir']}`",
            ]
            for row in rows
        ],
    )


def _origin(report):
    versions = ", ".join(f"{k} {v}" for k, v in report["versions"].items())
    return f"    {report['command']}\n\nVersions: {versions}."
