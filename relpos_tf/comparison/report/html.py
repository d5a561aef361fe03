"""report.html: a report as one HTML file, readable offline.

All text is escaped: a translation may hold anything.
"""

import base64
import functools
import html
from collections.abc import Sequence

from relpos_tf.comparison import plots
from relpos_tf.comparison.report import figures
from relpos_tf.comparison.report import reading
from relpos_tf.comparison.report import sections
from relpos_tf.comparison.report import tables

# The page may show its own content only: no script, no request.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_STYLE = """
:root { color-scheme: light dark; --ink: #1f2328; --grey: #59636e;
  --line: #d1d9e0; --page: #ffffff; --box: #f6f8fa; --link: #0b5cad; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ed; --grey: #9aa4af; --line: #3a424b; --page: #14171b;
    --box: #1e2329; --link: #79b8ff; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 76rem; color: var(--ink);
  background: var(--page); line-height: 1.5; overflow-wrap: anywhere;
  font-family: system-ui, "Segoe UI", Roboto, Helvetica, Arial, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0.5rem 0; }
h2 { font-size: 1.25rem; margin: 2.2rem 0 0.5rem; padding-top: 0.8rem;
  border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.2rem 0 0.4rem; }
p { max-width: 46rem; margin: 0.5rem 0; }
.verdict { font-size: 1.15rem; }
.small, caption, figcaption { color: var(--grey); font-size: 0.875rem; }
.scroll { overflow-x: auto; margin: 0.8rem 0; }
/* Collapsed borders would scroll away from under a sticky cell. */
table { border-collapse: separate; border-spacing: 0;
  font-variant-numeric: tabular-nums; font-size: 0.875rem;
  overflow-wrap: break-word; }
caption { text-align: left; padding-bottom: 0.3rem; }
/* Stays where it is while the table scrolls. */
caption span { display: block; position: sticky; left: 0;
  min-width: 12rem; max-width: min(46rem, 100vw - 3rem); }
/* Whole pixels, so that the lines of sticky and of other cells meet. */
th, td { padding: 5px 11px; line-height: 21px; text-align: right;
  vertical-align: top; border-bottom: 1px solid var(--line); }
th { font-weight: 600; }
thead th { vertical-align: bottom; max-width: 14rem; }
th:first-child, .words { text-align: left; }
/* The names stay while a wide table scrolls. */
th:first-child { position: sticky; left: 0; background: var(--page);
  max-width: 11rem; }
td { white-space: nowrap; }
tbody th { min-width: 6rem; }
.words { min-width: 6rem; max-width: 22rem; white-space: pre-wrap; }
.figures { display: grid; gap: 1.2rem; align-items: start;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 26rem), 1fr)); }
figure { margin: 0; max-width: 40rem; break-inside: avoid; }
/* The figures are drawn for white paper. Turned to a dark page, they keep
   their hues. */
figure img { display: block; width: 100%; height: auto; }
@media screen and (prefers-color-scheme: dark) {
  figure img { filter: invert(1) hue-rotate(180deg); } }
figcaption { margin-top: 0.3rem; }
.warnings { background: var(--box); border-left: 4px solid #d55e00;
  padding: 0.4rem 1rem; max-width: 46rem; }
.warnings ul { margin: 0.3rem 0; padding-left: 1.2rem; }
.sample { border: 1px solid var(--line); border-radius: 4px; max-width: 60rem;
  padding: 0.3rem 0.9rem; margin: 0.8rem 0; break-inside: avoid; }
.sample h3 { margin: 0.4rem 0; }
dl { display: grid; grid-template-columns: fit-content(14rem) 1fr;
  gap: 0.25rem 1.2rem; margin: 0.4rem 0; }
dt { color: var(--grey); font-size: 0.875rem; }
dd { margin: 0; }
pre { background: var(--box); padding: 0.6rem 0.8rem; border-radius: 4px;
  white-space: pre-wrap; font-size: 0.85rem; }
summary { cursor: pointer; color: var(--link); margin: 0.6rem 0; }
@media (max-width: 34rem) {
  h1 { font-size: 1.4rem; }
  dl { grid-template-columns: 1fr; gap: 0; }
  dd { margin-bottom: 0.5rem; } }
@media print {
  body { max-width: none; padding: 0; font-size: 10pt; }
  .scroll { overflow: visible; }
  table { font-size: 7.5pt; }
  th, td { padding: 0.15rem 0.35rem; } }
"""


def render(report: reading.Report) -> str:
    """Returns the dict of report.json as the text of an HTML file."""
    has_figures = plots.is_available()
    document = sections.build(report, has_figures)
    note = (
        ""
        if has_figures
        else "The figures are missing, because matplotlib is not installed: "
        f"{plots.HOW_TO_INSTALL}. Then make the report again."
    )
    body = (
        f"<header>\n<h1>{text(document.title)}</h1>\n"
        + _paragraph(document.verdict, "verdict")
        + _paragraph(document.conditions, "small")
        + "</header>\n"
        + _warnings(document.warnings)
        + _paragraph(note, "small")
    )
    for title, blocks in document.sections.items():
        body += (
            f"<section>\n<h2>{text(title)}</h2>\n{_blocks(blocks)}</section>\n"
        )
    return _page(document.title, body)


def text(value: str) -> str:
    """Returns text as HTML, and a dash for "".

    Characters that no page can hold, lone surrogates and controls, are
    replaced.
    """
    replaced = value.encode("utf-8", errors="replace").decode()
    replaced = "".join(
        c if c in "\n\t" or (c >= " " and c != "\x7f") else "\ufffd"
        for c in replaced
    )
    return html.escape(replaced) or tables.MISSING


def _page(title: str, body: str) -> str:
    """Returns a page that needs no other file; the body is HTML."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, '
        'initial-scale=1">\n'
        f"<title>{text(title)}</title>\n"
        # Without it, a browser asks the server for an icon.
        '<link rel="icon" href="data:,">\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n{body}</main>\n"
        "</body>\n</html>\n"
    )


def _paragraph(content: str, kind: str) -> str:
    return f'<p class="{kind}">{text(content)}</p>\n' if content else ""


def _warnings(warnings: Sequence[str]) -> str:
    if not warnings:
        return ""
    items = "".join(f"<li>{text(line)}</li>\n" for line in warnings)
    return (
        '<div class="warnings" role="note">\n<strong>Warnings</strong>\n'
        f"<ul>\n{items}</ul>\n</div>\n"
    )


def _blocks(blocks: Sequence[sections.Block]) -> str:
    return "".join(map(_block, blocks))


@functools.singledispatch
def _block(block: sections.Block) -> str:
    """Returns a block as HTML."""
    raise TypeError(f"Expected a block. Received: {block!r}.")


@_block.register
def _(block: sections.Paragraph) -> str:
    return _paragraph(block.text, "small")


@_block.register
def _(block: sections.Terms) -> str:
    lines = "".join(
        # Text may run in either direction.
        f'<dt>{text(term)}</dt><dd dir="auto">{text(content)}</dd>\n'
        for term, content in block.pairs
    )
    terms = f"<dl>\n{lines}</dl>\n"
    if not block.title:
        return terms
    return (
        f'<article class="sample">\n<h3>{text(block.title)}</h3>\n{terms}'
        "</article>\n"
    )


@_block.register
def _(block: sections.Code) -> str:
    return f"<pre>{text(block.text)}</pre>\n"


@_block.register
def _(block: sections.Figures) -> str:
    drawn = "".join(map(_figure, block.pictures))
    return f'<div class="figures">\n{drawn}</div>\n'


@_block.register
def _(block: sections.Folded) -> str:
    return (
        f"<details>\n<summary>{text(block.title)}</summary>\n"
        f"{_blocks(block.blocks)}</details>\n"
    )


@_block.register
def _(block: tables.Table) -> str:
    """Returns a table that scrolls in its own box."""

    def mark(index):
        return ' class="words"' if index in block.text_columns else ""

    names = "".join(
        f'<th scope="col"{mark(index)}>{text(name)}</th>'
        for index, name in enumerate(block.head)
    )
    lines = []
    for row in block.rows:
        cells = "".join(
            f"<td{mark(index)}>{text(cell)}</td>"
            for index, cell in enumerate(row[1:], start=1)
        )
        lines.append(f'<tr><th scope="row">{text(row[0])}</th>{cells}</tr>')
    # A box that takes the focus can be scrolled with the keyboard.
    return (
        f'<div class="scroll" tabindex="0" role="region" '
        f'aria-label="{text(block.caption)}">\n<table>\n'
        f"<caption><span>{text(block.caption)}</span></caption>\n"
        f"<thead><tr>{names}</tr></thead>\n<tbody>\n"
        + "\n".join(lines)
        + "\n</tbody>\n</table>\n</div>\n"
    )


def _figure(picture: figures.Picture) -> str:
    """Returns a figure with its caption, which begins with its title.

    The SVG is an image, not a part of the page: its names stay its own.
    """
    data = base64.b64encode(picture.svg.encode("utf-8")).decode()
    caption = f" {text(picture.caption)}" if picture.caption else ""
    return (
        f'<figure>\n<img alt="{text(picture.alternative)}" '
        f'src="data:image/svg+xml;base64,{data}">\n'
        f"<figcaption><strong>{text(picture.title)}.</strong>"
        f"{caption}</figcaption>\n</figure>\n"
    )
