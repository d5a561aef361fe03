"""What `--decode_hparams` may set.

The names are tensor2tensor's. Nothing here needs TensorFlow, so a mistake is
found before anything slow begins.
"""

import dataclasses
from typing import Any

from relpos_tf import errors
from relpos_tf import hparam
from relpos_tf.utils import checked_json

# Translations of one line that may be drawn: all are in memory at once.
MOST_DRAWN = 1024
# The least and the largest value of a number. What is too large to
# mean anything would run for ever, take all memory or overflow inside.
_RANGES = {
    "beam_size": (1, hparam.LARGEST_INT),
    "alpha": (0, hparam.MOST["alpha"]),
    "extra_length": (0, hparam.MOST["extra_length"]),
    "batch_size": (0, hparam.LARGEST_INT),
    "max_input_size": (0, hparam.LARGEST_INT),
    "min_length": (0, hparam.MOST["extra_length"]),
    # Each of so many ids is compared in operations of its own.
    "no_repeat_ngram_size": (0, 100),
    # A float32 holds these, and what they divide log-probabilities into.
    "sampling_temp": (1e-30, 1e30),
    "sampling_keep_top_k": (0, hparam.LARGEST_INT),
    "random_seed": (-hparam.LARGEST_INT, hparam.LARGEST_INT),
}
_PARSERS = {
    "int": int,
    "str": str,
    "float": float,
    "bool": {"true": True, "1": True, "false": False, "0": False}.__getitem__,
}


@dataclasses.dataclass(frozen=True)
class DecodeHParams:
    """How to translate; None stands for the value in the run's hparams.

    Raises:
        UserError: a value is outside what its field can hold.

    Example:

    >>> DecodeHParams.parse("beam_size=2,alpha=1,return_beams=true").alpha
    1.0
    """

    beam_size: int | None = None
    alpha: float | None = None
    extra_length: int | None = None
    batch_size: int = 0  # most lines translated at once; 0: the default
    return_beams: bool = False  # all hypotheses of a line, tab-separated
    write_beam_scores: bool = False  # and the score after each
    max_input_size: int = 0  # ids kept of a longer line; 0: all
    min_length: int = 0  # ids before the end
    no_repeat_ngram_size: int = 0  # no n-gram of this size twice; 0: any
    sampling_method: str = "argmax"  # a search; random: drawn, not searched
    sampling_temp: float = 1.0  # divides log-probabilities before drawing
    sampling_keep_top_k: int = 0  # draw from the k most probable; 0: all
    sampling_top_p: float = 1.0  # draw from the fewest that add up to p
    random_seed: int = 1  # of drawing

    def __post_init__(self):
        for name, (least, most) in _RANGES.items():
            value = getattr(self, name)
            # Written so that nan is refused too.
            if value is not None and not value >= least:
                self._refuse(name, f"at least {least}")
            if value is not None and value > most:
                self._refuse(name, f"at most {most}")
        if self.sampling_method not in ("argmax", "random"):
            raise errors.UserError(
                "`sampling_method` must be argmax or random. "
                f"Received: {self.sampling_method!r}."
            )
        if not 0 < self.sampling_top_p <= 1:
            self._refuse("sampling_top_p", "in the range (0, 1]")

    def _refuse(self, name, expected):
        raise errors.UserError(
            f"`{name}` must be {expected}. "
            f"Received: {name}={getattr(self, name)}."
        )

    @classmethod
    def parse(cls, text: str) -> "DecodeHParams":
        """Reads a comma-separated list such as `"beam_size=4,alpha=0.6"`."""
        values: dict[str, Any] = {}
        for item in filter(None, (part.strip() for part in text.split(","))):
            name, equals, value = (part.strip() for part in item.partition("="))
            if not equals:
                raise errors.UserError(
                    f"expected name=value,name=value. Received: {item!r}."
                )
            values[name] = _parse(name, value)
        return cls(**values)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "DecodeHParams":
        """Takes the fields of a JSON object, of the types they have here.

        Raises:
            UserError: a name is unknown, or a value of another type.
        """
        kinds = {field.name: field.type for field in dataclasses.fields(cls)}
        if unknown := sorted(set(values) - set(kinds)):
            raise errors.UserError(f"unknown names {unknown}.")
        checked_json.check(values, kinds)
        return cls(**values)

    def fill(self, defaults: Any) -> "DecodeHParams":
        """Replaces None by the field of `defaults`, which may be `HParams`."""
        missing = {
            name: getattr(defaults, name)
            for name, value in self.search_settings().items()
            if value is None
        }
        return dataclasses.replace(self, **missing)

    @property
    def is_random(self) -> bool:
        """Whether translations are drawn and not searched for."""
        return self.sampling_method == "random"

    def check_number(self, name: str, number: int | str) -> None:
        """Raises UserError if so many translations of a line cannot be had.

        Args:
            name: str. What the user calls the number.
            number: int, or the str that is none.
        """
        most, why = self.beam_size, f"beam_size={self.beam_size}"
        if self.is_random:
            most = MOST_DRAWN
            why = f"{most}, the most that are drawn of a line"
        if isinstance(number, str) or not 1 <= number <= most:
            raise errors.UserError(
                f"`{name}` must be 1 to {why}. Received: {number}."
            )

    def check_plain(self, what: str) -> None:
        """Raises UserError if more is wanted than a plain beam search.

        Args:
            what: str. Who cannot do more.
        """
        plain = DecodeHParams()
        wanted = [
            f"{name}={getattr(self, name)}"
            for name in (
                "min_length",
                "no_repeat_ngram_size",
                "sampling_method",
            )
            if getattr(self, name) != getattr(plain, name)
        ]
        if wanted:
            raise errors.UserError(
                f"{what} cannot do {', '.join(wanted)}: translate with the run."
            )

    def options(self) -> dict[str, Any]:
        """Returns the fields that only a model of ours can keep to."""
        names = (
            "min_length",
            "no_repeat_ngram_size",
            "sampling_method",
            "sampling_temp",
            "sampling_keep_top_k",
            "sampling_top_p",
            "random_seed",
        )
        return {name: getattr(self, name) for name in names}

    def search_settings(self) -> dict[str, Any]:
        """Returns the fields that the search itself needs."""
        names = "beam_size", "alpha", "extra_length"
        return {name: getattr(self, name) for name in names}


def _parse(name: str, text: str) -> Any:
    """Returns the value of a field."""
    known = {
        field.name: getattr(field.type, "__name__", str(field.type))
        for field in dataclasses.fields(DecodeHParams)
    }
    if name not in known:
        raise errors.UserError(
            f"unknown name {name!r}.{errors.did_you_mean(name, known)} "
            f"Known: {', '.join(known)}."
        )
    kind = known[name].removesuffix(" | None")
    try:
        return _PARSERS[kind](text.lower())
    except (KeyError, ValueError) as error:
        raise errors.UserError(
            f"`{name}` must be of type {kind}. Received: {text!r}."
        ) from error
