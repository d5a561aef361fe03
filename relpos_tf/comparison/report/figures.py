"""The figures of scores and of learning, as SVG, narrow enough for a phone.

Each function takes the dict of report.json and returns a `Picture`, or None if
there is nothing to draw.
"""

import math
import statistics
from collections.abc import Sized
from typing import Any
from typing import NamedTuple

from relpos_tf.comparison import plots
from relpos_tf.comparison.report import reading

_DASHES = "-", "--", "-.", ":"
# A longer curve has no marker at each point.
_MOST_MARKERS = 30


class Picture(NamedTuple):
    """A figure for a page.

    Attributes:
        svg: str. The element.
        title: str. Its subject.
        caption: str. What it shows, and how to read it.
        alternative: str. Its content in words, for those who cannot see it.
    """

    svg: str
    title: str
    caption: str
    alternative: str


def short_name(label: Any, longest: int = 28) -> str:
    """Returns a label that fits into a figure, on one line."""
    text = str(label).encode("utf-8", errors="replace").decode()
    text = "".join(c if c.isprintable() else " " for c in text)
    if len(text) > longest:
        text = f"{text[: longest - 1]}…"
    # Legends leave out a name that begins with an underscore.
    return f" {text}" if text.startswith("_") else text


def learning_curve(
    report: reading.Report, split: str, column: int, axis: str
) -> Picture | None:
    """Draws a measure of a split by training step.

    Args:
        report: The report.
        split: str. "dev" or "train".
        column: int. See `reading.curve`.
        axis: str. Name of the measure.
    """
    by_label = reading.curves(report, split, column)
    means = {
        label: mean
        for label, curves in by_label.items()
        if (mean := reading.mean_curve(curves))
    }
    if not means:
        return None
    with plots.style():
        drawing = plots.new_figure(2.8 + _legend_height(means))
        axes = drawing.add_subplot(xlabel="step", ylabel=axis)
        for label, mean in means.items():
            line_style = _line_style(report, label)
            curves = by_label[label]
            for curve in curves if len(curves) > 1 else ():
                axes.plot(
                    curve.keys(),
                    curve.values(),
                    color=line_style["color"],
                    alpha=0.45,
                    linewidth=0.7,
                )
            _draw_spread(axes, mean, reading.spread_curve(curves), line_style)
            if len(mean) > _MOST_MARKERS:
                line_style["marker"] = None
            name = short_name(label)
            axes.plot(mean.keys(), mean.values(), **line_style, label=name)
        plots.set_grid(axes)
        axes.locator_params(axis="x", nbins=6, integer=True)
        axes.xaxis.set_major_formatter("{x:,.0f}")
        _add_legend(drawing, axes)
        svg = plots.to_svg(drawing)
    title = f"{axis[0].upper()}{axis[1:]} by step"
    caption = ""
    if any(len(curves) > 1 for curves in by_label.values()):
        caption = (
            "Thick: the mean over seeds, shaded one standard deviation to each "
            "side; thin: each seed."
        )
    last = "; ".join(
        f"{label} {mean[max(mean)]:.2f} at step {max(mean):,}"
        for label, mean in means.items()
    )
    return Picture(svg, title, caption, f"{title}, at the end: {last}.")


def _draw_spread(axes, mean, spread, line_style):
    """Draws a band of one standard deviation to each side of a mean."""
    if spread:
        axes.fill_between(
            list(mean),
            [value - spread[step] for step, value in mean.items()],
            [value + spread[step] for step, value in mean.items()],
            color=line_style["color"],
            alpha=0.15,
            linewidth=0,
        )


def scores(report: reading.Report) -> Picture:
    """Draws the BLEU of every run, and mean and spread of each label."""
    by_label = {
        label: [run["bleu"] for run in reading.runs_of(report, label)]
        for label in report["labels"]
    }
    with plots.style():
        drawing = plots.new_figure(0.65 + 0.3 * len(by_label))
        axes = drawing.add_subplot(xlabel="BLEU")
        for row, (label, values) in enumerate(by_label.items()):
            _draw_scores(axes, row, values, _line_style(report, label))
        axes.set_yticks(range(len(by_label)), list(map(short_name, by_label)))
        axes.set_ylim(len(by_label) - 0.5, -0.5)
        axes.margins(x=0.14)
        plots.set_grid(axes, "x")
        axes.spines["left"].set_visible(False)
        svg = plots.to_svg(drawing)
    caption = ""
    if any(len(values) > 1 for values in by_label.values()):
        caption = (
            "The mean over seeds with one standard deviation to each side, and "
            "a stroke for each seed."
        )
    means = "; ".join(
        f"{label} {statistics.fmean(values):.2f}"
        for label, values in by_label.items()
    )
    return Picture(svg, "BLEU of each label", caption, f"BLEU: {means}.")


def _draw_scores(axes, row, values, line_style):
    """Draws the scores of one label into its row."""
    mean = statistics.fmean(values)
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    axes.errorbar(
        [mean],
        [row],
        xerr=[spread] if spread else None,
        color=line_style["color"],
        elinewidth=1.6,
        capsize=4,
        marker=line_style["marker"],
        markersize=6,
    )
    if len(values) > 1:
        axes.plot(
            values,
            [row] * len(values),
            linestyle="none",
            marker="|",
            markersize=12,
            color=line_style["color"],
            alpha=0.6,
        )
    axes.annotate(
        f"{mean:.2f}",
        (max(*values, mean + spread), row),
        xytext=(8, 0),
        textcoords="offset points",
        va="center",
    )


def scores_by_length(report: reading.Report) -> Picture | None:
    """Draws BLEU against the length of the source."""
    buckets = reading.length_buckets(report)
    by_label = {}
    for label in report["labels"]:
        values = [
            reading.mean_in_bucket(report, label, index, "bleu")
            for index in range(len(buckets))
        ]
        if reading.known(values):
            by_label[label] = [math.nan if v is None else v for v in values]
    if not by_label or len(buckets) < 2:
        return None
    with plots.style():
        drawing = plots.new_figure(2.9 + _legend_height(by_label))
        axes = drawing.add_subplot(
            xlabel="pieces of the source (lines)", ylabel="BLEU"
        )
        for label, values in by_label.items():
            line_style = _line_style(report, label)
            axes.plot(values, **line_style, label=short_name(label))
        names = [f"{name}\n({lines:,})" for name, lines in buckets]
        axes.set_xticks(range(len(buckets)), names)
        plots.set_grid(axes)
        _add_legend(drawing, axes)
        svg = plots.to_svg(drawing)
    return Picture(
        svg,
        "BLEU by length of the source",
        "The mean over seeds. With fewer lines, more of a difference is "
        "chance.",
        "BLEU by length of the source; the numbers are in the table.",
    )


def _line_style(report: reading.Report, label: str) -> dict[str, Any]:
    number = report["labels"].index(label)
    return {
        "color": plots.COLOURS[number % len(plots.COLOURS)],
        "linestyle": _DASHES[number // len(plots.COLOURS) % len(_DASHES)],
        "linewidth": 1.7,
        "marker": plots.MARKERS[number % len(plots.MARKERS)],
        "markersize": 4.5,
    }


def _legend_height(by_label: Sized) -> float:
    """Returns the inches that a legend needs, with two names to a line."""
    return 0.19 * math.ceil(len(by_label) / 2) if len(by_label) > 1 else 0.0


def _add_legend(drawing, axes):
    if len(axes.get_legend_handles_labels()[1]) > 1:
        drawing.legend(loc="outside upper left", ncols=2, handlelength=2.4)
