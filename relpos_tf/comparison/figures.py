"""The figures of a comparison, as SVG, narrow enough for a telephone.

Each takes a report that is complete (`report_parts.complete`) and returns a
`Picture`, or None where the report has nothing to draw.
"""

import math
import statistics
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

from relpos_tf.comparison import plots
from relpos_tf.comparison import report_parts

# Okabe and Ito's, which colour-blind people tell apart; yellow is darker.
COLOURS = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#b8860b",
    "#56b4e9",
    "#7f3c8d",
    "#222222",
)
_MARKERS = "osD^vP<>"
_DASHES = "-", "--", "-.", ":"
_LONGEST_NAME = 28


class Picture(NamedTuple):
    """A figure for a page.

    Attributes:
        svg: str. The element.
        title: str. What it is of.
        caption: str. What it shows, and how to read it.
        alternative: str. What it says, for those who cannot see it.
    """

    svg: str
    title: str
    caption: str
    alternative: str


def name_of(label: Any, longest: int = _LONGEST_NAME) -> str:
    """Returns a label that fits into a figure, on one line."""
    text = str(label).encode("utf-8", errors="replace").decode()
    text = "".join(c if c.isprintable() else " " for c in text)
    if len(text) > longest:
        text = f"{text[: longest - 1]}…"
    # Legends pass over what begins with an underscore.
    return f" {text}" if text.startswith("_") else text


def learning_curve(
    report: report_parts.Report, split: str, column: int, axis: str
) -> Picture | None:
    """Draws what a split of the data said while training went on.

    Args:
        report: The report.
        split: str. "dev" or "train".
        column: int. As of `report_parts.curve`.
        axis: str. What the column holds.
    """
    series = {}
    for label in report["labels"]:
        runs = report_parts.runs_of(report, label)
        curves = [report_parts.curve(run, split, column) for run in runs]
        curves = [curve for curve in curves if curve]
        if curves and report_parts.mean_curve(curves):
            series[label] = curves
    if not series:
        return None
    means = {n: report_parts.mean_curve(c) for n, c in series.items()}
    with plots.style():
        drawing = plots.new_figure(2.8 + _legend_height(series))
        axes = drawing.add_subplot(xlabel="step", ylabel=axis)
        for label, curves in series.items():
            look = _look(report, label)
            for curve in curves if len(curves) > 1 else ():
                axes.plot(
                    curve.keys(),
                    curve.values(),
                    color=look["color"],
                    alpha=0.45,
                    linewidth=0.7,
                )
            steps, values = means[label].keys(), means[label].values()
            is_crowded = len(steps) > 30
            look |= {"marker": None} if is_crowded else {}
            axes.plot(steps, values, **look, label=name_of(label))
        _plain(axes)
        axes.locator_params(axis="x", nbins=6, integer=True)
        axes.xaxis.set_major_formatter("{x:,.0f}")
        _legend(drawing, axes)
        svg = plots.to_svg(drawing)
    name = f"{axis[0].upper()}{axis[1:]} by step"
    caption = ""
    if any(len(curves) > 1 for curves in series.values()):
        caption = "Thick: the mean over seeds; thin: each seed."
    last = "; ".join(
        f"{label} {values[max(values)]:.2f} at step {max(values):,}"
        for label, values in means.items()
    )
    return Picture(svg, name, caption, f"{name}, at the end: {last}.")


def scores(report: report_parts.Report) -> Picture | None:
    """Draws the BLEU of every run, and mean and spread of each label."""
    series = {}
    for label in report["labels"]:
        runs = report_parts.runs_of(report, label)
        if values := report_parts.numbers(run.get("bleu") for run in runs):
            series[label] = values
    if not series:
        return None
    with plots.style():
        drawing = plots.new_figure(0.65 + 0.3 * len(series))
        axes = drawing.add_subplot(xlabel="BLEU")
        for row, (label, values) in enumerate(series.items()):
            _score(axes, row, values, _look(report, label))
        axes.set_yticks(range(len(series)), [name_of(name) for name in series])
        axes.set_ylim(len(series) - 0.5, -0.5)
        axes.margins(x=0.14)
        _plain(axes, "x")
        axes.spines["left"].set_visible(False)
        svg = plots.to_svg(drawing)
    caption = ""
    if any(len(values) > 1 for values in series.values()):
        caption = (
            "The mean over seeds with one standard deviation to each side, and "
            "a stroke for each seed."
        )
    words = "; ".join(
        f"{label} {statistics.fmean(values):.2f}"
        for label, values in series.items()
    )
    return Picture(svg, "BLEU of each label", caption, f"BLEU: {words}.")


def _score(axes, row, values, look):
    """Draws the scores of one label into its row."""
    mean = statistics.fmean(values)
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    axes.errorbar(
        [mean],
        [row],
        xerr=[spread] if spread else None,
        color=look["color"],
        elinewidth=1.6,
        capsize=4,
        marker=look["marker"],
        markersize=6,
    )
    if len(values) > 1:
        axes.plot(
            values,
            [row] * len(values),
            linestyle="none",
            marker="|",
            markersize=12,
            color=look["color"],
            alpha=0.6,
        )
    axes.annotate(
        f"{mean:.2f}",
        (max(*values, mean + spread), row),
        xytext=(8, 0),
        textcoords="offset points",
        va="center",
    )


def scores_by_length(report: report_parts.Report) -> Picture | None:
    """Draws BLEU against the length of the source."""
    buckets = report_parts.length_buckets(report)
    series = {}
    for label in report["labels"]:
        values = [
            report_parts.of_length(report, label, up_to, "bleu")
            for up_to, _ in buckets
        ]
        if report_parts.numbers(values):
            series[label] = [math.nan if v is None else v for v in values]
    if not series or len(buckets) < 2:
        return None
    with plots.style():
        drawing = plots.new_figure(2.9 + _legend_height(series))
        axes = drawing.add_subplot(
            xlabel="pieces of the source (lines)", ylabel="BLEU"
        )
        for label, values in series.items():
            axes.plot(values, **_look(report, label), label=name_of(label))
        names = [
            f"{report_parts.bucket_name(buckets, n)}\n"
            f"({'–' if lines is None else format(lines, ',')})"
            for n, (_, lines) in enumerate(buckets)
        ]
        axes.set_xticks(range(len(buckets)), names)
        _plain(axes)
        _legend(drawing, axes)
        svg = plots.to_svg(drawing)
    return Picture(
        svg,
        "BLEU by length of the source",
        "The mean over seeds. The fewer the lines, the more of a difference is "
        "chance.",
        "BLEU by length of the source; the numbers are in the table.",
    )


def _look(report: report_parts.Report, label: str) -> dict[str, Any]:
    number = report["labels"].index(label)
    return {
        "color": COLOURS[number % len(COLOURS)],
        "linestyle": _DASHES[number // len(COLOURS) % len(_DASHES)],
        "linewidth": 1.7,
        "marker": _MARKERS[number % len(_MARKERS)],
        "markersize": 4.5,
    }


def _plain(axes, grid: str = "y"):
    axes.grid(axis=grid, color=plots.PALE, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0)


def _legend_height(series: Mapping[str, Sequence]) -> float:
    """Returns the inches that a legend needs, with two names to a line."""
    return 0.19 * math.ceil(len(series) / 2) if len(series) > 1 else 0.0


def _legend(drawing, axes):
    if len(axes.get_legend_handles_labels()[1]) > 1:
        drawing.legend(loc="outside upper left", ncols=2, handlelength=2.4)
