"""The fields of `--decode_hparams`, with tensor2tensor's names.

This module does not need TensorFlow, so mistakes are found without delay.
"""

import dataclasses
from typing import Any

from relpos_tf import errors
from relpos_tf import fields
from relpos_tf import hparam

# Translations of one line that may be drawn: all are in memory at once.
MOST_DRAWN = 1024
# The fields that are part of an export.
EXPORTED = "beam_size", "alpha", "extra_length"
# The fields that a graph of a search holds; it is given the others.
OF_GRAPH = (
    *("n_best", "beam_size", "min_length", "no_repeat_ngram_size"),
    *("sampling_method", "sampling_keep_top_k"),
)
_FIXED = "sampling_method", "min_length", "return_alignments"  # in exports
# The score of a place in the result that no hypothesis fills.
NO_HYPOTHESIS = -1e7
# Conditions of fields.
_SEARCHED, _DRAWN = "sampling_method=argmax", "sampling_method=random"


@dataclasses.dataclass(frozen=True)
class DecodeHParams(fields.Record):
    """How to translate. None: the value in the run's hparams.

    Raises:
        UserError: a value is outside what its field can hold.

    Example:
    >>> DecodeHParams.parse("beam_size=2,alpha=1,n_best=2").alpha
    1.0
    """

    beam_size: int | None = fields.like(
        hparam.HParams, "beam_size", when=_SEARCHED
    )
    alpha: float | None = fields.like(hparam.HParams, "alpha")
    extra_length: int | None = fields.like(hparam.HParams, "extra_length")
    batch_size: int = fields.number(0)  # lines translated at once; 0: 128
    n_best: int = fields.number(1, least=1)  # translations of a line
    write_beam_scores: bool = False  # and the score after each
    return_alignments: bool = False  # and pairs of words, by its attention
    max_input_size: int = fields.number(0)  # ids kept of a line; 0: all
    min_length: int = fields.number(0, most=10_000)  # ids before the end
    # No n-gram of this size twice; 0: any.
    no_repeat_ngram_size: int = fields.number(0, most=100)
    # argmax: beam search. random: drawn.
    sampling_method: str = fields.choice("argmax", "random")
    # Divides log-probabilities before drawing; a float32 holds the quotients.
    sampling_temp: float = fields.number(1.0, least=1e-30, when=_DRAWN)
    # Draw from the k most probable ids; 0: all.
    sampling_keep_top_k: int = fields.number(0, when=_DRAWN)
    # Draw from the fewest ids whose probabilities add up to p.
    sampling_top_p: float = fields.number(1.0, None, 1, above=0, when=_DRAWN)
    random_seed: int = fields.number(1, -fields.LARGEST_INT, when=_DRAWN)

    @classmethod
    def parse(cls, text: str) -> "DecodeHParams":
        """Reads a comma-separated list such as `"beam_size=4,alpha=0.6"`."""
        if "return_beams" in text:  # tensor2tensor's
            raise errors.UserError(
                "The N best translations are n_best=N, of at least N beams. "
                f"Received: {text}."
            )
        return cls().override(text)

    def fill(self, defaults: Any) -> "Completed":
        """Replaces None by the field of `defaults`, an `HParams` or like it."""
        missing = {
            name: getattr(defaults, name)
            for name, value in self.search_settings().items()
            if value is None
        }
        return Completed(**vars(self) | missing)

    @property
    def is_random(self) -> bool:
        """Whether translations are drawn at random."""
        return self.sampling_method == "random"

    def fill_from_export(
        self, exported: "DecodeHParams", *fixed: str
    ) -> "Completed":
        """Replaces None by the settings of an export.

        Args:
            exported: The settings that the export was made with.
            *fixed: The fields that nobody can change after that, besides
                `_FIXED`.

        Raises:
            UserError: another value of such a field is wanted.
        """
        for name in (*_FIXED, *fixed):
            value, expected = getattr(self, name), getattr(exported, name)
            if value not in (None, expected):
                again = name in self.search_settings()
                raise errors.UserError(
                    f"This export has {name}={expected}. "
                    f"Received: {name}={value}. Translate with the run"
                    f"{', or export again' if again else ''}."
                )
        return self.fill(exported)

    def search_settings(self) -> dict[str, Any]:
        """Returns the fields that are part of an export."""
        return {name: getattr(self, name) for name in EXPORTED}


@dataclasses.dataclass(frozen=True)
class Completed(DecodeHParams):
    """How to translate, without None."""

    beam_size: int = fields.like(hparam.HParams, "beam_size", when=_SEARCHED)
    alpha: float = fields.like(hparam.HParams, "alpha")
    extra_length: int = fields.like(hparam.HParams, "extra_length")

    @property
    def graph(self) -> tuple[Any, ...]:
        """The values of `OF_GRAPH`."""
        return tuple(getattr(self, name) for name in OF_GRAPH)

    def merged(self) -> "Completed":
        """Returns the same search, which finds as many as there are beams."""
        if self.n_best == 1 or self.is_random:
            return self
        return dataclasses.replace(self, n_best=self.beam_size)

    def __post_init__(self):
        super().__post_init__()
        most, reason = self.beam_size, f"beam_size={self.beam_size}"
        if self.is_random:
            most = MOST_DRAWN
            reason = f"{most}, the most that are drawn of a line"
        if self.n_best > most:
            raise errors.UserError(
                f"`n_best` must be 1 to {reason}. Received: {self.n_best}."
            )

    def check_beam_size(self, vocab_size: int) -> None:
        """Raises UserError if there are more beams than pieces."""
        if self.beam_size > vocab_size:
            raise errors.UserError(
                "`beam_size` must be at most the number of pieces, "
                f"{vocab_size}. Received: {self.beam_size}."
            )


def length_penalty(length: Any, alpha: Any) -> Any:
    """Returns what the log-probability of a translation is divided by.

    Args:
        length: float, or a tensor of floats: the number of ids, EOS included.
        alpha: float or scalar tensor. The exponent.

    Reference: Wu et al. (2016), section 7.
    """
    return ((5.0 + length) / 6.0) ** alpha
