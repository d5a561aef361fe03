"""The hparams that are compared: sets with changes, or a preset of sets."""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

from relpos_tf import errors
from relpos_tf import fields
from relpos_tf import hparam
from relpos_tf import registry

_ABSOLUTE = "self_attention_type=dot_product"
_SINUSOIDS = f"pos=timing,{_ABSOLUTE}"
_BOTH = ("both", "pos=timing")
# By preset, (label, changes to a set with relative positions only).
PRESETS: dict[str, tuple[tuple[str, str], ...]] = {
    "table1": (("relative", ""), ("absolute", _SINUSOIDS), _BOTH),
    "table2": tuple(
        (f"k={k}", f"max_relative_position={k}")
        for k in (0, 1, 2, 4, 16, 64, 256)
    ),
    "table3": (
        ("keys+values", ""),
        ("keys", "add_relative_to_values=false"),
        ("values", "add_relative_to_keys=false"),
        ("neither", "add_relative_to_keys=false,add_relative_to_values=false"),
    ),
    "length": (
        ("relative", ""),
        ("sinusoids", _SINUSOIDS),
        ("learned", f"pos=emb,{_ABSOLUTE}"),
        _BOTH,
        ("none", _ABSOLUTE),
    ),
    # How far positions beyond k propagate through layers.
    "depth": tuple(
        (
            f"k={k}-layers={layers}",
            f"max_relative_position={k},"
            f"num_encoder_layers={layers},num_decoder_layers={layers}",
        )
        for k in (1, 2, 16)
        for layers in (1, 2, 4)
    ),
    "localness": (
        ("sinusoids", _SINUSOIDS),
        ("fixed", f"{_SINUSOIDS},localness=fixed"),
        ("layer", f"{_SINUSOIDS},localness=layer"),
        ("query", f"{_SINUSOIDS},localness=query"),
        ("relative", ""),
        ("relative+query", "localness=query"),
    ),
    # One variant of each scheme in docs/positions.md that orders the words.
    "positions": (
        ("relative", ""),
        _BOTH,
        ("sinusoids", _SINUSOIDS),
        ("shape", f"{_SINUSOIDS},max_position_shift=500"),
        ("learned", f"pos=emb,{_ABSOLUTE}"),
        ("t5-bias", "self_attention_type=dot_product_relative_bias"),
        ("alibi", "self_attention_type=dot_product_alibi"),
        ("rotary", "self_attention_type=dot_product_rotary"),
        ("kerple", "self_attention_type=dot_product_kerple"),
        ("fire", "self_attention_type=dot_product_fire"),
        ("transformer-xl", "self_attention_type=dot_product_transformer_xl"),
        (
            "convolutional",
            f"{_SINUSOIDS},attention_window=5,attention_window_layers=3",
        ),
        ("localness", f"{_SINUSOIDS},localness=query"),
        ("encoder-only", f"{_SINUSOIDS},decoder_pos=none"),
        ("none", _ABSOLUTE),
    ),
}
# Hparams that flags or data decide, not the sets.
NOT_OF_SETS = frozenset({"train_steps", "vocab_size"})
DEFAULT_BASE = "transformer_relative_tiny"


class Variant(NamedTuple):
    """A label and its hparams.

    Attributes:
        label: str. Its name in the comparison.
        hparams_set: str. The set that it derives from.
        overrides: str. Its changes to the set that have an effect,
            `name=value,name=value`.
        hparams: The hparams with these changes.
        point: str. The last of the changes, those of a grid's point.
    """

    label: str
    hparams_set: str
    overrides: str
    hparams: hparam.HParams
    point: str = ""

    @classmethod
    def make(
        cls, label: str, name: str, changes: Mapping[str, Any], point: str = ""
    ) -> "Variant":
        """Returns the set `name`, with the changes that have an effect."""
        hparams = registry.hparams(name)
        kept = [*filter(hparams.replace(**changes).has_effect, changes)]
        text = ",".join(f"{key}={hparam_text(changes[key])}" for key in kept)
        own = [x for x in point.split(",") if x.partition("=")[0] in kept]
        return cls(label, name, text, hparams.override(text), ",".join(own))


def of_sets(sets: Sequence[str], changes: str, more: str = "") -> list[Variant]:
    """Returns a variant for each set.

    Args:
        sets: Names of sets. LABEL=NAME gives another label, as when a set is
            compared with itself under other changes.
        changes: str. `LABEL:name=value,name=value;LABEL:...`; changes without
            a label apply to all.
        more: str. Changes to all that override `changes`.

    Raises:
        UserError: an unknown set or field, or an unknown label in `changes`; or
            a change without effect in every model.
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
        changes: str. As for `of_sets`.
        more: str. Changes to all that override the others.

    Raises:
        UserError: an unknown set, field or label; a change of what the preset
            compares, or without effect in every model; or the set has other
            positions than relative ones, or other ones in the decoder.
    """
    hparams = registry.hparams(base)
    is_alike = hparams.of_decoder() == hparams
    if hparams.pos != "none" or not hparams.is_relative or not is_alike:
        raise errors.UserError(
            "A preset derives from a set with relative positions only, such "
            f"as {DEFAULT_BASE}. Received: {base}."
        )
    named = [(label, base, own) for label, own in PRESETS[preset]]
    compared = {
        name for own in named for name in fields.parse(own[2], hparam.HParams)
    }
    for given in _parse(changes, [label for label, _, _ in named]).values():
        for name in given:
            if {name, name.removeprefix("decoder_")} & compared:
                raise errors.UserError(
                    f"`{name}` is what --preset={preset} compares. Compare "
                    "other sets with --hparams_sets."
                )
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
    changed = {}
    for name in hparam.field_types():
        values = {k: getattr(hparams, name) for k, hparams in by_label.items()}
        if len(set(values.values())) > 1:
            changed[name] = values
    return changed


def differences_table(differences: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns the result of `differences` as lines for a terminal."""
    if not differences:
        return "Nothing differs.\n"
    import tabulate  # comes with sacreBLEU

    labels = list(next(iter(differences.values())))
    rows = [
        [name, *(hparam_text(values[label]) for label in labels)]
        for name, values in differences.items()
    ]
    text = tabulate.tabulate(
        rows, ["", *labels], tablefmt="plain", disable_numparse=True
    )
    return f"{text}\n"


def hparam_text(value: Any) -> str:
    """Writes the value of an hparam as --hparams reads it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def check_labels(labels: Sequence[str]) -> None:
    """Raises UserError if a label stands twice."""
    twice = sorted({label for label in labels if labels.count(label) > 1})
    if twice:
        raise errors.UserError(
            "Expected another label, as in LABEL=NAME, for each set, run or "
            f"system. Received twice: {', '.join(twice)}."
        )


def _variants(named, changes, more):
    """Applies the changes to (label, set, own changes)."""
    labels = [label for label, _, _ in named]
    by_label = _parse(changes, labels)
    variants = []
    for label, name, own in named:
        own, last = (fields.parse(text, hparam.HParams) for text in (own, more))
        every = by_label[""] | by_label.get(label, {}) | own | last
        variants.append(Variant.make(label, name, every))
    for label, own in by_label.items():
        theirs = [one.hparams for one in variants if label in ("", one.label)]
        fields.check_effect(own, theirs)
        for key, value in own.items():
            if value not in [getattr(hparams, key) for hparams in theirs]:
                raise errors.UserError(
                    f"`{key}={hparam_text(value)}` has no effect: the label "
                    "or --train_max_length sets it."
                )
    return variants


def _parse(text, labels):
    """Returns dicts of changes by label; those under "" apply to all."""
    by_label = {"": []}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        label, colon, changes = (piece.strip() for piece in part.partition(":"))
        if not colon:
            label, changes = "", label
        elif label not in labels:
            raise errors.UserError(
                "--hparams reads LABEL:name=value;LABEL:name=value, with the "
                f"labels {', '.join(labels)}. Received: {part!r}."
            )
        by_label.setdefault(label, []).append(changes)
    return {
        label: fields.parse(",".join(texts), hparam.HParams)
        for label, texts in by_label.items()
    }
