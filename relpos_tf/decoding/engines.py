"""Engines translate batches of lines: the interface. No TensorFlow.

`translator` decides which lines form a batch. `model_engine` translates with a
model, `saved_model_engine`, `ctranslate2_engine` and `litert_engine` with
exports; `engine_kinds` chooses one of them for a folder. `worker_engine` is
several of them, in processes of their own.
"""

from collections.abc import Callable
from typing import Any
from typing import NamedTuple
from typing import Protocol
from typing import runtime_checkable

import numpy as np

from relpos_tf.data import tokenizer as tokenizer_lib
from relpos_tf.decoding import decode_hparam

NO_HYPOTHESIS = decode_hparam.NO_HYPOTHESIS
# What ends a line, which byte pieces can spell. Also for RE2.
LINE_END = r"[\r\n]"
# What `str.isspace` calls blank, for RE2, whose own classes are ASCII.
BLANK = (
    r"[\t-\r\x1c-\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}"
    r"\x{202f}\x{205f}\x{3000}]*"
)


class Item(NamedTuple):
    """One line, ready to be translated."""

    content: Any  # the line as its engine needs it
    size: int  # number of ids, EOS included
    number: int = 0  # the line's number, which decides what is drawn for it
    prefix: tuple[int, ...] = ()  # ids that its translation begins with

    def limit(self, extra_length: int) -> int:
        """Returns the largest number of ids of the line's translation."""
        return max(self.size, len(self.prefix)) + extra_length


class Attention(NamedTuple):
    """The attention of a translation to its source.

    Attributes:
        source: list of str. The source's pieces, EOS last.
        target: list of str. The translation's pieces.
        weights: float32 array, layers x heads x target x source. Row t holds
            the weights with which piece t was predicted; each sums to 1.
    """

    source: list[str]
    target: list[str]
    weights: np.ndarray


class Translation(NamedTuple):
    """The best translations of one line."""

    texts: list[str]  # best first, "" where fewer were found than wanted
    scores: list[float]  # `NO_HYPOTHESIS` where fewer were found
    is_complete: bool  # False if the length limit cut the best one off
    ids: list[list[int]] = []  # of each text, if the engine knows them
    attention: list[Attention | None] = []  # of each text, if wanted


class Engine(Protocol):
    """The interface between `Translator` and a model or an export."""

    def complete(
        self, decode_hparams: decode_hparam.DecodeHParams
    ) -> decode_hparam.DecodeHParams:
        """Replaces None by the engine's own values.

        Raises:
            UserError: the engine cannot translate so.
        """

    def items(self, lines: list[str]) -> list[Item]:
        """Prepares lines, without the blanks around them."""

    def truncate(self, item: Item, size: int) -> Item:
        """Returns a line cut to `size` ids, of which EOS is the last.

        Raises:
            UserError: the engine cannot cut lines.
        """

    def translate(
        self,
        items: list[Item],
        decode_hparams: decode_hparam.DecodeHParams,
        n_best: int,
    ) -> list[Translation]:
        """Translates lines in one batch.

        Raises:
            UserError: a line is too long.
            MemoryError: the batch does not fit into memory; TensorFlow's
                error for it is `ResourceExhaustedError`.
        """


@runtime_checkable
class SteerableEngine(Engine, Protocol):
    """An engine that forces beginnings and knows the attention."""

    def with_prefixes(
        self, items: list[Item], prefixes: list[str]
    ) -> list[Item]:
        """Adds the beginnings of the translations."""

    def with_attention(
        self, items: list[Item], translations: list[Translation]
    ) -> list[Translation]:
        """Adds the attention of each translation of each line."""


@runtime_checkable
class ParallelEngine(Engine, Protocol):
    """Several engines that are alike and work at once.

    Attributes:
        number: int. How many there are.
    """

    number: int

    def call(
        self, function: Callable[..., Any], *arguments: Any
    ) -> Callable[[], Any]:
        """Begins a call with the first engine that is free.

        Args:
            function: A function of a module; its first argument is the engine.
            *arguments: Its other arguments.

        Returns:
            A function without arguments that waits for the result. It raises
            what the call raised.
        """


def blank_translation(n_best: int) -> Translation:
    """Returns the translation of a blank line."""
    scores = [0.0] + [NO_HYPOTHESIS] * (n_best - 1)
    return Translation([""] * n_best, scores, True, attention=[None] * n_best)


def is_blank(line: str) -> bool:
    """Returns whether a line is empty or all white space."""
    return not line or line.isspace()


class IdEngine:
    """What engines of models from ids to ids share: their lines are ids.

    Attributes:
        tokenizer: `tokenizer.Tokenizer`.
    """

    tokenizer: tokenizer_lib.AnyTokenizer

    def items(self, lines: list[str]) -> list[Item]:
        """Turns lines into ids, without the blanks around them."""
        # Training pairs have no such blanks.
        encoded = self.tokenizer.encode_batch([line.strip() for line in lines])
        return [Item(ids, len(ids)) for ids in encoded]

    def truncate(self, item: Item, size: int) -> Item:
        """Returns a line cut to `size` ids, of which EOS is the last."""
        ids = [*item.content[: size - 1], tokenizer_lib.EOS_ID]
        return item._replace(content=ids, size=len(ids))
