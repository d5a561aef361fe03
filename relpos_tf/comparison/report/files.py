"""The report as files: report.md, report.html and report.json."""

import json
import pathlib
from typing import Any

from relpos_tf.comparison.report import html
from relpos_tf.comparison.report import markdown
from relpos_tf.utils import files as files_lib

_NAME = "report"


def write(report: dict[str, Any], folder: pathlib.Path) -> list[pathlib.Path]:
    """Writes the files, each whole or not at all; returns their paths.

    Args:
        report: What `collection.collect` returned.
        folder: Gets the files. It is made if it is missing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    content = json.dumps(report, indent=2, ensure_ascii=False, allow_nan=False)
    texts = markdown.render(report), html.render(report), f"{content}\n"
    for path, text in zip(paths(folder), texts, strict=True):
        files_lib.write(path, text.encode("utf-8", errors="replace"))
    return paths(folder)


def paths(folder: pathlib.Path) -> list[pathlib.Path]:
    """Returns the paths of the files that `write` writes."""
    return [folder / f"{_NAME}{end}" for end in (".md", ".html", ".json")]
