"""The content of a request, read and checked.

Nothing here knows the model: `served` checks what a model can do.
"""

import contextlib
import dataclasses
import json
from typing import Any

from relpos_tf import errors
from relpos_tf import fields
from relpos_tf.decoding import decode_hparam
from relpos_tf.serving import limits as limits_lib

# The fields of `DecodeHParams` that a request may set.
OPTIONS = fields.kinds(decode_hparam.DecodeHParams).keys() - {
    "batch_size",
    "max_input_size",
    "n_best",
    "write_beam_scores",
    "return_alignments",
}
FIELDS = {"lines", "model", "n_best", "attention", "split_sentences"}
EXPECTED = (
    "The body must be a JSON object in UTF-8 with the header Content-Type: "
    'application/json, as {"lines": ["A dog runs."]}, or a form with `q`.'
)


@dataclasses.dataclass(frozen=True)
class Query(fields.Record):
    """What one request asks for.

    Attributes:
        lines: The lines to translate.
        decode_hparams: How to translate them.
        model: str. The model's name; "": the first.
        n_best: int. Translations of each line.
        attention: bool. Whether to add the weights of all layers and heads.
        split_sentences: bool. Whether the lines are still to be split.
        is_html: bool. Whether lines that are to be split have tags.
        sizes: The number of ids of each line, once it is known.
    """

    lines: tuple[str, ...]
    decode_hparams: decode_hparam.DecodeHParams
    model: str = ""
    n_best: int = fields.number(1, least=1)
    attention: bool = False
    split_sentences: bool = False
    is_html: bool = False
    sizes: tuple[int, ...] = ()


def read(body: bytes) -> dict[str, Any]:
    """Reads the body of a request: a JSON object.

    Raises:
        RefusedError: 400, the body is something else, or has half a character,
            which JSON can spell and no encoding has.

    Example:
    >>> read(b'{"q": "A dog.", "target": "de"}')
    {'q': 'A dog.', 'target': 'de'}
    """
    with contextlib.suppress(ValueError, RecursionError):
        values = json.loads(body.decode("utf-8-sig"))
        json.dumps(values, ensure_ascii=False).encode()
        if isinstance(values, dict):
            return values
    raise limits_lib.RefusedError(400, EXPECTED)


def parse(values: dict[str, Any]) -> Query:
    """Checks the object that asks for the translation of lines.

    Args:
        values: What `read` returned.

    Raises:
        UserError: a field is unknown, missing or beyond what it can hold.

    Example:
    >>> parse({"lines": ["A dog."], "n_best": 2}).n_best
    2
    """
    fields.check_names(values, FIELDS | OPTIONS, "fields")
    values = {name: x for name, x in values.items() if x is not None}
    lines = values.pop("lines", None)
    is_list = isinstance(lines, list)
    if not is_list or not all(isinstance(line, str) for line in lines):
        raise errors.UserError('Expected "lines": a list of str.')
    options = {name: values.pop(name) for name in OPTIONS if name in values}
    how = decode_hparam.DecodeHParams(**options)
    fields.check_effect(options, [how])
    return Query(lines=tuple(lines), decode_hparams=how, **values)


def check_sizes(query: Query, limits: limits_lib.Limits) -> None:
    """Refuses what would take too much memory or time.

    Raises:
        UserError: lines are too many, the search is too large, or lines that
            are not split are too long.
    """
    how = query.decode_hparams
    lengths = [0, *map(len, () if query.split_sentences else query.lines)]
    for name, value, most in (
        ("the number of lines", len(query.lines), limits.max_lines),
        ("the length of a line", max(lengths), limits.max_line_length),
        ("`n_best`", query.n_best, limits.max_beam_size),
        ("`beam_size`", how.beam_size, limits.max_beam_size),
        ("`extra_length`", how.extra_length, limits.max_extra_length),
    ):
        if value is not None and value > most:
            raise errors.UserError(
                f"This server allows at most {most} for {name}. "
                f"Received: {value}."
            )
