"""Runs a notebook and stores its outputs, without Jupyter.

    python -m tools.notebook PATH

The cells run in one namespace and can import from the folder of the notebook,
as in a fresh kernel of Jupyter. Text that a cell prints, the value of its last
expression and the figures that it leaves open become its outputs.
"""

import argparse
import ast
import base64
import contextlib
import hashlib
import io
import json
import os
import pathlib
import sys

os.environ["MPLBACKEND"] = "agg"  # draws without a screen

PARAMETERS = "parameters"  # tag of the cell that sets sizes


def read(path):
    """Returns the notebook of a file, a dict."""
    return json.loads(pathlib.Path(path).read_text(encoding="utf-8"))


def write(notebook, path):
    """Writes a notebook with the layout of Jupyter."""
    text = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
    pathlib.Path(path).write_text(text, encoding="utf-8")


def code_cells(notebook):
    """Returns the cells of code."""
    return [c for c in notebook["cells"] if c["cell_type"] == "code"]


def checksum(notebook):
    """Returns a checksum of the code, to find outputs that are not its own."""
    sources = ["".join(cell["source"]) for cell in code_cells(notebook)]
    return hashlib.sha256("\0".join(sources).encode()).hexdigest()


def execute(notebook, folder, changes=None):
    """Runs all cells and sets their outputs.

    Args:
        notebook: The result of `read`.
        folder: str or Path. The folder of the notebook, from which its cells
            can import.
        changes: dict. Names that get other values after the cell with the tag
            `parameters`.

    Returns:
        The names that the cells define, a dict.
    """
    names = {"__name__": "__main__"}
    sys.path.insert(0, os.fspath(folder))
    try:
        for number, cell in enumerate(code_cells(notebook), 1):
            cell["execution_count"] = number
            cell["outputs"] = _run(cell, number, names)
            if PARAMETERS in cell["metadata"].get("tags", ()):
                names |= changes or {}
    finally:
        sys.path.remove(os.fspath(folder))
    notebook["metadata"]["checksum_of_code"] = checksum(notebook)
    return names


def _run(cell, number, names):
    """Runs a cell; returns its outputs."""
    source = "".join(cell["source"])
    tree = ast.parse(source)
    last = None  # the expression to show; a semicolon after it hides it
    if isinstance(tree.body[-1], ast.Expr) and not source.endswith(";"):
        last = ast.Expression(tree.body.pop().value)
    where = f"cell {number}"
    value, printed = None, io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, where, "exec"), names)
        if last is not None:
            value = eval(compile(last, where, "eval"), names)
    outputs = []
    if printed.getvalue():
        text = printed.getvalue().splitlines(keepends=True)
        outputs.append(
            {"name": "stdout", "output_type": "stream", "text": text}
        )
    if value is not None:
        outputs.append(
            {
                "data": {"text/plain": repr(value).splitlines(keepends=True)},
                "execution_count": number,
                "metadata": {},
                "output_type": "execute_result",
            }
        )
    return outputs + _figures()


def _figures():
    """Returns the open figures as outputs, and closes them."""
    plots = sys.modules.get("matplotlib.pyplot")
    outputs = []
    for number in plots.get_fignums() if plots else ():
        figure, image = plots.figure(number), io.BytesIO()
        # Without matplotlib's version, which would change the file.
        figure.savefig(image, bbox_inches="tight", metadata={"Software": None})
        outputs.append(
            {
                "data": {
                    "image/png": base64.b64encode(image.getvalue()).decode(),
                    "text/plain": [str(figure)],
                },
                "metadata": {},
                "output_type": "display_data",
            }
        )
        plots.close(figure)
    return outputs


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", type=pathlib.Path)
    path = parser.parse_args().path
    notebook = read(path)
    execute(notebook, path.parent)
    write(notebook, path)


if __name__ == "__main__":
    main()
