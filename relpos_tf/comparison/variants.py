"""What is compared: hparams sets with changes, or a preset of them."""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

from relpos_tf import errors
from relpos_tf import hparam
from relpos_tf import registry

_ABSOLUTE = "self_attention_type=dot_product"
_SINUSOIDS = f"pos=timing,{_ABSOLUTE}"
# By preset, (label, changes to a set with relative positions only).
PRESETS: dict[str, tuple[tuple[str, str], ...]] = {
    "table1": (("relative", ""), ("absolute", _SINUSOIDS)),
    "table2": tuple(
        (f"k={k}", f"max_relative_position={k}")
        for k in (0, 1, 2, 4, 16, 64, 256)
    ),
    "table3": (
        ("keys+values", ""),
        ("keys", "add_relative_to_values=false"),
        ("values", "add_relative_to_keys=false"),
        (
            "neither",
            "add_relative_to_keys=false,add_relative_to_values=false",
        ),
    ),
    "length": (
        ("relative", ""),
        ("sinusoids", _SINUSOIDS),
        ("learned", f"pos=emb,{_ABSOLUTE}"),
        ("both", "pos=timing"),
        ("none", _ABSOLUTE),
    ),
    "localness": (
        ("sinusoids", _SINUSOIDS),
        ("fixed", f"{_SINUSOIDS},localness=fixed"),
        ("layer", f"{_SINUSOIDS},localness=layer"),
        ("query", f"{_SINUSOIDS},localness=query"),
        ("relative", ""),
        ("relative+query", "localness=query"),
    ),
}
DEFAULT_BASE = "transformer_relative_tiny"


class Variant(NamedTuple):
    """One side of a comparison.

    Attributes:
        label: str. What it is called.
        hparams_set: str. The set it derives from.
        overrides: str. The changes, `name=value,name=value`.
        hparams: `HParams` with the changes.
    """

    label: str
    hparams_set: str
    overrides: str
    hparams: hparam.HParams


def of_sets(sets: Sequence[str], changes: str, more: str = "") -> list[Variant]:
    """Returns a variant for each set.

    Args:
        sets: Names of sets, or LABEL=NAME to call one differently, as where
            a set is compared with itself under other changes.
        changes: str. `LABEL:name=value,name=value;LABEL:...`; what has no
            label goes for all.
        more: str. Changes to all, above those.

    Raises:
        UserError: no such set or field, a label twice, or changes to a label
            that is not there.
    """
    named = []
    for item in sets:
        label, _, name = item.rpartition("=")
        named.append((label or name, name, ""))
    return _variants(named, changes, more)


def of_preset(
    preset: str, base: str, changes: str, more: str = ""
) -> list[Variant]:
    """Returns the variants of one of `PRESETS`.

    Args:
        preset: str. Its name.
        base: str. The set that all derive from.
        changes: str. See `of_sets`; the preset's own come later.
        more: str. See `of_sets`.

    Raises:
        UserError: as `of_sets`; or the set has not relative positions only.
    """
    hparams = registry.hparams(base)
    if hparams.pos != "none" or not hparams.is_relative:
        raise errors.UserError(
            "A preset derives from a set with relative positions only, such "
            f"as {DEFAULT_BASE}. Received: {base}."
        )
    named = [(label, base, own) for label, own in PRESETS[preset]]
    return _variants(named, changes, more)


def differences(
    by_label: Mapping[str, hparam.HParams],
) -> dict[str, dict[str, Any]]:
    """Returns `{field: {label: value}}` for the fields that are not all equal.

    Example:

    >>> hparams = hparam.HParams()
    >>> differences({"a": hparams, "b": hparams.replace(pos="none")})
    {'pos': {'a': 'timing', 'b': 'none'}}
    """
    found = {}
    for name in hparam.field_types():
        values = {k: getattr(hparams, name) for k, hparams in by_label.items()}
        if len(set(values.values())) > 1:
            found[name] = values
    return found


def differences_table(differences: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns what `differences` found as lines for a terminal."""
    if not differences:
        return "Nothing differs.\n"
    labels = list(next(iter(differences.values())))
    rows = [["", *labels]] + [
        [name, *(in_words(values[label]) for label in labels)]
        for name, values in differences.items()
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "".join(
        "  ".join(map(str.ljust, row, widths)).rstrip() + "\n" for row in rows
    )


def in_words(value: Any) -> str:
    """Writes a value as --hparams reads it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def check_labels(labels: Sequence[str]) -> None:
    """Raises UserError if there is no label, or one twice."""
    if not labels:
        raise errors.UserError("Expected something to compare. Received: none.")
    twice = sorted({label for label in labels if labels.count(label) > 1})
    if twice:
        raise errors.UserError(
            "Expected a name of its own for each, as in a=NAME,b=NAME. "
            f"Received twice: {', '.join(twice)}."
        )


def _variants(named, changes, more):
    """Applies the changes to (label, set, own changes)."""
    labels = [label for label, _, _ in named]
    check_labels(labels)
    by_label = _parse(changes, labels)
    found = []
    for label, name, own in named:
        texts = by_label[""], by_label.get(label, ""), own, more
        overrides = ",".join(text for text in texts if text)
        hparams = registry.hparams(name).override(overrides)
        found.append(Variant(label, name, overrides, hparams))
    return found


def _parse(text, labels):
    """Returns changes by label; those under "" go for all."""
    found = {"": []}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        label, colon, changes = (piece.strip() for piece in part.partition(":"))
        if not colon:
            label, changes = "", label
        elif label not in labels:
            raise errors.UserError(
                "--hparams reads LABEL:name=value;LABEL:name=value, with the "
                f"labels {', '.join(labels)}. Received: {part!r}."
            )
        found.setdefault(label, []).append(changes)
    return {label: ",".join(texts) for label, texts in found.items()}
