"""The content of a request to translate, checked.

Nothing here knows the model: `served` checks what a model can do.
"""

import dataclasses
import json
from typing import Any

from relpos_tf import errors
from relpos_tf import fields
from relpos_tf.decoding import decode_hparam
from relpos_tf.serving import limits as limits_lib
from relpos_tf.utils import checked_json

AVERAGE, HEADS = "average", "heads"
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
    "prefix": list[str] | None,
    "attention": bool | str | None,
}


@dataclasses.dataclass(frozen=True)
class Query:
    """What one request asks for.

    Attributes:
        lines: The lines to translate.
        decode_hparams: How to translate them.
        model: str. The model's name; "": the first.
        n_best: int. Translations of each line.
        prefixes: The beginnings of the translations; empty: none.
        attention: str. `AVERAGE` over layers and heads, all `HEADS` of all
            layers, or "": none.
    """

    lines: tuple[str, ...]
    decode_hparams: decode_hparam.DecodeHParams
    model: str = ""
    n_best: int = 1
    prefixes: tuple[str, ...] = ()
    attention: str = ""


def parse(body: bytes, limits: limits_lib.Limits) -> Query:
    """Reads the body of a request.

    Args:
        body: bytes.
        limits: What the server takes on.

    Raises:
        RefusedError: 400 where the body is no JSON object, 422 where a field
            is unknown, missing or beyond what it can hold.

    Example:

    >>> parse(b'{"lines": ["A dog."], "n_best": 2}', limits_lib.Limits()).n_best
    2
    """
    try:
        values = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise limits_lib.RefusedError(
            400, f"The body must be JSON, in UTF-8. Received: {error}."
        ) from error
    if not isinstance(values, dict):
        raise limits_lib.RefusedError(
            400,
            'The body must be a JSON object, as {"lines": ["A dog runs."]}. '
            f"Received: {type(values).__name__}.",
        )
    try:
        return _query(values, limits)
    except limits_lib.RefusedError:
        raise
    except errors.UserError as error:
        raise limits_lib.RefusedError(422, str(error)) from error


def _query(values: dict[str, Any], limits: limits_lib.Limits) -> Query:
    fields.check_names(values, dict.fromkeys((*_FIELDS, *OPTIONS)), "fields")
    if "lines" not in values:
        raise errors.UserError('Expected "lines": a list of str.')
    _check_types(values, _FIELDS)
    lines = _texts("lines", values["lines"], limits)
    prefixes = _texts("prefix", values.get("prefix") or [], limits)
    if prefixes and len(prefixes) != len(lines):
        raise errors.UserError(
            "`prefix` must have one str for each line, perhaps empty. "
            f"Received: {len(prefixes)} for {len(lines)} lines."
        )
    attention = values.get("attention") or ""
    attention = AVERAGE if attention is True else attention
    if attention not in ("", AVERAGE, HEADS):
        raise errors.UserError(
            f'`attention` must be true, "{AVERAGE}" or "{HEADS}". '
            f"Received: {attention[:40]!r}."
        )
    options = {n: values[n] for n in OPTIONS if values.get(n) is not None}
    kinds = fields.kinds(decode_hparam.DecodeHParams)
    _check_types(options, {name: kinds[name] for name in options})
    decode_hparams = decode_hparam.DecodeHParams(**options)
    n_best = values.get("n_best", 1)
    _check_sizes(decode_hparams, n_best, limits)
    return Query(
        lines=lines,
        decode_hparams=decode_hparams,
        model=values.get("model") or "",
        n_best=n_best,
        # Blank ones force nothing.
        prefixes=prefixes if any(map(str.strip, prefixes)) else (),
        attention=attention,
    )


def _check_types(values, kinds):
    try:
        checked_json.check(values, kinds)
    except errors.UserError as error:
        raise errors.UserError(str(error).removeprefix("its field ")) from error


def _texts(name, texts, limits):
    """Returns strings that are neither too many nor too long."""
    if len(texts) > limits.max_lines:
        raise errors.UserError(
            f"`{name}` may have {limits.max_lines} elements. Received: "
            f"{len(texts)}. Send them in several requests."
        )
    for number, text in enumerate(texts, 1):
        if len(text) > limits.max_line_length:
            raise errors.UserError(
                f"`{name}` may have elements of {limits.max_line_length} "
                f"characters. Received: {len(text)} in number {number}."
            )
    # JSON can spell half a character, which no encoding has.
    return tuple(
        text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        for text in texts
    )


def _check_sizes(decode_hparams, n_best, limits):
    """Refuses searches that would take too much memory or time."""
    for name, value, most in (
        ("n_best", n_best, limits.max_beam_size),
        ("beam_size", decode_hparams.beam_size, limits.max_beam_size),
        ("extra_length", decode_hparams.extra_length, limits.max_extra_length),
    ):
        if value is not None and value > most:
            raise errors.UserError(
                f"`{name}` may be {most} here. Received: {value}."
            )
