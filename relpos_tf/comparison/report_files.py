"""The report as files: to read, to look at, and for other programs."""

import json
import pathlib
from typing import Any

from relpos_tf.comparison import markdown
from relpos_tf.comparison import report_html
from relpos_tf.utils import text

_NAME = "report"


def write(report: dict[str, Any], folder: pathlib.Path) -> list[pathlib.Path]:
    """Writes report.md, report.html and report.json, each whole or not at all.

    Args:
        report: What `collection.collect` returned.
        folder: Gets the files.

    Returns:
        Their paths.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / _NAME
    texts = {
        ".md": markdown.render(report).removesuffix("\n"),
        ".json": json.dumps(
            report, indent=2, ensure_ascii=False, allow_nan=False
        ),
    }
    for ending, content in texts.items():
        with text.writer(path.with_suffix(ending), None) as write_line:
            write_line(content)
    report_html.write(report, path.with_suffix(".html"))
    return names(folder)


def names(folder: pathlib.Path) -> list[pathlib.Path]:
    """Returns the paths of the files that `write` writes."""
    return [folder / f"{_NAME}{end}" for end in (".md", ".html", ".json")]
