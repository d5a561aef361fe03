"""The report as files, report.html and report.json, and as a short table.

report.html is one page, readable offline: `templates/report.html`. All text is
escaped, because a translation may hold anything.
"""

import base64
import csv
import functools
import io
import itertools
import json
import pathlib
import re
from collections.abc import Container
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import tabulate  # comes with sacreBLEU

from relpos_tf.comparison import figures
from relpos_tf.comparison import pairwise
from relpos_tf.comparison import two_way
from relpos_tf.utils import extras
from relpos_tf.utils import files
from relpos_tf.utils import terminal

# Means of a summary beside its measures: the head of the column, decimals.
_COLUMNS = {
    "length_ratio": ("length ratio", 3),
    "brevity_penalty": ("brevity penalty", 3),
    "loss": ("loss", 3),
    "exact_match": ("exact match, %", 2),
    "steps_per_second": ("steps/s", 2),
}
# A terminal may have 80 columns.
_FILES_ONLY = {"chrF++", "TER", "brevity penalty", "steps/s"}
# Files for a paper, of which an earlier report may have more.
_OF_PAPER = re.compile(
    r"(scores|differences)(-test_\w+)?\.(csv|tex)|"
    r"(scores|lengths|curves)-\d\.svg"
)
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
    for path in paper.iterdir():
        if path not in texts and _OF_PAPER.fullmatch(path.name):
            path.unlink()


def _of_paper(report: Mapping[str, Any]) -> dict[str, str]:
    """Returns the files for a paper: tables, figures and the set-up."""
    found = {"setup.txt": f"{report['setup']}\n"}
    pairs = itertools.chain(*report["pairs_by_measure"].values())
    tables = {
        "scores": scores(report, report["summary"]),
        "differences": differences([*report["pairs"], *pairs]),
    }
    for one in report["further_test_sets"]:
        name = one["name"]
        tables[f"scores-{name}"] = scores(report, one["summary"])
        tables[f"differences-{name}"] = differences(one["pairs"])
    for name, table in tables.items():
        if len(table) == 1:  # no pairs, and no table of LaTeX
            continue
        table = [[*map(terminal.printable, row)] for row in table]
        content = io.StringIO()
        csv.writer(content, lineterminator="\n").writerows(table)
        found[f"{name}.csv"] = content.getvalue()
        latex = tabulate.tabulate(
            table,
            "firstrow",
            "latex_booktabs",
            disable_numparse=True,
            colalign=("left", *["right"] * (len(table[0]) - 1)),
        )
        # Behind the end of a row, "[" and "*" would be LaTeX's.
        found[f"{name}.tex"] = re.sub(r"(?m)^ *(?=[\[*])", "{}", latex) + "\n"
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
        "base64": lambda text: base64.b64encode(text.encode()).decode(),
    }
    return environment.get_template("report.html").render(
        report,
        drawn=_figures(report),
        how_to_install=figures.HOW_TO_INSTALL,
        level=two_way.LEVEL,
        scores=functools.partial(scores, report),
        differences=differences,
    )


def table(report: Mapping[str, Any]) -> str:
    """Returns the scores as lines for a terminal."""
    tables = {"": report["summary"]}
    tables |= {x["name"]: x["summary"] for x in report["further_test_sets"]}
    text = ""
    for name, summary in tables.items():
        (_, *head), *rows = scores(report, summary, hidden=_FILES_ONLY)
        text += tabulate.tabulate(
            [[cell.replace(" ± ", "±") for cell in row] for row in rows],
            [name, *(title.replace(" ", "\n", 1) for title in head)],
            tablefmt="plain",
            disable_numparse=True,
            colalign=("left", *["right"] * len(head)),
        )
        text += "\n\n"
    return text


def scores(
    report: Mapping[str, Any],
    summary: Sequence[Mapping[str, Any]],
    hidden: Container[str] = (),
) -> list[list[str]]:
    """Returns the head and the rows of a table of means, best BLEU first.

    Args:
        report: The report.
        summary: Its own, or that of a further test set, which has no more than
            the measures.
        hidden: Heads of columns to leave out.
    """
    fields = {x["field"]: (x["name"], x["digits"]) for x in report["measures"]}
    fields |= _COLUMNS
    columns = [
        (field, title, digits)
        for field, (title, digits) in fields.items()
        if f"{field}_mean" in summary[0] and title not in hidden
    ]
    table = [["label", *(title for _, title, _ in columns)]]
    for row in sorted(summary, key=lambda row: -row["bleu_mean"]):
        cells = (
            with_spread(
                row[f"{field}_mean"], row.get(f"{field}_spread"), digits
            )
            for field, _, digits in columns
        )
        table.append([row["label"], *cells])
    return table


def differences(pairs: Iterable[Mapping[str, Any]]) -> list[list[str]]:
    """Returns the head and the rows of a table of comparisons."""

    def signed(pair, *values):
        if None in values:
            return [_MISSING]
        return [f"{value:+.{pair['digits']}f}" for value in values]

    head = "a,b,measure,of a,of b,difference,95 %,p (Holm),95 % of sentences"
    return [
        [*head.split(","), "by seed"],
        *(
            [
                *(pair[name] for name in ("a", "b", "measure")),
                *(
                    number(pair[x], pair["digits"])
                    for x in ("score_a", "score_b")
                ),
                *signed(pair, pair["score_a"] - pair["score_b"]),
                " to ".join(signed(pair, pair["low"], pair["high"])),
                pairwise.format_p(pair["p_corrected"]),
                " to ".join(
                    signed(pair, pair["sentences_low"], pair["sentences_high"])
                ),
                ", ".join(signed(pair, *pair["by_seed"])),
            ]
            for pair in pairs
        ),
    ]


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
    if not figures.is_available():
        return {}
    curve = functools.partial(figures.learning_curve, report)
    return {
        "scores": [figures.scores(report)],
        "lengths": [figures.scores_by_length(report)],
        "curves": [
            curve("dev", 2, "dev BLEU"),
            curve("dev", 1, "dev loss"),
            curve("train", 1, "training loss"),
        ],
    }
