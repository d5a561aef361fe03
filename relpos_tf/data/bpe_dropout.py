"""BPE-dropout: segmentations with random merges left out.

SentencePiece can draw them, too, but mixes a number of the process into its
seed: a resumed run and another host would draw others. Its rule also differs
from the paper's, in which a merge that was left out may be made after another
one.

Reference:
    Provilkov et al. (2020), BPE-Dropout, section 3, Algorithm 1.
"""

import functools
import random
import re
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping

_BLANK = "\u2581"  # SentencePiece's sign
# Words are independent: no piece crosses their ends.
_WORD = re.compile(f"{_BLANK}+[^{_BLANK}]*|[^{_BLANK}]+")
_CACHED_WORDS = 2**16


class Segmenter:
    """Splits the words of a sentence into pieces anew.

    Without dropout, the result is SentencePiece's: as long as two neighbours
    are a piece together, the pair with the highest score is merged, of equal
    ones the first.

    Args:
        pieces: dict of id and (piece, score). Without bytes and special pieces,
            whose ids stay as they are. A piece lies within one word.

    Example:
    >>> scores = {"ab": 0.0, "a": -1.0, "b": -2.0}
    >>> pieces = {i: item for i, item in enumerate(scores.items(), start=7)}
    >>> segmenter = Segmenter(pieces)
    >>> segmenter.segment([7, 7, 1], 0.0, random.Random(3))
    [7, 7, 1]
    >>> segmenter.segment([7, 7, 1], 1.0, random.Random(3))
    [8, 9, 8, 9, 1]
    """

    def __init__(self, pieces: Mapping[int, tuple[str, float]]):
        ids = {piece: i for i, (piece, _) in pieces.items()}
        self._ids = ids
        # A piece with a character outside the vocabulary cannot be split.
        self._pieces = {
            i: piece
            for i, (piece, _) in pieces.items()
            if all(character in ids for character in piece)
        }
        self._ranks = {piece: -score for piece, score in pieces.values()}
        # Most words of a text have occurred in it before.
        self._all_merged = functools.lru_cache(_CACHED_WORDS)(self._merge_all)

    def segment(
        self, ids: Iterable[int], dropout: float, generator: random.Random
    ) -> list[int]:
        """Returns the ids of another segmentation of the same text.

        Args:
            ids: The sentence. Unknown ids are allowed.
            dropout: float. The probability that a merge is left out, from 0 to
                1, which leaves single characters.
            generator: `random.Random` for the draws.
        """
        result, pieces = [], []
        for i in ids:
            piece = self._pieces.get(i)
            if piece is not None:
                pieces.append(piece)
                continue
            result += self._text(pieces, dropout, generator)
            result.append(i)
            pieces = []
        return result + self._text(pieces, dropout, generator)

    def _text(self, pieces, dropout, generator) -> list[int]:
        """Returns the ids of text without bytes."""
        return [
            self._ids[piece]
            for word in _WORD.findall("".join(pieces))
            for piece in self._word(word, dropout, generator)
        ]

    def _word(self, word, dropout, generator) -> list[str]:
        """Returns the pieces of a word."""
        merged, steps = self._all_merged(word)
        # The number of steps before the best merge is dropped. Mostly no best
        # merge is, and the usual pieces need not be computed again.
        draw, kept, share = generator.random(), 0, 1 - dropout
        while kept < steps and draw < share:
            kept += 1
            share *= 1 - dropout
        if kept == steps:
            return merged
        return self._merge(word, kept, dropout, generator)

    def _merge_all(self, word) -> tuple[list[str], int]:
        """Returns the pieces of a word without dropout, and the merges."""
        pieces = self._merge(word, len(word), 0.0, None)
        return pieces, len(word) - len(pieces)

    def _merge(self, word, kept, dropout, generator) -> list[str]:
        """Makes the best merge `kept` times, drops it once, and continues."""
        pieces = list(word)

        def rank(i):
            return self._ranks.get(pieces[i] + pieces[i + 1])

        ranks = [rank(i) for i in range(len(pieces) - 1)]
        while True:
            merges: Iterator[tuple[float, int | None]] = iter(
                sorted((r, i) for i, r in enumerate(ranks) if r is not None)
            )
            if kept == 0:
                next(merges, None)
            if kept <= 0:
                merges = (m for m in merges if generator.random() >= dropout)
            _, i = next(merges, (0, None))
            if i is None:
                return pieces
            pieces[i : i + 2] = [pieces[i] + pieces[i + 1]]
            del ranks[i]
            for neighbour in range(max(i - 1, 0), min(i + 1, len(ranks))):
                ranks[neighbour] = rank(neighbour)
            kept -= 1
