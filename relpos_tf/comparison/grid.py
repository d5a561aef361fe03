"""A grid of hparams: the points at which every variant is tuned."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from relpos_tf import errors
from relpos_tf import fields
from relpos_tf import hparam
from relpos_tf.comparison import variants as variants_lib

# Fields that a grid cannot change: flags or data decide them.
_FIXED = frozenset({"train_steps", "vocab_size"})


class Grid(NamedTuple):
    """Some values for each of some fields.

    Attributes:
        axes: (name, values as text) of each field.

    Example:
    >>> Grid.parse("pos=emb; alpha = 0.6, 1;").points()
    ['pos=emb,alpha=0.6', 'pos=emb,alpha=1']
    """

    axes: tuple[tuple[str, tuple[str, ...]], ...]

    @classmethod
    def parse(cls, text: str) -> "Grid":
        """Reads `name=value,value;name=value,value`.

        Raises:
            UserError: the text is not a grid, or a field or value is not an
                hparam's, stands twice, or is decided elsewhere.
        """
        axes = []
        for item in filter(None, (part.strip() for part in text.split(";"))):
            name, equals, values = (x.strip() for x in item.partition("="))
            texts = tuple(value.strip() for value in values.split(","))
            if not equals or not all(texts) or "=" in values:
                raise errors.UserError(
                    "Expected name=value,value;name=value,value: the fields "
                    f"with a semicolon between them. Received: {item!r}."
                )
            _check(name, texts)
            axes.append((name, texts))
        names = [name for name, _ in axes]
        if not axes or len(set(names)) < len(names):
            raise errors.UserError(
                "Expected one or more fields, each once. Received: "
                f"{', '.join(names) or 'none'}."
            )
        return cls(tuple(axes))

    def points(self) -> list[str]:
        """Returns the changes `name=value,name=value` of all points.

        The last field changes fastest.
        """
        sides = [[f"{name}={v}" for v in values] for name, values in self.axes]
        return [",".join(point) for point in itertools.product(*sides)]

    def expand(
        self, variants: Sequence[variants_lib.Variant]
    ) -> list[variants_lib.Variant]:
        """Returns every variant at every point, variant by variant.

        Raises:
            UserError: a variant cannot have the values of a point; or a field
                has no effect in any variant.
        """
        expanded = [
            variants_lib.Variant.make(
                one.label,
                one.hparams_set,
                fields.parse(one.overrides, hparam.HParams)
                | fields.parse(point, hparam.HParams),
                point,
            )
            for one in variants
            for point in self.points()
        ]
        names = [name for name, _ in self.axes]
        fields.check_effect(names, [one.hparams for one in expanded])
        return expanded


def _check(name, texts):
    """Raises UserError unless a field can have these values, all distinct."""
    if name in _FIXED:
        raise errors.UserError(
            f"Expected hparams that the sets decide. Received: {name}, which "
            "must be the same in all runs."
        )
    values = [fields.parse(f"{name}={x}", hparam.HParams)[name] for x in texts]
    if len(set(values)) < len(values):
        raise errors.UserError(
            f"Expected each value of {name} once. Received: {','.join(texts)}."
        )
