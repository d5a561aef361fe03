"""The report as files, report.html and report.json, and as a short table.

report.html is one page, readable offline: `templates/report.html`. All text is
escaped, because a translation may hold anything.
"""

import base64
import csv
import io
import json
import pathlib
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from relpos_tf.comparison import figures
from relpos_tf.comparison import pairwise
from relpos_tf.comparison import two_way
from relpos_tf.utils import extras
from relpos_tf.utils import files
from relpos_tf.utils import terminal

# Values of a summary beside its measures: the head of the column, decimals.
_COLUMNS = {
    "length_ratio_mean": ("length ratio", 3),
    "brevity_penalty_mean": ("brevity penalty", 3),
    "loss_mean": ("loss", 4),
    "exact_match_mean": ("exact match, %", 2),
    "steps_per_second": ("steps/s", 2),
}
_FILES_ONLY = {"chrF++", "TER", "brevity penalty"}  # Terminals are narrow.
_TEMPLATES = pathlib.Path(__file__).parent / "templates"
_MISSING = "–"


def paths(folder: pathlib.Path) -> list[pathlib.Path]:
    """Returns the paths of what `write` writes; the last is a folder."""
    return [folder / "report.html", folder / "report.json", folder / "paper"]


def write(report: Mapping[str, Any], folder: pathlib.Path) -> None:
    """Writes the files, each whole or not at all.

    Args:
        report: What `content.make` returned.
        folder: Gets the files. It is made if it is missing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    content = json.dumps(report, indent=2, ensure_ascii=False, allow_nan=False)
    *pages, paper = paths(folder)
    texts = dict(zip(pages, (page(report), f"{content}\n"), strict=True))
    texts |= {paper / name: text for name, text in _of_paper(report).items()}
    paper.mkdir(exist_ok=True)
    for path, text in texts.items():
        files.write(path, text.encode("utf-8", errors="replace"))


def _of_paper(report: Mapping[str, Any]) -> dict[str, str]:
    """Returns the files for a paper: tables, figures and the set-up."""
    import tabulate  # comes with sacreBLEU

    found = {"setup.txt": f"{report['setup']}\n"}
    tables = {"scores": scores(report, report["summary"])}
    tables["differences"] = differences(report)
    for name, (head, *rows) in tables.items():
        content = io.StringIO()
        csv.writer(content, lineterminator="\n").writerows([head, *rows])
        found[f"{name}.csv"] = content.getvalue()
        latex = tabulate.tabulate(
            rows, head, tablefmt="latex_booktabs", disable_numparse=True
        )
        found[f"{name}.tex"] = f"{latex}\n"
    if figures.is_available():
        for name, drawn in _figures(report).items():
            for number, picture in enumerate(filter(None, drawn), 1):
                found[f"{name}-{number}.svg"] = picture.svg
    return found


def page(report: Mapping[str, Any]) -> str:
    """Returns the dict of report.json as the text of an HTML file."""
    with extras.imports("translate", "the report"):
        import jinja2
        import markupsafe

    def finalize(value):
        # What the template made is whole already.
        if isinstance(value, markupsafe.Markup):
            return value
        if value in (None, ""):
            return _MISSING
        text = str(value).encode("utf-8", errors="replace").decode()
        return terminal.printable(text)

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {
        "number": number,
        "with_spread": with_spread,
        "signed": signed,
        "base64": lambda text: base64.b64encode(text.encode()).decode(),
        "p": lambda value: None if value is None else pairwise.format_p(value),
    }
    return environment.get_template("report.html").render(
        report,
        drawn=_figures(report) if figures.is_available() else None,
        how_to_install=figures.HOW_TO_INSTALL,
        level=two_way.LEVEL,
        scores=lambda summary: scores(report, summary),
    )


def table(report: Mapping[str, Any]) -> str:
    """Returns the scores and the verdict as lines for a terminal."""
    import tabulate  # comes with sacreBLEU

    def aligned(name, summary):
        (_, *head), *rows = scores(report, summary)
        shown = [0] + [i for i, x in enumerate(head, 1) if x not in _FILES_ONLY]
        text = tabulate.tabulate(
            [[row[i] for i in shown] for row in rows],
            [name, *(head[i - 1].replace(" ", "\n", 1) for i in shown[1:])],
            tablefmt="plain",
            disable_numparse=True,
            colalign=("left", *["right"] * (len(shown) - 1)),
        )
        return f"{text}\n\n"

    text = aligned("", report["summary"])
    for one in report["further_test_sets"]:
        text += aligned(one["name"], one["summary"])
    return f"{text}{report['verdict']}\n"


def scores(
    report: Mapping[str, Any], summary: Sequence[Mapping[str, Any]]
) -> list[list[str]]:
    """Returns the head and the rows of a table of means, best BLEU first.

    Args:
        report: The report.
        summary: Its own, or that of a further test set, which has no more than
            the measures.
    """
    columns = {
        f"{one['field']}_mean": (one["name"], one["digits"])
        for one in report["measures"]
    } | _COLUMNS
    columns = {name: columns[name] for name in columns if name in summary[0]}
    return [
        ["label", *(title for title, _ in columns.values())],
        *(
            [
                row["label"],
                *(
                    with_spread(row[name], row.get(_spread_of(name)), digits)
                    for name, (_, digits) in columns.items()
                ),
            ]
            for row in sorted(summary, key=lambda row: -row["bleu_mean"])
        ),
    ]


def differences(report: Mapping[str, Any]) -> list[list[str]]:
    """Returns the head and the rows of a table of all comparisons."""
    head = "a", "b", "measure", "of a", "of b", "difference", "95 %", "p, Holm"
    return [
        list(head),
        *(
            [
                pair["a"],
                pair["b"],
                pair["measure"],
                number(pair["score_a"], digits),
                number(pair["score_b"], digits),
                signed(pair["score_a"] - pair["score_b"], digits),
                _MISSING
                if pair["low"] is None
                else " to ".join(
                    signed(pair[end], digits) for end in ("low", "high")
                ),
                _MISSING
                if pair["p_corrected"] is None
                else pairwise.format_p(pair["p_corrected"]),
            ]
            for own in (report["pairs"], *report["pairs_by_measure"].values())
            for pair in own
            for digits in [pair["digits"]]
        ),
    ]


def number(value: float | None, digits: int = 0) -> str:
    """Writes a number with its decimals; a dash for None.

    Example:
    >>> number(12345), number(0.5, 2), number(None)
    ('12,345', '0.50', '–')
    """
    return _MISSING if value is None else f"{value:,.{digits}f}"


def signed(value: float, digits: int) -> str:
    """Writes a difference with its sign and decimals.

    Example:
    >>> signed(0.0132, 4)
    '+0.0132'
    """
    return f"{value:+.{digits}f}"


def with_spread(mean: float | None, spread: float | None, digits: int) -> str:
    """Writes mean and spread; only the mean if the spread is missing.

    Example:
    >>> with_spread(35.5, 0.25, 2), with_spread(35.5, None, 2)
    ('35.50 ± 0.25', '35.50')
    """
    text = number(mean, digits)
    return text if spread is None else f"{text} ± {number(spread, digits)}"


def _figures(report) -> dict[str, list[figures.Picture | None]]:
    """Returns the figures of each section."""
    curves = (
        ("dev", 2, "dev BLEU"),
        ("dev", 1, "dev loss"),
        ("train", 1, "training loss"),
    )
    return {
        "scores": [figures.scores(report)],
        "lengths": [figures.scores_by_length(report)],
        "curves": [figures.learning_curve(report, *curve) for curve in curves],
    }


def _spread_of(name: str) -> str:
    """Returns the name of the spread that belongs to a mean."""
    return name.removesuffix("_mean") + "_spread"
