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

from relpos_tf.utils import extras
from relpos_tf.utils import files

FORMATS = "png", "pdf", "svg"
HOW_TO_INSTALL = extras.how_to_install("plots")

INK, GREY, PALE = "#222222", "#6b6b6b", "#e3e3e3"

# The colours of Okabe and Ito, which colour-blind people can tell apart, with
# a darker yellow.
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
MARKERS = "osD^vP<>"
_DOTS_PER_INCH = 240
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


def set_grid(axes, axis: str = "y") -> None:
    """Draws grid lines across an axis, and no ticks."""
    axes.grid(axis=axis, color=PALE, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0)


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


# Numbers that a scale of roots may name, and the least distance of two of them,
# as a part of the scale.
_ROOT_TICKS = 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0
_TICK_DISTANCE = 0.14


def root_scale(highest: float):
    """Returns a colour scale of square roots, which spreads small numbers."""
    from matplotlib import colors

    return colors.PowerNorm(0.5, vmin=0, vmax=highest)


def root_ticks(highest: float) -> list[float]:
    """Returns numbers to name on a scale of `root_scale`, far enough apart.

    Example:

    >>> root_ticks(0.4), root_ticks(1.0), root_ticks(0.0)
    ([0.0, 0.01, 0.05, 0.1, 0.2, 0.4], [0.0, 0.05, 0.2, 0.4, 0.7, 1.0], [0.0])
    """
    ticks = [0.0]
    # From the end on, so that the darkest colour has a name nearby.
    room = 1.0
    for tick in reversed(_ROOT_TICKS):
        place = (tick / highest) ** 0.5 if highest else 0.0
        if _TICK_DISTANCE <= place <= room:
            ticks.insert(1, tick)
            room = place - _TICK_DISTANCE
    return ticks


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
    with style():
        drawing = new_figure(3.0)
        axes = drawing.add_subplot(xlabel="step", ylabel=score)
        for number, (name, points) in enumerate(series.items()):
            axes.plot(
                *zip(*points, strict=True),
                color=COLOURS[number % len(COLOURS)],
                linestyle="none" if number else "-",
                marker=MARKERS[number % len(MARKERS)],
                markersize=6 if number else 3.5,
                # Hollow marks do not hide the line.
                markerfacecolor="none" if number else None,
                label=name,
                clip_on=False,
                zorder=3,
            )
        _mark_highest(axes, series)
        axes.set_title(title, loc="left", pad=12)
        axes.margins(x=0.04, y=0.14)  # Room for the mark of the highest.
        axes.locator_params(axis="x", nbins=6, integer=True)
        axes.xaxis.set_major_formatter("{x:,.0f}")
        set_grid(axes)
        axes.spines["left"].set_visible(False)
        if len(series) > 1:
            axes.legend(loc="lower right")
        drawing.supxlabel(caption, fontsize=5, color=GREY)
        with files.replacing(path) as file:
            drawing.savefig(
                file,
                dpi=_DOTS_PER_INCH,
                format=pathlib.Path(path).suffix.removeprefix("."),
            )


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
        xytext=(4 if is_right else -4, 8),
        textcoords="offset points",
        ha="right" if is_right else "left",
        fontweight="bold",
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
    )
    axes.plot(
        [step],
        [score],
        marker="o",
        markersize=9,
        markerfacecolor="none",
        markeredgecolor=INK,
        clip_on=False,
        zorder=4,
    )
