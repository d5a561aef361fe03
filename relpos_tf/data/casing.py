"""Lines in capitals and in title case, read in the letters that training knows.

A model that saw few such lines spells their words letter by letter and cannot
translate them. So each of their words is read in the form that has the fewest
pieces in the vocabulary, and of these the most frequent ones: in lower case, as
it is, or capitalised; in title case, words that begin with two capitals stay.
A short line that gets no fewer pieces stays as it is: it may be a name. The
translation of a line in capitals is in capitals. `graph_casing` does so in
graphs.
"""

import unicodedata
from collections.abc import Callable

# What a piece counts besides its id, which is the larger, the rarer it is: more
# than the ids of any vocabulary.
PIECE = 10**7
# Words of a line that may be a name.
NAME = 3


def encode(
    line: str, encoder: Callable[[str], list[int]]
) -> tuple[list[int], Callable[[str], str]]:
    """Returns the ids of a line, and what writes its translation.

    If the first letter of each word is a capital, and no letter is of a script
    without capitals, the words are read in other forms; the first letter of the
    line stays. U+0020 ends words.

    Args:
        line: str.
        encoder: Returns the ids of a text.
    """
    words = line.split(" ")
    starts = [*map(_first_letter, words)]
    begins = [word[i : i + 2] for word, i in zip(words, starts, strict=True)]
    own = encoder(line)
    # TensorFlow's capitals end at NUL.
    used = {*line} - {*"ªº"}
    has_other = any(c == "\0" or unicodedata.category(c) == "Lo" for c in used)
    if has_other or not _are_capitals(begin[:1] for begin in begins):
        return own, str
    is_upper = _are_capitals(line)
    best = (
        word  # as (USA), not as Don'T, which some programs write
        if not is_upper and [*map(unicodedata.category, begin)] == ["Lu"] * 2
        else min(
            (word.lower(), word, word[: i + 1] + word[i + 1 :].lower()),
            key=lambda form: sum(PIECE + i for i in encoder(form)),
        )
        for word, i, begin in zip(words, starts, begins, strict=True)
    )
    end = _first_letter(line) + 1
    text = line[:end] + " ".join(best)[end:]
    ids = encoder(text)
    if text == line or (len(words) <= NAME and len(ids) >= len(own)):
        return own, str
    return ids, str.upper if is_upper else str


def _are_capitals(characters):
    """Returns whether no letter has a capital, but for sharp s."""
    letters = {c for c in characters if c.isalpha()} - {*"ßªº"}
    return all(c.isupper() or unicodedata.category(c) == "Lm" for c in letters)


def _first_letter(text):
    """Returns the place of the first letter, the end if there is none."""
    return next((i for i, c in enumerate(text) if c.isalpha()), len(text))
