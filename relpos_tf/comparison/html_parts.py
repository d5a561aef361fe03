"""Pieces of HTML: escaped text, tables, figures, a page by itself.

Whatever comes in is text: no function here takes HTML but `page` and those
that say so.
"""

import base64
import html
from collections.abc import Sequence
from typing import Any

from relpos_tf.comparison import report_parts

NOTHING = "–"

# Nothing but what is in the file: no script, no request.
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
table { border-collapse: collapse; font-variant-numeric: tabular-nums;
  font-size: 0.875rem; overflow-wrap: break-word; }
caption { text-align: left; padding-bottom: 0.3rem; }
/* Stays where it is while the table scrolls. */
caption span { display: block; position: sticky; left: 0;
  min-width: 12rem; max-width: min(46rem, 100vw - 3rem); }
th, td { padding: 0.3rem 0.7rem; text-align: right; vertical-align: top;
  border-bottom: 1px solid var(--line); }
th { font-weight: 600; }
thead th { vertical-align: bottom; max-width: 14rem; }
th:first-child, .words { text-align: left; }
td { white-space: nowrap; }
tbody th { min-width: 6rem; }
.words { min-width: 6rem; max-width: 22rem; white-space: pre-wrap; }
.beside { display: flex; flex-wrap: wrap; gap: 0 2.5rem; }
.beside > * { min-width: 0; max-width: 100%; }
.beside > .figures { flex: 1 1 26rem; margin-top: 0.8rem; }
.figures { display: grid; gap: 1.2rem; align-items: start;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 26rem), 1fr)); }
figure { margin: 0; max-width: 40rem; break-inside: avoid; }
/* The figures are drawn for white paper. */
figure img { display: block; width: 100%; height: auto; background: #ffffff;
  border-radius: 4px; }
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


def text(value: Any) -> str:
    """Returns a value as text in HTML; a dash for None and for nothing."""
    if value is None or value == "":
        return NOTHING
    # What no page can hold becomes a mark: lone surrogates, NUL.
    words = str(value).encode("utf-8", errors="replace").decode()
    words = "".join(
        c if c in "\n\t" or (c >= " " and c != "\x7f") else "\ufffd"
        for c in words
    )
    return html.escape(words)


def number(value: Any, digits: int = 0) -> str:
    """Returns a number with so many decimals; a dash for what is none.

    Example:

    >>> number(12345), number(0.5, 2), number(float("nan")), number(None)
    ('12,345', '0.50', '–', '–')
    """
    if not report_parts.is_number(value):
        return NOTHING
    return f"{value:,.{digits}f}"


def with_spread(mean: Any, spread: Any, digits: int) -> str:
    """Returns mean and spread; only the mean without a spread.

    Example:

    >>> with_spread(35.5, 0.25, 2), with_spread(35.5, None, 2)
    ('35.50 ± 0.25', '35.50')
    """
    words = number(mean, digits)
    if words == NOTHING or not report_parts.is_number(spread):
        return words
    return f"{words} ± {number(spread, digits)}"


def table(
    caption: str,
    head: Sequence[Any],
    rows: Sequence[Sequence[Any]],
    words: Sequence[int] = (),
) -> str:
    """Returns a table that scrolls in its own box; nothing without rows.

    Args:
        caption: str. What it shows.
        head: The name of each column.
        rows: The cells, the first of a row being its name.
        words: Numbers of the columns that hold words, not numbers.
    """
    if not rows:
        return ""
    kinds = {n: ' class="words"' for n in words}
    names = "".join(
        f'<th scope="col"{kinds.get(n, "")}>{text(name)}</th>'
        for n, name in enumerate(head)
    )
    lines = []
    for row in rows:
        cells = "".join(
            f"<td{kinds.get(n, '')}>{text(cell)}</td>"
            for n, cell in enumerate(row[1:], 1)
        )
        lines.append(f'<tr><th scope="row">{text(row[0])}</th>{cells}</tr>')
    # Who has no mouse scrolls what has the focus.
    return (
        f'<div class="scroll" tabindex="0" role="region" '
        f'aria-label="{text(caption)}">\n<table>\n'
        f"<caption><span>{text(caption)}</span></caption>\n"
        f"<thead><tr>{names}</tr></thead>\n<tbody>\n"
        + "\n".join(lines)
        + "\n</tbody>\n</table>\n</div>\n"
    )


def figure(svg: str, title: str, caption: str, alternative: str) -> str:
    """Returns a figure with its caption, which begins with its title.

    The SVG is an image, not a part of the page: the names in it are its own.
    """
    data = base64.b64encode(svg.encode("utf-8")).decode()
    return (
        f'<figure>\n<img alt="{text(alternative)}" '
        f'src="data:image/svg+xml;base64,{data}">\n'
        f"<figcaption><strong>{text(title)}.</strong>"
        f"{' ' + text(caption) if caption else ''}</figcaption>\n</figure>\n"
    )


def definitions(pairs: Sequence[tuple[Any, Any]]) -> str:
    """Returns a list of terms and what belongs to them.

    Text may run in either direction.
    """
    lines = "".join(
        f'<dt>{text(term)}</dt><dd dir="auto">{text(words)}</dd>\n'
        for term, words in pairs
    )
    return f"<dl>\n{lines}</dl>\n"


def beside(*parts: str) -> str:
    """Returns HTML parts beside one another, where there is room."""
    if not any(parts):
        return ""
    return f'<div class="beside">\n{"".join(parts)}</div>\n'


def section(title: str, *parts: str) -> str:
    """Returns a section of HTML parts; nothing if they all are empty."""
    if not any(parts):
        return ""
    return f"<section>\n<h2>{text(title)}</h2>\n{''.join(parts)}</section>\n"


def paragraph(words: Any, kind: str = "") -> str:
    """Returns a paragraph of text; nothing without text."""
    if not words:
        return ""
    mark = f' class="{text(kind)}"' if kind else ""
    return f"<p{mark}>{text(words)}</p>\n"


def page(title: str, body: str) -> str:
    """Returns a whole page that needs no other file.

    Args:
        title: str. Text.
        body: str. HTML.
    """
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, '
        'initial-scale=1">\n'
        f"<title>{text(title)}</title>\n"
        # Else a browser asks the server for one.
        '<link rel="icon" href="data:,">\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n{body}</main>\n"
        "</body>\n</html>\n"
    )
