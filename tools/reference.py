"""The page docs/reference/hyperparameters.md, which `make golden` writes.

A field's description is its comment in `relpos_tf/hparam.py`; a set's is its
docstring.
"""

import ast
import functools
import inspect
import pathlib
import re
import sys
from collections.abc import Iterator

import keras

from relpos_tf import fields
from relpos_tf import hparam
from relpos_tf import registry
from relpos_tf.models import transformer

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "hyperparameters.md"
SETS = "relpos_tf.hparams"


def page() -> str:
    """Returns the page."""
    about = f"# Hyper-parameters\n\n{inspect.getdoc(hparam)}"
    sets = f"\n## Sets\n\n{inspect.getdoc(sys.modules[SETS])}"
    return "\n".join([about, *_fields(), sets, *_sets(), ""])


def _fields() -> Iterator[str]:
    """Yields the headings of the fields, and a line for each field."""
    lines = inspect.getsource(hparam).split("\n")
    module = ast.parse("\n".join(lines)).body
    (record,) = (node for node in module if isinstance(node, ast.ClassDef))
    last = record.body[0].end_lineno
    for node in record.body:
        if not isinstance(node, ast.AnnAssign):
            continue
        above = "\n".join(lines[last : node.lineno - 1])
        after = lines[node.end_lineno - 1][node.end_col_offset :]
        *headings, comment = above.split("\n\n")
        last = node.end_lineno
        if headings:
            yield f"\n## {_text(headings[-1])}\n"
            yield "| field | **default**, choices | meaning |"
            yield "|---|---|---|"
        yield _row(node.target.id, _text(comment + after))


def _text(comment):
    return re.sub(r"\s*#\s|\s+", " ", comment).strip()


def _row(name, meaning):
    """Returns the line of a field."""
    limits = fields.limits(hparam.HParams, name)
    others = [f", `{c}`" for c in getattr(limits, "choices", ())[1:]]
    values = f"**{getattr(hparam.HParams(), name)}**{''.join(others)}"
    if when := fields.condition(hparam.HParams, name).replace("|", r"\|"):
        meaning += " Needs " + re.sub(r"\\\||!?=", r" \g<0> ", when) + "."
    return f"| {name} | {values} | {meaning} |"


def _sets() -> Iterator[str]:
    """Yields a table for each module of `hparams/`."""
    yield "\nWeights are those beside the token embeddings."
    for module in filter(inspect.ismodule, vars(sys.modules[SETS]).values()):
        heading = module.__name__.rpartition(".")[2]
        yield f"\n### {heading}\n\n{inspect.getdoc(module)}\n"
        yield "| set | layers | weights | steps | description |"
        yield "|---|---|---|---|---|"
        for name in filter(vars(module).get, registry.list_hparams()):
            yield _set(name, vars(module)[name])


@functools.cache
def _weights(_, *rest):
    """Returns the number of weights beside the token embeddings."""
    hparams = hparam.HParams(1, *rest)
    with keras.StatelessScope(initialize_variables=False):  # no memory
        model = transformer.Transformer(hparams)
    return model.count_params() - hparams.hidden_size


def _set(name, made_by):
    """Returns the line of a set."""
    hparams = registry.hparams(name)
    weights = _weights(*(getattr(hparams, n) for n in hparam.model_fields()))
    # The command, which is indented, is not a part of the table.
    text = re.sub(r"\n\n +relpos-(.+\\\n)*.+", " ", made_by.__doc__)
    return (
        f"| {name} | {hparams.encoder_layers} + {hparams.decoder_layers} of "
        f"{hparams.hidden_size} | {weights:,} | {hparams.train_steps:,} | "
        f"{' '.join(text.split())} |"
    )
