"""report.md: a report as text with tables."""

import functools
from typing import Any

from relpos_tf.comparison.report import reading
from relpos_tf.comparison.report import sections
from relpos_tf.comparison.report import tables


def render(report: reading.Report) -> str:
    """Returns the dict of report.json as Markdown, without figures."""
    document = sections.build(report, has_figures=False)
    parts = [
        f"# {escape(document.title)}",
        f"**{escape(document.verdict)}**",
        escape(document.conditions),
    ]
    if document.warnings:
        lines = [f"- {escape(line)}" for line in document.warnings]
        parts += ["**Warnings**", "\n".join(lines)]
    for title, blocks in document.sections.items():
        parts += [f"## {title}", *map(_block, blocks)]
    return "\n\n".join(parts) + "\n"


def escape(text: Any) -> str:
    """Writes text so that Markdown, and HTML in it, leave it as it is.

    Example:

    >>> escape("a|b <i> *c*")
    'a\\\\|b &lt;i> \\\\*c\\\\*'
    """
    text = " ".join(str(text).split()).replace("\\", "\\\\")
    for sign in "|*_`[]#~":
        text = text.replace(sign, f"\\{sign}")
    return text.replace("&", "&amp;").replace("<", "&lt;")


@functools.singledispatch
def _block(block: sections.Block) -> str:
    """Returns a block as Markdown."""
    raise TypeError(f"Expected a block. Received: {block!r}.")


@_block.register
def _(block: sections.Paragraph) -> str:
    return escape(block.text)


@_block.register
def _(block: sections.Terms) -> str:
    return "\n".join(
        f"- {escape(term)}: {escape(text or tables.MISSING)}"
        for term, text in block.pairs
    )


@_block.register
def _(block: sections.Folded) -> str:
    parts = [f"### {escape(block.title)}", *map(_block, block.blocks)]
    return "\n\n".join(parts)


@_block.register
def _(block: sections.Code) -> str:
    return "\n".join(f"    {line}" for line in block.text.split("\n"))


@_block.register
def _(block: tables.Table) -> str:
    signs = [
        "---" if index in (0, *block.text_columns) else "---:"
        for index in range(len(block.head))
    ]
    cells = [list(map(escape, row)) for row in (block.head, *block.rows)]
    cells.insert(1, signs)
    lines = [f"| {' | '.join(row)} |" for row in cells]
    return "\n".join(lines) + f"\n\n{escape(block.caption)}"
