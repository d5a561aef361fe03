"""The figures of one model's attention, from `attention_maps.describe`."""

import math
from collections.abc import Mapping
from typing import Any

from relpos_tf.comparison import plots
from relpos_tf.comparison.report import figures

_STACKS = "encoder", "decoder"
# A model with more heads has maps of its first and last layer only.
_MOST_MAPS = 16
# With more rows, only the first head of each layer is named.
_MOST_NAMED_ROWS = 16
# Longer tables are drawn up to this distance.
_MOST_DISTANCE = 32
_LONGEST_PIECE = 11
_MOST_PIECES = 14
_TITLES = {
    "encoder": "Encoder self-attention",
    "decoder": "Decoder self-attention",
    "cross": "Attention of the decoder to the source",
}
_START = "(start)"


def highest_mean(described: Mapping[str, Any]) -> float:
    """Returns the highest mean weight at any distance."""
    return max(
        (
            weight
            for stack in _STACKS
            for layer in described[stack]["by_distance"]
            for head in layer
            for weight in head
            if weight is not None
        ),
        default=0.0,
    )


def by_distance(
    described: Mapping[str, Any], label: str, highest: float
) -> figures.Picture:
    """Draws the mean weight of each head by distance.

    Args:
        described: What `attention_maps.describe` returned.
        label: str. Of the model.
        highest: float. The end of the scale, the same for models to compare.
    """
    stacks = {stack: described[stack] for stack in _STACKS}
    heads = [sum(map(len, part["by_distance"])) for part in stacks.values()]
    inches = sum(max(0.9, min(0.16 * number, 3.2)) for number in heads)
    with plots.style():
        drawing = plots.new_figure(inches + 0.55 * len(stacks) + 0.6)
        panels = drawing.subplots(
            len(stacks), squeeze=False, height_ratios=heads
        )[:, 0]
        for axes, (stack, part) in zip(panels, stacks.items(), strict=True):
            image = _draw_distances(axes, part, highest)
            axes.set_title(_TITLES[stack], loc="left")
        axes.set_xlabel("distance from query to key, in pieces")
        drawing.colorbar(
            image,
            ax=list(panels),
            orientation="horizontal",
            aspect=40,
            label="mean weight",
            ticks=plots.root_ticks(highest),
            format="{x:g}",
        ).outline.set_visible(False)
        svg = plots.to_svg(drawing)
    return figures.Picture(
        svg,
        f"{label}: mean weight by distance",
        "A row for each head (layer.head), over "
        f"{described['sentences']:,} sentences. "
        "Negative distances are to the left; the decoder sees no others. "
        "Grey: no sentence is that long.",
        f"{label}: {_highest_distances(stacks)}",
    )


def _draw_distances(axes, part, highest):
    """Draws the mean weights of a stack; returns the image."""
    rows = [head for layer in part["by_distance"] for head in layer]
    names = [
        f"{number + 1}.{head + 1}"
        for number, layer in enumerate(part["by_distance"])
        for head in range(len(layer))
    ]
    distances = part["distances"]
    image = axes.imshow(
        [[math.nan if x is None else x for x in row] for row in rows],
        aspect="auto",
        cmap=plots.colour_map(),
        # A scale of roots shows small weights beside a weight near 1.
        norm=plots.root_scale(highest or 1.0),
        interpolation="none",
        extent=(distances[0] - 0.5, distances[-1] + 0.5, len(rows) - 0.5, -0.5),
    )
    every = 1
    if len(rows) > _MOST_NAMED_ROWS:
        every = len(part["by_distance"][0])
    axes.set_yticks(range(0, len(rows), every), names[::every])
    axes.set_xticks(range(distances[0], distances[-1] + 1, 5))
    _remove_frame(axes)
    return image


def _highest_distances(stacks) -> str:
    """Names for each head the distance of its highest mean weight."""
    layers = []
    for stack, part in stacks.items():
        for number, layer in enumerate(part["by_distance"], start=1):
            best = []
            for head in layer:
                known = [i for i, x in enumerate(head) if x is not None]
                index = max(known, key=head.__getitem__, default=None)
                best.append(
                    "none" if index is None else f"{part['distances'][index]}"
                )
            layers.append(f"{stack} layer {number}: {', '.join(best)}")
    return (
        "the distance of the highest mean weight, head by head. "
        f"{'; '.join(layers)}."
    )


def maps(
    described: Mapping[str, Any], label: str, stack: str
) -> figures.Picture:
    """Draws all weights of one sentence, a map for each head.

    Args:
        described: What `attention_maps.describe` returned.
        label: str. Of the model.
        stack: str. "encoder", "decoder" or "cross".
    """
    layers = described[stack]["weights"]
    source, target = described["source_pieces"], described["target_pieces"]
    rows, keys = {
        "encoder": (source, source),
        "decoder": (target, [_START, *target[:-1]]),
        "cross": (target, source),
    }[stack]
    caption = (
        "A row is a query, a column a key; the stronger the colour, the more "
        "weight, from 0 to 1."
    )
    if max(len(rows), len(keys)) > _MOST_PIECES:
        caption += f" The first {_MOST_PIECES} pieces."
        rows, keys = rows[:_MOST_PIECES], keys[:_MOST_PIECES]
    numbers = range(len(layers))
    if len(layers) * len(layers[0]) > _MOST_MAPS and len(layers) > 2:
        caption += " The first and the last layer."
        numbers = 0, len(layers) - 1
    panels = [
        (f"layer {n + 1}, head {head + 1}", weights)
        for n in numbers
        for head, weights in enumerate(layers[n])
    ]
    with plots.style():
        svg = _draw_maps(panels, rows, keys)
    title = f"{label}: {_TITLES[stack][0].lower()}{_TITLES[stack][1:]}"
    alternative = f"{title}, for: {described['source']}"
    return figures.Picture(svg, title, caption, alternative)


def _draw_maps(panels, rows, keys) -> str:
    """Returns an SVG of maps with titles, two to a line."""
    lines = math.ceil(len(panels) / 2)
    rows, keys = (
        [figures.short_name(piece, _LONGEST_PIECE).strip() for piece in pieces]
        for pieces in (rows, keys)
    )
    longest = max(map(len, keys))
    drawing = plots.new_figure(
        (0.17 * len(rows) + 0.3) * lines + 0.12 * longest + 0.2
    )
    grid = drawing.subplots(lines, 2, sharex=True, sharey=True, squeeze=False)
    for axes in grid.flat[len(panels) :]:
        axes.set_axis_off()
    for axes, (title, weights) in zip(grid.flat, panels, strict=False):
        axes.imshow(
            [row[: len(keys)] for row in weights[: len(rows)]],
            aspect="auto",
            cmap=plots.colour_map(),
            vmin=0,
            vmax=1,
            interpolation="none",
        )
        axes.set_title(title, loc="left")
        axes.set_xticks(range(len(keys)), keys, rotation=90)
        axes.set_yticks(range(len(rows)), rows)
        _remove_frame(axes)
    return plots.to_svg(drawing)


def table_norms(
    described: Mapping[str, Any], label: str
) -> figures.Picture | None:
    """Draws the norms of the relative position vectors, by distance.

    The decoder attends to the left only, so the other half of its tables is
    never used and not drawn.
    """
    tables = described["tables"]
    if not tables:
        return None
    kinds = list(dict.fromkeys((one["stack"], one["kind"]) for one in tables))
    colours = plots.shades(1 + max(table["layer"] for table in tables))
    with plots.style():
        lines = math.ceil(len(kinds) / 2)
        drawing = plots.new_figure(1.7 * lines + 0.6)
        grid = drawing.subplots(lines, 2, sharey=True, squeeze=False)
        for axes in grid.flat[len(kinds) :]:
            axes.set_axis_off()
        for axes, kind in zip(grid.flat, kinds, strict=False):
            for table in tables:
                if (table["stack"], table["kind"]) == kind:
                    _draw_norms(axes, table, colours[table["layer"]])
            axes.set_title(f"{kind[0]}, {kind[1]}", loc="left")
            plots.set_grid(axes)
            axes.locator_params(axis="x", nbins=5, integer=True)
        # At the end, because a limit stops the automatic scaling.
        grid[0, 0].set_ylim(bottom=0)
        drawing.supxlabel("distance", color=plots.GREY, fontsize="medium")
        handles, names = grid[0, 0].get_legend_handles_labels()
        drawing.legend(
            handles, names, loc="outside upper left", ncols=min(len(names), 4)
        )
        svg = plots.to_svg(drawing)
    caption = "The vectors that are added to the keys and to the values."
    if any(len(table["norms"]) > 1 for table in tables):
        caption += " Thick: the mean over heads; thin: each head."
    if max(len(table["norms"][0]) // 2 for table in tables) > _MOST_DISTANCE:
        caption += f" The tables reach beyond {_MOST_DISTANCE}."
    title = f"{label}: norms of the relative position vectors"
    alternative = f"{title}, of {len(tables)} tables."
    return figures.Picture(svg, title, caption, alternative)


def _draw_norms(axes, table, colour):
    """Draws the norms of a table: thick the mean, thin each head."""
    heads = table["norms"]
    last = len(heads[0]) // 2
    reach = min(last, _MOST_DISTANCE)
    distances = range(-reach, (reach if table["stack"] == "encoder" else 0) + 1)
    heads = [[head[d + last] for d in distances] for head in heads]
    for head in heads if len(heads) > 1 else ():
        axes.plot(distances, head, color=colour, alpha=0.4, linewidth=0.6)
    mean = [sum(column) / len(column) for column in zip(*heads, strict=True)]
    axes.plot(
        distances,
        mean,
        color=colour,
        linewidth=1.7,
        marker="o" if len(mean) < 6 else None,
        markersize=4,
        label=f"layer {table['layer'] + 1}",
    )


def _remove_frame(axes):
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
