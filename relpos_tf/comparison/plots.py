"""Drawing with matplotlib, which only this module imports.

It is slow to import and not always installed, so functions import it.
"""

import contextlib
import importlib.util
import io
import pathlib
import warnings
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence

from relpos_tf.utils import files

FORMATS = "png", "pdf", "svg"
HOW_TO_INSTALL = "pip install 'relpos_tf[plots]'"

INK, GREY, PALE = "#222222", "#6b6b6b", "#e3e3e3"

_COLOURS = "#1b5e8c", "#c8553d", "#5b8c5a", "#7a5195"
_MARKERS = "o", "D", "s", "^"
_SIZE = 7.0, 4.2  # inches
_DOTS_PER_INCH = 160
# For a page that may be 400 pixels wide, where a point is 1.1 pixels.
PAGE_WIDTH = 4.5  # inches
SMALLEST_TEXT = 9  # points


def is_available() -> bool:
    """Says whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


@contextlib.contextmanager
def style() -> Iterator[None]:
    """Sets the style that all figures of a page share.

    Text is plain: a dollar sign in a name does not begin a formula.
    """
    import matplotlib

    settings = {
        "axes.edgecolor": GREY,
        "axes.labelcolor": GREY,
        "axes.labelsize": SMALLEST_TEXT,
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.titlesize": SMALLEST_TEXT + 1,
        "font.size": SMALLEST_TEXT,
        "legend.fontsize": SMALLEST_TEXT,
        "legend.frameon": False,
        "svg.fonttype": "path",  # the same image whatever fonts are installed
        "svg.hashsalt": "relpos_tf",  # the same file for the same data
        "text.color": INK,
        "text.parse_math": False,
        "xtick.color": GREY,
        "xtick.labelsize": SMALLEST_TEXT,
        "ytick.color": GREY,
        "ytick.labelsize": SMALLEST_TEXT,
    }
    with matplotlib.rc_context(settings):
        yield


def new_figure(height: float):
    """Returns an empty figure, `PAGE_WIDTH` x `height` inches."""
    from matplotlib import figure

    return figure.Figure(figsize=(PAGE_WIDTH, height), layout="constrained")


def to_svg(drawing) -> str:
    """Returns a figure as the text of an SVG element."""
    content = io.StringIO()
    with warnings.catch_warnings():
        # A character that no font has is drawn as a box.
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        drawing.savefig(
            content,
            format="svg",
            transparent=True,
            metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")),
        )
    text = content.getvalue()
    return text[text.index("<svg") :]


def colour_map():
    """Returns the colours of weights: darker for more, grey for NaN."""
    import matplotlib

    return matplotlib.colormaps["Blues"].with_extremes(bad=PALE)


def shades(number: int) -> list:
    """Returns the colours of an ordered series, dark to bright."""
    import matplotlib

    # The brightest fifth of the colours is too bright for lines.
    last = 0.8 / max(number - 1, 1)
    return [matplotlib.colormaps["viridis"](last * n) for n in range(number)]


def root_scale(highest: float):
    """Returns a colour scale of square roots, which spreads small numbers."""
    from matplotlib import colors

    return colors.PowerNorm(0.5, vmin=0, vmax=highest)


def scores_by_step(
    path: str | pathlib.Path,
    series: Mapping[str, Sequence[tuple[int, float]]],
    *,
    title: str,
    score: str,
    caption: str,
) -> None:
    """Draws scores against steps, and marks the highest.

    Args:
        path: The file, whose name ends in one of `FORMATS`. It is written
            whole or not at all.
        series: Points (step, score), steps ascending, by their name in the
            legend. The first is drawn as a line, the others as marks.
        title: str. Above the figure.
        score: str. Name of the vertical axis.
        caption: str. Below the figure: how the scores were computed.
    """
    from matplotlib import figure

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
            # Hollow marks do not hide the line.
            markerfacecolor="none" if number else None,
            label=name,
            clip_on=False,
            zorder=3,
        )
    _mark_highest(axes, series)
    axes.set_title(title, loc="left", fontsize=12, color=INK, pad=14)
    axes.set_ylabel(score, color=GREY)
    _set_axes(axes)
    if len(series) > 1:
        axes.legend(
            loc="lower right",
            labelcolor=INK,
            framealpha=1.0,
            edgecolor="none",
        )
    drawing.supxlabel(caption, fontsize=7, color=GREY)
    with files.replacing(path) as file:
        drawing.savefig(
            file,
            dpi=_DOTS_PER_INCH,
            format=pathlib.Path(path).suffix.removeprefix("."),
        )


def _set_axes(axes) -> None:
    """Sets ticks and grid, and removes all other lines."""
    from matplotlib import ticker

    axes.set_xlabel("step", color=GREY)
    axes.margins(x=0.04, y=0.14)  # room for the mark of the highest
    axes.xaxis.set_major_locator(
        ticker.MaxNLocator(8, steps=(1, 2, 2.5, 5, 10), integer=True)
    )
    axes.xaxis.set_major_formatter(ticker.StrMethodFormatter("{x:,.0f}"))
    axes.grid(axis="y", color=PALE, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=GREY, length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(GREY)


def _mark_highest(
    axes, series: Mapping[str, Sequence[tuple[int, float]]]
) -> None:
    """Writes the highest score, the first of equals, beside its point."""
    points = [(*point, name) for name in series for point in series[name]]
    step, score, name = max(points, key=lambda point: (point[1], -point[0]))
    steps = [point[0] for point in points]
    # To the left of a point in the right half, and vice versa: the text stays
    # inside the figure.
    is_right = 2 * step > min(steps) + max(steps)
    text = f"{score:.2f} at step {step:,}"
    axes.annotate(
        f"{text} ({name})" if len(series) > 1 else text,
        (step, score),
        xytext=(4 if is_right else -4, 10),
        textcoords="offset points",
        ha="right" if is_right else "left",
        va="bottom",
        color=INK,
        fontweight="bold",
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
    )
    axes.plot(
        [step],
        [score],
        marker="o",
        markersize=11,
        markerfacecolor="none",
        markeredgecolor=INK,
        markeredgewidth=1.4,
        clip_on=False,
        zorder=4,
    )
