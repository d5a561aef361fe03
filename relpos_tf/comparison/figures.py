"""The figures of a report, as SVG.

Only this module imports matplotlib: it is slow to import and not always
installed, so functions import it.
"""

import importlib.util
import io
import math
import statistics
import warnings
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

from relpos_tf.utils import extras

HOW_TO_INSTALL = extras.how_to_install("plots")
_GREY, _PALE = "#6b6b6b", "#e3e3e3"
# The colours of Okabe and Ito, which colour-blind people can tell apart, with
# a darker yellow.
_COLOURS = (
    "#0072b2 #d55e00 #009e73 #cc79a7 #b8860b #56b4e9 #7f3c8d #222222"
).split()
_MARKERS = "osD^vP<>"
_DASHES = "-", "--", "-.", ":"
_LONGEST_NAME = 28


class Picture(NamedTuple):
    """A figure for a page.

    Attributes:
        svg: str. The element.
        title: str. Its subject.
        caption: str. How to read it.
        alternative: str. Its content in words, for those who cannot see it.
    """

    svg: str
    title: str
    caption: str
    alternative: str


def is_available() -> bool:
    """Says whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def scores(report: Mapping[str, Any]) -> Picture:
    """Draws the BLEU of every run, and mean and spread of each label."""
    rows = sorted(report["summary"], key=lambda row: -row["bleu_mean"])

    def draw(axes):
        for place, row in enumerate(rows):
            style = _style(report, row["label"])
            values = [
                run["bleu"]
                for run in report["runs"]
                if run["label"] == row["label"]
            ]
            axes.errorbar(
                [row["bleu_mean"]],
                [place],
                xerr=row["bleu_spread"],
                color=style["color"],
                marker=style["marker"],
                capsize=4,
            )
            axes.plot(
                values,
                [place] * len(values),
                color=style["color"],
                linestyle="none",
                marker="|",
                markersize=12,
                alpha=0.6,
            )
        names = [f"{_name(x['label'])}  {x['bleu_mean']:.2f}" for x in rows]
        axes.set_yticks(range(len(rows)), names)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.locator_params(axis="x", nbins=5)

    means = "; ".join(f"{x['label']} {x['bleu_mean']:.2f}" for x in rows)
    return Picture(
        _svg(draw, 0.65 + 0.3 * len(rows), grid="x", xlabel="BLEU"),
        "BLEU of each label",
        "The mean over seeds with one standard deviation to each side, and a "
        "stroke for each seed.",
        f"BLEU: {means}.",
    )


def scores_by_length(report: Mapping[str, Any]) -> Picture:
    """Draws BLEU against the length of the source."""
    buckets = report["summary"][0]["bleu_by_length"]

    def draw(axes):
        for row in report["summary"]:
            values = [cell["bleu"] for cell in row["bleu_by_length"]]
            axes.plot(
                [math.nan if x is None else x for x in values],
                label=_name(row["label"]),
                **_style(report, row["label"]),
            )
        axes.set_xticks(
            range(len(buckets)),
            [
                (f"≤ {cell['up_to']}" if cell["up_to"] else "more")
                + f"\n({cell['lines']:,})"
                for cell in buckets
            ],
        )

    labels = {"xlabel": "pieces of the source (lines)", "ylabel": "BLEU"}
    title = "BLEU by length of the source"
    return Picture(
        _svg(draw, 2.9, report["labels"], **labels),
        title,
        "The mean over seeds. With fewer lines, more of a difference is "
        "chance.",
        f"{title}; the numbers are in the table.",
    )


def learning_curve(
    report: Mapping[str, Any], split: str, column: int, axis: str
) -> Picture | None:
    """Draws a measure of a split by training step.

    Args:
        report: The report.
        split: str. "dev" or "train".
        column: int. Of the rows of a curve: 1 loss, 2 BLEU.
        axis: str. Name of the measure.

    Returns:
        The figure, or None without such curves.
    """
    by_label: dict[str, list[dict[int, float]]] = {}
    for run in report["runs"]:
        rows = run["learning_curve"][split]
        curve = {x[0]: x[column] for x in rows if x[column] is not None}
        if curve:
            by_label.setdefault(run["label"], []).append(curve)
    if not by_label:
        return None

    def draw(axes):
        for label, curves in by_label.items():
            # At a step that a seed lacks, the mean would jump.
            steps = sorted(set.intersection(*map(set, curves)))
            means = [
                statistics.fmean(x[step] for x in curves) for step in steps
            ]
            style = _style(report, label)
            axes.plot(steps, means, label=_name(label), **style)
        axes.locator_params(axis="x", nbins=6, integer=True)
        axes.xaxis.set_major_formatter("{x:,.0f}")

    title = f"{axis} by step"
    return Picture(
        _svg(draw, 2.8, report["labels"], xlabel="step", ylabel=axis),
        f"{title[0].upper()}{title[1:]}",
        "The mean over seeds; the table of BLEU has each.",
        f"{title} of {', '.join(by_label)}.",
    )


def _svg(draw, height, labels=(), grid="y", **names) -> str:
    """Returns a figure as the text of an SVG element.

    Args:
        draw: Function that draws into axes.
        height: float. Inches of the axes.
        labels: Those that have a legend, if they are several.
        grid: str. The axis that has grid lines across.
        **names: `xlabel` and `ylabel`.
    """
    import matplotlib
    from matplotlib import figure

    settings: dict[Any, Any] = {
        "axes.edgecolor": _GREY,
        "axes.labelcolor": _GREY,
        "axes.spines.left": False,
        "axes.spines.right": False,
        "axes.spines.top": False,
        "font.size": 9,  # the smallest
        "legend.frameon": False,
        "svg.fonttype": "path",  # the same image whatever fonts are installed
        "svg.hashsalt": "relpos_tf",  # the same file for the same data
        "text.parse_math": False,  # A dollar sign begins no formula.
        "xtick.color": _GREY,
        "ytick.color": _GREY,
    }
    height += 0.19 * math.ceil(len(labels) / 2)  # two names to a line
    content = io.StringIO()
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        # A character that no font has is drawn as a box.
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        # For a page that may be 400 pixels wide, where a point is 1.1 pixels.
        size = 4.5, height  # inches
        drawing = figure.Figure(figsize=size, layout="constrained")
        axes = drawing.add_subplot(**names)
        draw(axes)
        low, high = axes.axis()[:2] if grid == "x" else axes.axis()[2:]
        axes.set(**{f"{grid}lim": (max(low, 0.0), high)})  # No measure is less.
        axes.grid(axis=grid, color=_PALE, linewidth=0.8)
        axes.set_axisbelow(True)
        axes.tick_params(length=0)
        if len(labels) > 1:
            drawing.legend(loc="outside upper left", ncols=2, handlelength=2.4)
        drawing.savefig(
            content,
            format="svg",
            transparent=True,
            metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")),
        )
    text = content.getvalue()
    return text[text.index("<svg") :]


def _name(label: str) -> str:
    """Returns a label that fits into a figure, on one line."""
    text = label.encode("utf-8", errors="replace").decode()
    text = "".join(c if c.isprintable() else " " for c in text)
    if len(text) > _LONGEST_NAME:
        text = f"{text[: _LONGEST_NAME - 1]}…"
    # Legends leave out a name that begins with an underscore.
    return f" {text}" if text.startswith("_") else text


def _style(report, label) -> dict[str, Any]:
    number = report["labels"].index(label)
    return {
        "color": _COLOURS[number % len(_COLOURS)],
        "linestyle": _DASHES[number // len(_COLOURS) % len(_DASHES)],
        "linewidth": 1.7,
        "marker": _MARKERS[number % len(_MARKERS)],
        "markersize": 4,
    }
