"""Figures: the only module that imports matplotlib, and only when it draws."""

import importlib.util
import os
import pathlib
from collections.abc import Mapping
from collections.abc import Sequence

FORMATS = "png", "pdf", "svg"
# Where matplotlib is missing.
HOW_TO_INSTALL = "pip install 'relpos_tf[plots]'"

_COLOURS = "#1b5e8c", "#c8553d", "#5b8c5a", "#7a5195"
_MARKERS = "o", "D", "s", "^"
_INK, _GREY, _PALE = "#222222", "#6b6b6b", "#e3e3e3"
_SIZE = 7.0, 4.2  # inches
_DOTS_PER_INCH = 160


def is_available() -> bool:
    """Says whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def scores_by_step(
    path: str | pathlib.Path,
    series: Mapping[str, Sequence[tuple[int, float]]],
    *,
    title: str,
    score: str,
    caption: str,
) -> None:
    """Draws scores against steps, and says which is the highest.

    Args:
        path: The file, whose name ends in one of `FORMATS`. It appears when
            it is complete.
        series: The points (step, score) by the name that the legend gives
            them, steps ascending. The first is a line, the others are marks.
        title: str. Above the figure.
        score: str. What the vertical axis shows.
        caption: str. Below the figure: how the scores were computed.
    """
    from matplotlib import figure  # Slow, and not always installed.

    drawing = figure.Figure(figsize=_SIZE, layout="constrained")
    axes = drawing.add_subplot()
    for number, (name, points) in enumerate(series.items()):
        axes.plot(
            *zip(*points, strict=True),
            color=_COLOURS[number % len(_COLOURS)],
            linestyle="none" if number else "-",
            linewidth=1.8,
            marker=_MARKERS[number % len(_MARKERS)],
            markersize=8 if number else 4.5,
            # Hollow, so as not to hide the line.
            markerfacecolor="none" if number else None,
            label=name,
            clip_on=False,
            zorder=3,
        )
    _mark_highest(axes, series)
    axes.set_title(title, loc="left", fontsize=12, color=_INK, pad=14)
    axes.set_ylabel(score, color=_GREY)
    _plain(axes)
    if len(series) > 1:
        axes.legend(
            loc="lower right",
            labelcolor=_INK,
            framealpha=1.0,
            edgecolor="none",
        )
    drawing.supxlabel(caption, fontsize=7, color=_GREY)
    partial = f"{path}.part"
    try:
        drawing.savefig(
            partial,
            dpi=_DOTS_PER_INCH,
            format=pathlib.Path(path).suffix.removeprefix("."),
        )
        os.replace(partial, path)
    finally:
        pathlib.Path(partial).unlink(missing_ok=True)


def _plain(axes) -> None:
    """Leaves little beside the points."""
    from matplotlib import ticker

    axes.set_xlabel("step", color=_GREY)
    axes.margins(x=0.04, y=0.14)  # room for the mark of the highest
    axes.xaxis.set_major_locator(
        ticker.MaxNLocator(8, steps=(1, 2, 2.5, 5, 10), integer=True)
    )
    axes.xaxis.set_major_formatter(ticker.StrMethodFormatter("{x:,.0f}"))
    axes.grid(axis="y", color=_PALE, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=_GREY, length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(_GREY)


def _mark_highest(
    axes, series: Mapping[str, Sequence[tuple[int, float]]]
) -> None:
    """Writes the highest score beside its point, the first of equals."""
    points = [(*point, name) for name in series for point in series[name]]
    step, score, name = max(points, key=lambda point: (point[1], -point[0]))
    steps = [point[0] for point in points]
    # Words stay inside: to the left of a point on the right, and vice versa.
    is_right = 2 * step > min(steps) + max(steps)
    words = f"{score:.2f} at step {step:,}"
    axes.annotate(
        f"{words} ({name})" if len(series) > 1 else words,
        (step, score),
        xytext=(4 if is_right else -4, 10),
        textcoords="offset points",
        ha="right" if is_right else "left",
        va="bottom",
        color=_INK,
        fontweight="bold",
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
    )
    axes.plot(
        [step],
        [score],
        marker="o",
        markersize=11,
        markerfacecolor="none",
        markeredgecolor=_INK,
        markeredgewidth=1.4,
        clip_on=False,
        zorder=4,
    )
