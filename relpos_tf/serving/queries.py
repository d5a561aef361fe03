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
from relpos_tf.utils import checked_json

# Fields of `DecodeHParams` that a request has under another name or not at all.
_NO_OPTIONS = frozenset(
    "batch_size max_input_size return_beams write_beam_scores".split()
)
OPTIONS = tuple(
    field.name
    for field in dataclasses.fields(decode_hparam.DecodeHParams)
    if field.name not in _NO_OPTIONS
)
_FIELDS = {
    "lines": list[str],
    "model": str | None,
    "n_best": int,
    "attention": bool | None,
}


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
    n_best: int = 1
    attention: bool = False


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
    fields.check_names(values, dict.fromkeys((*_FIELDS, *OPTIONS)), "fields")
    if "lines" not in values:
        raise errors.UserError('Expected "lines": a list of str.')
    try:
        checked_json.check(values, _FIELDS)
    except errors.UserError as error:
        raise errors.UserError(str(error).removeprefix("its field ")) from error
    options = {n: values[n] for n in OPTIONS if values.get(n) is not None}
    query = Query(
        lines=tuple(map(_whole, values["lines"])),
        decode_hparams=decode_hparam.DecodeHParams(**options),
        model=values.get("model") or "",
        n_best=values.get("n_best", 1),
        attention=values.get("attention") or False,
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
