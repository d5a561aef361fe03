"""Engines translate batches of lines: their interface. No TensorFlow.

`translator` decides which lines form a batch. `model_engine` translates with a
model, `saved_model_engine`, `ctranslate2_engine` and `litert_engine` with
exports; `engine_kinds` chooses one of them for a folder.
"""

import abc
import itertools
import pathlib
import re
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import numpy as np

from relpos_tf.data import casing
from relpos_tf.data import spelling
from relpos_tf.data import tokenizer as tokenizer_lib
from relpos_tf.decoding import decode_hparam
from relpos_tf.decoding import export_files
from relpos_tf.utils import text as text_lib

NO_HYPOTHESIS = decode_hparam.NO_HYPOTHESIS
# Most lines of a batch, unless told otherwise.
BATCH_LINES = 128
# Most padded source ids of a batch, times the beams.
BATCH_IDS = 16384
# What ends a line, which byte pieces can spell. Also for RE2.
LINE_END = r"[\r\n]"
# What packages raise for a damaged export.
DAMAGE = KeyError, OSError, RuntimeError, TypeError, ValueError
BLANK = f"[{spelling.BLANKS}]*"  # for RE2


class Item(NamedTuple):
    """One line, ready to be translated."""

    content: Any  # the line as its engine needs it: ids, or bytes
    size: int  # number of ids, EOS included
    number: int = 0  # the line's number, which decides what is drawn for it
    prefix: tuple[int, ...] = ()  # ids that its translation begins with
    write: Callable[[str], str] = str  # see `casing.encode`

    def limit(self, extra_length: int) -> int:
        """Returns the largest number of ids of the line's translation."""
        return max(self.size, len(self.prefix)) + extra_length


class Attention(NamedTuple):
    """The attention of a translation to its source.

    Attributes:
        source: list of str. The source's pieces, as the model reads them (see
            `casing`); EOS is the last.
        target: list of str. The translation's pieces, as the model writes them.
        weights: float32 array, layers x heads x target x source. Row t holds
            the weights with which piece t was predicted; each sums to 1.
        source_words: list of int. The number of the word, from 0, that each
            piece but EOS is a part of. Blanks end words.
        target_words: list of int. The same of the translation.
    """

    source: list[str]
    target: list[str]
    weights: np.ndarray
    source_words: list[int]
    target_words: list[int]

    def word_pairs(self) -> list[tuple[int, int]]:
        """Returns the pairs of source and target words that are aligned.

        Each piece of the translation is aligned with the source piece that has
        the largest mean weight over all layers and heads. Words are aligned if
        a piece of one is with a piece of the other; EOS stands for no word.
        """
        mean = self.weights.mean(axis=(0, 1))  # [target, source]
        pairs = set()
        for target, row in zip(self.target_words, mean, strict=False):
            piece = row.argmax()
            if piece < len(self.source_words):
                pairs.add((self.source_words[piece], target))
        return sorted(pairs)


class Translation(NamedTuple):
    """The best translations of one line; `translation` makes it."""

    texts: list[str]  # best first, "" where fewer were found than wanted
    scores: list[float]  # `NO_HYPOTHESIS` where fewer were found
    is_complete: bool  # False if the length limit cut the best one off
    ids: list[list[int]] = []  # of each text, if the engine knows them
    attention: list[Attention | None] = []  # of each text, if wanted
    is_long: bool = False  # the line is longer than any source in training

    def alignment(self, number: int) -> str:
        """Returns the aligned words of one text, as in `0-0 1-2`.

        Each pair has a word of the source and one of the text, from 0.
        """
        attention = self.attention[number]
        pairs = attention.word_pairs() if attention else []
        return " ".join(f"{source}-{target}" for source, target in pairs)


class Hypothesis(NamedTuple):
    """A translation that a search has found."""

    text: str
    score: float  # its log-probability divided by the length penalty
    ids: list[int] = []  # EOS included; none if the engine does not know them


def translation(
    hypotheses: Iterable[Hypothesis],
    n_best: int,
    is_complete: bool,
    is_drawn: bool = False,
) -> Translation:
    """Returns the translation of a line: the best texts, each once.

    Different ids may spell the same text. It has the score of the best of
    them.

    Args:
        hypotheses: Best first. None of them is read after the last that is
            needed.
        n_best: int. How many texts are wanted. The places that are left over
            have "" and `NO_HYPOTHESIS`.
        is_complete: bool. Whether the best one ends in EOS.
        is_drawn: bool. Whether they were drawn at random; a text that was
            drawn twice then comes twice.
    """
    best: list[Hypothesis] = []
    for one in hypotheses:
        # A score may be NaN.
        if len(best) == n_best or not one.score > NO_HYPOTHESIS:
            break
        if is_drawn or one.text not in [other.text for other in best]:
            best.append(one)
    best += [Hypothesis("", NO_HYPOTHESIS)] * (n_best - len(best))
    return Translation(
        [one.text for one in best],
        [one.score for one in best],
        is_complete,
        [one.ids for one in best],
    )


def blank_translation(n_best: int) -> Translation:
    """Returns the translation of a blank line."""
    found = translation([Hypothesis("", 0.0)], n_best, is_complete=True)
    return found._replace(attention=[None] * n_best)


def is_blank(line: str) -> bool:
    """Returns whether a line shows nothing: its translation is empty."""
    return not line.strip(spelling.BLANKS)


def nan_logits(name: str) -> str:
    """Returns what to say of a model whose logits are NaN.

    Args:
        name: str. Where the model came from; "" if that is unknown.
    """
    return (
        f"NaN logits. The weights of {name or 'the model'} are ruined, as when "
        "training diverges: take an earlier checkpoint, as with "
        "--checkpoint_path, or train with a lower learning rate."
    )


def make_batches(
    sizes: list[int], batch_size: int = BATCH_LINES, batch_ids: int = BATCH_IDS
) -> Iterator[list[int]]:
    """Yields the indices of items that form a batch, the longest first.

    Args:
        sizes: The number of ids of each item.
        batch_size: int. Most items of a batch.
        batch_ids: int. Most ids of a batch, padding included.

    Yields:
        Lists of indices of `sizes`. Each index comes once.
    """
    order = sorted(range(len(sizes)), key=lambda i: -sizes[i])
    while order:
        # The first is the longest: the others are padded to its size.
        number = min(batch_size, max(1, batch_ids // sizes[order[0]]))
        yield order[:number]
        order = order[number:]


class Engine(abc.ABC):
    """The interface between `Translator` and a model or an export.

    Attributes:
        name: str. Where the model came from, for messages.
        tokenizer: `tokenizer.Tokenizer`, unless the engine takes strings.
        is_steerable: bool. Whether it forces beginnings and has attention.
        longest_source: int. Most ids of a source in training; 0: unknown.
        linear_ids: int. Up to so many ids, the memory of a line grows with its
            length, and beyond with the square of it.
    """

    name: str = ""
    longest_source: int = 0
    linear_ids: int = 2**31
    tokenizer: tokenizer_lib.AnyTokenizer
    is_steerable: bool = False

    @abc.abstractmethod
    def complete(
        self, decode_hparams: decode_hparam.DecodeHParams
    ) -> decode_hparam.Completed:
        """Replaces None by the engine's own values.

        Raises:
            UserError: the engine cannot translate so.
        """

    @abc.abstractmethod
    def translate(
        self, items: list[Item], decode_hparams: decode_hparam.Completed
    ) -> list[Translation]:
        """Translates lines in one batch.

        Raises:
            UserError: a line is too long.
            MemoryError: the batch does not fit into memory; TensorFlow's
                error for it is `ResourceExhaustedError`.
        """

    def items(
        self, lines: Sequence[str], prefixes: Sequence[str] = ()
    ) -> list[Item]:
        """Turns lines into ids, without the blanks around them.

        Args:
            lines: The lines.
            prefixes: The beginning of each translation; none: no beginnings.
        """
        items = []
        for line, prefix in itertools.zip_longest(lines, prefixes):
            start = tuple(self.encode(prefix or "")[:-1])  # without EOS
            line = line.strip(spelling.BLANKS)
            ids, write = casing.encode(line, self.tokenizer.encode)
            if start:  # it stays as it is, and so does its line
                ids, write = self.encode(line), str
            items.append(Item(ids, len(ids), prefix=start, write=write))
        return items

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text without the blanks around it.

        Training pairs have no such blanks.
        """
        return self.tokenizer.encode(text.strip(spelling.BLANKS))

    def is_long(self, item: Item) -> bool:
        """Returns whether a line is longer than any source in training."""
        return 0 < self.longest_source < item.size

    def truncate(self, item: Item, size: int) -> Item:
        """Returns a line cut to `size` ids, of which EOS is the last."""
        ids = [*item.content[: size - 1], text_lib.EOS_ID]
        return item._replace(content=ids, size=len(ids))

    def with_attention(
        self, items: list[Item], translations: list[Translation]
    ) -> list[Translation]:
        """Adds the attention of each text of each line, if it is steerable.

        Args:
            items: The lines.
            translations: What `translate` returned for them.
        """
        raise NotImplementedError(f"{self.name} has no attention.")

    def warm_up_steps(self) -> list[Callable[[], Any]]:
        """Returns functions for what takes long at its first use, if any."""
        return []

    def translation(
        self,
        item: Item,
        found: Iterable[tuple[list[int], float]],
        decode_hparams: decode_hparam.Completed,
    ) -> Translation:
        """Returns the translation of a line, from ids and scores, best first.

        See the function `translation`. Zeros may follow the last id.
        """
        n_best, is_drawn = decode_hparams.n_best, decode_hparams.is_random
        found = list(found)
        is_complete = bool(found) and text_lib.EOS_ID in found[0][0]
        hypotheses = (
            Hypothesis(item.write(self.text(ids)), score, ids)
            for ids, score in found
        )
        return translation(hypotheses, n_best, is_complete, is_drawn)

    def text(self, ids: Sequence[int]) -> str:
        """Returns the text of ids, which has no line end."""
        return re.sub(LINE_END, " ", self.tokenizer.decode(ids))

    def word_numbers(self, ids: Sequence[int]) -> list[int]:
        """Returns the number of the word, from 0, that each id is a part of.

        Args:
            ids: Those from EOS on are left out; all of them, if they spell
                nothing but blanks.
        """
        numbers: list[int] = []
        words: list[str] = []
        for end, one in enumerate(ids, 1):
            if one == text_lib.EOS_ID:
                break
            before, text = words, self.text(ids[:end])
            words = text.split()
            # A piece that is a blank belongs to the word that follows.
            is_blank = words == before and text[-1:] in ("", " ")
            numbers.append(len(words) if is_blank else len(words) - 1)
        return [min(number, len(words) - 1) for number in numbers if words]


class ExportEngine(Engine):
    """The engine of an export, with its settings.

    Args:
        folder: The export.

    Attributes:
        info: dict. The content of its `export_info.json`.
        fixed: The settings that nobody can change, besides
            `sampling_method` and `min_length`.

    Raises:
        UserError: the folder is damaged.
    """

    fixed: tuple[str, ...] = ()

    def __init__(self, folder: str | pathlib.Path):
        self.name = str(folder)
        self.info, self._decode_hparams = export_files.read(folder)
        self.longest_source = self.info["longest_source"]

    def complete(
        self, decode_hparams: decode_hparam.DecodeHParams
    ) -> decode_hparam.Completed:
        """Replaces None by the values of the export.

        Raises:
            UserError: a setting that is `fixed` is wanted otherwise.
        """
        return decode_hparams.fill_from_export(
            self._decode_hparams, *self.fixed
        )
