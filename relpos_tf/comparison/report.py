"""The report as files, report.html and report.json, and as a short table.

report.html is one page, readable offline: `templates/report.html`. All text is
escaped, because a translation may hold anything.
"""

import base64
import json
import pathlib
from collections.abc import Mapping
from typing import Any

from relpos_tf.comparison import figures
from relpos_tf.comparison import pairwise
from relpos_tf.comparison import two_way
from relpos_tf.utils import extras
from relpos_tf.utils import files
from relpos_tf.utils import terminal

_TEMPLATES = pathlib.Path(__file__).parent / "templates"
_MISSING = "–"


def paths(folder: pathlib.Path) -> list[pathlib.Path]:
    """Returns the paths of the files that `write` writes."""
    return [folder / "report.html", folder / "report.json"]


def write(report: Mapping[str, Any], folder: pathlib.Path) -> None:
    """Writes the files, each whole or not at all.

    Args:
        report: What `content.make` returned.
        folder: Gets the files. It is made if it is missing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    content = json.dumps(report, indent=2, ensure_ascii=False, allow_nan=False)
    texts = page(report), f"{content}\n"
    for path, text in zip(paths(folder), texts, strict=True):
        files.write(path, text.encode("utf-8", errors="replace"))


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
        "signed": "{:+.2f}".format,
        "base64": lambda text: base64.b64encode(text.encode()).decode(),
        "p": lambda value: None if value is None else pairwise.format_p(value),
    }
    return environment.get_template("report.html").render(
        report,
        drawn=_figures(report) if figures.is_available() else None,
        how_to_install=figures.HOW_TO_INSTALL,
        level=two_way.LEVEL,
        best_first=_from_the_best(report["summary"]),
        has_tokenized=_has_tokenized(report),
    )


def table(report: Mapping[str, Any]) -> str:
    """Returns the scores and the verdict as lines for a terminal."""
    import tabulate  # comes with sacreBLEU

    def aligned(head, rows):
        text = tabulate.tabulate(
            rows,
            head,
            tablefmt="plain",
            disable_numparse=True,
            colalign=("left", *["right"] * (len(head) - 1)),
        )
        return f"{text}\n\n"

    names = {"bleu": "BLEU", "chrf": "chrF"}
    if _has_tokenized(report):
        names["tokenized_bleu"] = "tokenized BLEU"

    def means(row):
        return [
            with_spread(row[f"{x}_mean"], row[f"{x}_spread"], 2) for x in names
        ]

    text = aligned(
        ["", *names.values(), "loss", "exact match, %", "steps/s"],
        [
            [
                row["label"],
                *means(row),
                with_spread(row["loss_mean"], row["loss_spread"], 4),
                number(row["exact_match_mean"], 2),
                number(row["steps_per_second"], 2),
            ]
            for row in _from_the_best(report["summary"])
        ],
    )
    for one in report["further_test_sets"]:
        rows = [
            [row["label"], *means(row)]
            for row in _from_the_best(one["summary"])
        ]
        text += aligned([one["name"], *names.values()], rows)
    return f"{text}{report['verdict']}\n"


def number(value: float | None, digits: int = 0) -> str:
    """Writes a number with its decimals; a dash for None.

    Example:
    >>> number(12345), number(0.5, 2), number(None)
    ('12,345', '0.50', '–')
    """
    return _MISSING if value is None else f"{value:,.{digits}f}"


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


def _has_tokenized(report) -> bool:
    return any(run["tokenized_bleu"] is not None for run in report["runs"])


def _from_the_best(summary) -> list[Any]:
    """Returns the rows of a summary from the highest BLEU on."""
    return sorted(summary, key=lambda row: -row["bleu_mean"])
