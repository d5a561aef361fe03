"""The report of a comparison as one HTML file, readable offline.

The report is the dict of report.json. Whatever is missing in it is a dash, or
left out. All text is escaped: a translation may hold anything.
"""

import pathlib
from typing import Any

from relpos_tf.comparison import attention_figures
from relpos_tf.comparison import figures
from relpos_tf.comparison import html_parts as parts
from relpos_tf.comparison import plots
from relpos_tf.comparison import report_parts
from relpos_tf.comparison import report_tables
from relpos_tf.utils import files


def write(report: report_parts.Report, path: str | pathlib.Path) -> None:
    """Writes a report as an HTML file, whole or not at all.

    Args:
        report: dict, as in report.json. `verdict`, a sentence, stands below
            the title if it is there.
        path: The file.
    """
    files.write(path, render(report))


def render(report: report_parts.Report) -> str:
    """Returns a report as the text of an HTML file."""
    report = report_parts.complete(report)
    has_figures = plots.is_available()
    title = report["title"] or "Comparison"
    return parts.page(
        title,
        _head(report, title, has_figures)
        + parts.section(
            "Results",
            report_tables.summary(report),
            report_tables.signatures(report),
            _figures(figures.scores(report)) if has_figures else "",
            report_tables.pairs(report),
        )
        + parts.section(
            "By length",
            parts.beside(
                report_tables.by_length(report),
                _figures(figures.scores_by_length(report))
                if has_figures
                else "",
            ),
        )
        + (_learning(report) if has_figures else "")
        + parts.section("What differs", report_tables.difference(report))
        + _samples(report)
        + (_attention(report) if has_figures else "")
        + parts.section("Runs", report_tables.runs(report))
        + _origin(report),
    )


def _head(report, title, has_figures) -> str:
    steps = _all_of(report, "train_steps")
    seeds = _all_of(report, "seed")
    facts = [
        f"Problem {report['problem']}" if report["problem"] else "",
        f"scored on the {report['split']} split" if report["split"] else "",
        f"{' or '.join(f'{n:,}' for n in steps)} steps" if steps else "",
        f"seeds {', '.join(map(str, seeds))}" if seeds else "",
    ]
    warnings = "".join(
        f"<li>{parts.text(words)}</li>\n" for words in report["warnings"]
    )
    if warnings:
        warnings = (
            '<div class="warnings" role="note">\n<strong>Warnings</strong>\n'
            f"<ul>\n{warnings}</ul>\n</div>\n"
        )
    missing = ""
    if not has_figures:
        missing = (
            "The figures are missing, because matplotlib is not installed: "
            f"{plots.HOW_TO_INSTALL}. Then make the report again."
        )
    return (
        f"<header>\n<h1>{parts.text(title)}</h1>\n"
        + parts.paragraph(report["verdict"], "verdict")
        + parts.paragraph("; ".join(filter(None, facts)), "small")
        + "</header>\n"
        + warnings
        + parts.paragraph(missing, "small")
    )


def _all_of(report, name) -> list[Any]:
    """Returns the different values of a whole number, ascending."""
    return sorted({run.get(name) for run in report["runs"]} - {None})


def _learning(report) -> str:
    drawn = [
        figures.learning_curve(report, split, column, axis)
        for split, column, axis in (
            ("dev", 2, "dev BLEU"),
            ("dev", 1, "dev loss"),
            ("train", 1, "training loss"),
        )
    ]
    return parts.section("Learning curves", _figures(*drawn))


def _samples(report) -> str:
    found = []
    for number, sample in enumerate(report["samples"], 1):
        reference = sample.get("reference")
        pairs = [("source", sample.get("source")), ("reference", reference)]
        for label, words in (sample.get("translations") or {}).items():
            is_same = bool(words) and words == reference
            pairs.append((f"{label} =" if is_same else label, words))
        found.append(
            f'<article class="sample">\n<h3>{number}</h3>\n'
            f"{parts.definitions(pairs)}</article>\n"
        )
    if not found:
        return ""
    note = parts.paragraph(
        "Lines of several lengths, translated by the first seed of each "
        "label. A label with = gave the reference.",
        "small",
    )
    return parts.section("Translations", note, *found)


def _attention(report) -> str:
    described = {
        label: report["attention"][label]
        for label in report["labels"]
        if report["attention"].get(label)
    }
    highest = max(
        map(attention_figures.highest_mean, described.values()), default=0.0
    )
    drawn = [
        attention_figures.by_distance(one, label, highest)
        for label, one in described.items()
    ] + [
        attention_figures.table_norms(one, label)
        for label, one in described.items()
    ]
    maps = []
    for label, one in described.items():
        pictures = [
            attention_figures.maps(one, label, stack)
            for stack in ("encoder", "decoder", "cross")
        ]
        if any(pictures):
            sentence = [
                ("source", one.get("source")),
                ("translation", one.get("translation")),
            ]
            maps.append(
                "<details>\n<summary>All weights of one sentence: "
                f"{parts.text(label)}</summary>\n"
                f"{parts.definitions(sentence)}{_figures(*pictures)}"
                "</details>\n"
            )
    return parts.section("Where attention looks", _figures(*drawn), *maps)


def _origin(report) -> str:
    command = ""
    if report["command"]:
        command = f"<pre>{parts.text(report['command'])}</pre>\n"
    versions = ", ".join(
        f"{name} {version}" for name, version in report["versions"].items()
    )
    return parts.section(
        "How it was made", command, parts.paragraph(versions, "small")
    )


def _figures(*pictures: figures.Picture | None) -> str:
    """Returns figures beside one another where there is room."""
    drawn = "".join(parts.figure(*one) for one in pictures if one)
    return f'<div class="figures">\n{drawn}</div>\n' if drawn else ""
