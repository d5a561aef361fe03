"""A grid of hparams: the points at which every variant is tuned."""

import itertools
from collections.abc import Sequence

from relpos_tf import errors
from relpos_tf import fields
from relpos_tf import hparam
from relpos_tf.comparison import variants as variants_lib


def axes(text: str) -> dict[str, tuple[str, ...]]:
    """Reads `name=value,value;name=value,value`: the values of each field.

    Raises:
        UserError: the text is not a grid, or a field or value is not an
            hparam's, stands twice, or is decided elsewhere.

    Example:
    >>> axes("pos=emb; alpha = 0.6, 1;")
    {'pos': ('emb',), 'alpha': ('0.6', '1')}
    """
    found = []
    for item in filter(None, (part.strip() for part in text.split(";"))):
        name, equals, values = (x.strip() for x in item.partition("="))
        texts = tuple(value.strip() for value in values.split(","))
        if not equals or not all(texts) or "=" in values:
            raise errors.UserError(
                "Expected name=value,value;name=value,value: the fields "
                f"with a semicolon between them. Received: {item!r}."
            )
        _check(name, texts)
        found.append((name, texts))
    if not found or len(dict(found)) < len(found):
        raise errors.UserError(
            "Expected one or more fields, each once. Received: "
            f"{', '.join(name for name, _ in found) or 'none'}."
        )
    return dict(found)


def expand(
    text: str, variants: Sequence[variants_lib.Variant]
) -> list[variants_lib.Variant]:
    """Returns every variant at every point of a grid, variant by variant.

    The last field changes fastest; one without effect in a variant is left out.

    Args:
        text: str. As `axes` reads it.
        variants: The variants.

    Raises:
        UserError: see `axes`; a variant cannot have the values of a point, or
            its changes set a field; or a field has no effect in any variant.
    """
    by_name = axes(text)
    for one in variants:
        changed = fields.parse(one.overrides, hparam.HParams).keys() & by_name
        if changed:
            raise errors.UserError(
                f"`{min(changed)}` is set for {one.label}: by its preset, by "
                "--hparams or by --train_max_length. Tune another field."
            )
    sides = [[f"{name}={v}" for v in by_name[name]] for name in by_name]
    points = [*map(",".join, itertools.product(*sides))]
    expanded = [
        variants_lib.Variant.make(
            one.label,
            one.hparams_set,
            fields.parse(one.overrides, hparam.HParams)
            | fields.parse(point, hparam.HParams),
            point,
        )
        for one in variants
        for point in points
    ]
    fields.check_effect(by_name, [one.hparams for one in expanded])
    return [*dict.fromkeys(expanded)]


def _check(name, texts):
    """Raises UserError unless a field can have these values, all distinct."""
    if name in variants_lib.NOT_OF_SETS:
        raise errors.UserError(
            f"Expected hparams that the sets decide. Received: {name}, which "
            "must be the same in all runs."
        )
    values = [fields.parse(f"{name}={x}", hparam.HParams)[name] for x in texts]
    if len(set(values)) < len(values):
        raise errors.UserError(
            f"Expected each value of {name} once. Received: {','.join(texts)}."
        )
