"""The content of a request to translate, checked.

Nothing here knows the model: `served` checks what a model can do.
"""

import contextlib
import dataclasses
import json

from relpos_tf import errors
from relpos_tf import fields
from relpos_tf.decoding import decode_hparam
from relpos_tf.serving import limits as limits_lib

# The fields of `DecodeHParams` that a request may set.
OPTIONS = fields.kinds(decode_hparam.DecodeHParams).keys() - {
    "batch_size",
    "max_input_size",
    "return_beams",
    "write_beam_scores",
    "return_alignments",
}
_FIELDS = {"lines", "model", "n_best", "attention"}


@dataclasses.dataclass(frozen=True)
class Query:
    """What one request asks for.

    Attributes:
        lines: The lines to translate.
        decode_hparams: How to translate them.
        model: str. The model's name; "": the first.
        n_best: int. Translations of each line.
        attention: bool. Whether to add the weights of all layers and heads.
    """

    lines: tuple[str, ...]
    decode_hparams: decode_hparam.DecodeHParams
    model: str = ""
    n_best: int = fields.number(1, least=1)
    attention: bool = False

    def __post_init__(self):
        fields.check(self)


def parse(body: bytes, limits: limits_lib.Limits) -> Query:
    """Reads the body of a request.

    Args:
        body: bytes.
        limits: What the server takes on.

    Raises:
        RefusedError: 400, the body is not a JSON object.
        UserError: a field is unknown, missing or beyond what it can hold.

    Example:

    >>> parse(b'{"lines": ["A dog."], "n_best": 2}', limits_lib.Limits()).n_best
    2
    """
    values = None
    with contextlib.suppress(ValueError, RecursionError):
        values = json.loads(body)
    if not isinstance(values, dict):
        raise limits_lib.RefusedError(
            400,
            "The body must be a JSON object in UTF-8, as "
            '{"lines": ["A dog runs."]}.',
        )
    fields.check_names(values, _FIELDS | OPTIONS, "fields")
    values = {name: x for name, x in values.items() if x is not None}
    lines = values.pop("lines", None)
    is_list = isinstance(lines, list)
    if not is_list or not all(isinstance(line, str) for line in lines):
        raise errors.UserError('Expected "lines": a list of str.')
    options = {name: values.pop(name) for name in OPTIONS if name in values}
    query = Query(
        lines=tuple(map(_whole, lines)),
        decode_hparams=decode_hparam.DecodeHParams(**options),
        **values,
    )
    _check_sizes(query, limits)
    return query


def _whole(text):
    """Replaces half characters, which JSON can spell and no encoding has."""
    data = text.encode("utf-16-le", "surrogatepass")
    return data.decode("utf-16-le", "replace")


def _check_sizes(query, limits):
    """Refuses what would take too much memory or time."""
    how = query.decode_hparams
    for name, value, most in (
        ("the number of lines", len(query.lines), limits.max_lines),
        (
            "the length of a line",
            max(map(len, query.lines), default=0),
            limits.max_line_length,
        ),
        ("`n_best`", query.n_best, limits.max_beam_size),
        ("`beam_size`", how.beam_size, limits.max_beam_size),
        ("`extra_length`", how.extra_length, limits.max_extra_length),
    ):
        if value is not None and value > most:
            raise errors.UserError(
                f"This server allows at most {most} for {name}. "
                f"Received: {value}."
            )
