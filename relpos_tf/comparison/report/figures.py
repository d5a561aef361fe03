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
# More curves would hide each other on the same axes.
_MOST_CURVES = 4
_PANEL_HEIGHT = 1.1  # inches
_LONGEST_PANEL_NAME = 20
_OWN_STYLE = {"color": plots.COLOURS[0], "linewidth": 2.0, "zorder": 3}
_BASELINE_STYLE = {
    "color": plots.INK,
    "linewidth": 1.1,
    "linestyle": (0, (4, 2)),
    "zorder": 2.5,
}
_OTHER_STYLE = {"color": "#a0a0a0", "linewidth": 0.8}
_CAPTION_APART = (
    "Blue: the label; dashed: the first label; grey: the others, for "
    "comparison."
)


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
    has_seeds = any(len(curves) > 1 for curves in by_label.values())
    if len(means) > _MOST_CURVES:
        svg = _curves_apart(by_label, means, axis)
        caption = _CAPTION_APART
        if has_seeds:
            caption += (
                " The mean over seeds, shaded one standard deviation to each "
                "side."
            )
    else:
        svg = _curves_together(report, by_label, means, axis)
        caption = ""
        if has_seeds:
            caption = (
                "Thick: the mean over seeds, shaded one standard deviation to "
                "each side; thin: each seed."
            )
    title = f"{axis[0].upper()}{axis[1:]} by step"
    last = "; ".join(
        f"{label} {mean[max(mean)]:.2f} at step {max(mean):,}"
        for label, mean in means.items()
    )
    return Picture(svg, title, caption, f"{title}, at the end: {last}.")


def _curves_together(report, by_label, means, axis) -> str:
    """Returns an SVG of all learning curves on the same axes."""
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
        return plots.to_svg(drawing)


def _curves_apart(by_label, means, axis) -> str:
    """Returns an SVG with axes for each label, which also show the others."""
    with plots.style():
        drawing, panels = _panels(means, "step", axis)
        for label, axes in panels.items():
            spread = reading.spread_curve(by_label[label])
            _draw_spread(axes, means[label], spread, _OWN_STYLE)
            axes.locator_params(axis="x", nbins=3, integer=True)
            axes.xaxis.set_major_formatter("{x:,.0f}")
        return plots.to_svg(drawing)


def _panels(series, x_name, y_name):
    """Draws a curve for each label on axes of its own.

    Args:
        series: Curves, {x: y}, by label. The first is the baseline.
        x_name: str. What x is.
        y_name: str. What y is.

    Returns:
        The figure, and its axes by label.
    """
    baseline, *_ = series
    lines = math.ceil(len(series) / 2)
    drawing = plots.new_figure(_PANEL_HEIGHT * lines + 0.5)
    grid = drawing.subplots(lines, 2, sharex=True, sharey=True, squeeze=False)
    for axes in grid.flat[len(series) :]:
        axes.set_axis_off()
    panels = dict(zip(series, grid.flat, strict=False))
    for label, axes in panels.items():
        for other, curve in series.items():
            if other not in (label, baseline):
                axes.plot(curve.keys(), curve.values(), **_OTHER_STYLE)
        if label != baseline:
            curve = series[baseline]
            axes.plot(curve.keys(), curve.values(), **_BASELINE_STYLE)
        curve = series[label]
        name = short_name(label)
        axes.plot(curve.keys(), curve.values(), **_OWN_STYLE, label=name)
        if len(curve) == 1:  # A line of one point would not be seen.
            axes.lines[-1].set_marker("o")
        axes.set_title(short_name(label, _LONGEST_PANEL_NAME), loc="left")
        plots.set_grid(axes)
    if len(series) % 2:
        # The column above the empty place ends one line earlier.
        grid[-2, 1].tick_params(labelbottom=True)
    drawing.supxlabel(x_name, color=plots.GREY, fontsize="medium")
    drawing.supylabel(y_name, color=plots.GREY, fontsize="medium")
    return drawing, panels


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
    if len(by_label) > _MOST_CURVES:
        by_label = dict(
            sorted(by_label.items(), key=lambda x: -statistics.fmean(x[1]))
        )
    with plots.style():
        drawing = plots.new_figure(0.65 + 0.3 * len(by_label))
        axes = drawing.add_subplot(xlabel="BLEU")
        for row, (label, values) in enumerate(by_label.items()):
            _draw_scores(axes, row, values, _line_style(report, label))
        axes.set_yticks(range(len(by_label)), list(map(short_name, by_label)))
        axes.set_ylim(len(by_label) - 0.5, -0.5)
        axes.locator_params(axis="x", nbins=5)
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
    caption = (
        "The mean over seeds. With fewer lines, more of a difference is chance."
    )
    if len(by_label) > _MOST_CURVES:
        names = [name for name, _ in buckets]
        svg = _lengths_apart(by_label, names, report["length_unit"])
        caption = f"{_CAPTION_APART} {caption}"
    else:
        svg = _lengths_together(report, by_label, buckets)
    return Picture(
        svg,
        "BLEU by length of the source",
        caption,
        "BLEU by length of the source; the numbers are in the table.",
    )


def _lengths_together(report, by_label, buckets) -> str:
    """Returns an SVG of the scores of all labels on the same axes."""
    with plots.style():
        drawing = plots.new_figure(2.9 + _legend_height(by_label))
        axes = drawing.add_subplot(
            xlabel=f"{report['length_unit']} of the source (lines)",
            ylabel="BLEU",
        )
        for label, values in by_label.items():
            line_style = _line_style(report, label)
            axes.plot(values, **line_style, label=short_name(label))
        names = [f"{name}\n({lines:,})" for name, lines in buckets]
        axes.set_xticks(range(len(buckets)), names)
        plots.set_grid(axes)
        _add_legend(drawing, axes)
        return plots.to_svg(drawing)


def _lengths_apart(by_label, names, unit) -> str:
    """Returns an SVG with axes for each label, which also show the others."""
    series = {
        label: dict(enumerate(values)) for label, values in by_label.items()
    }
    with plots.style():
        drawing, panels = _panels(series, f"{unit} of the source", "BLEU")
        for axes in panels.values():
            axes.set_xticks(range(len(names)), map(_short_bucket, names))
        return plots.to_svg(drawing)


def _short_bucket(name: str) -> str:
    """Returns the name of a length bucket for a narrow figure.

    Example:

    >>> [_short_bucket(name) for name in ("up to 9", "10 to 20", "over 20")]
    ['≤9', '10–20', '>20']
    """
    for words, sign in (("up to ", "≤"), ("over ", ">"), (" to ", "–")):
        name = name.replace(words, sign)
    return name


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
