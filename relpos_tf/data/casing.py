"""Lines in capitals and in title case, read in the letters that training knows.

A model that saw few such lines spells their words letter by letter and cannot
translate them. So each of their words is read in the form that has the fewest
pieces in the vocabulary, and of these the most frequent ones: in lower case, as
it is, or capitalised. Names stay as they are where the vocabulary knows them,
and so does the text of a training in capitals; in title case, words that begin
with two capitals do. The translation of a line in capitals is in capitals.
`graph_casing` does so in graphs.
"""

from collections.abc import Callable

# What a piece counts besides its id, which is the larger, the rarer it is: more
# than the ids of any vocabulary.
PIECE = 10**7


def encode(
    line: str, encoder: Callable[[str], list[int]]
) -> tuple[list[int], Callable[[str], str]]:
    """Returns the ids of a line, and what writes its translation.

    If the first letter of each word is a capital, the words are read in other
    forms; the first character of the line stays. U+0020 ends words.

    Args:
        line: str.
        encoder: Returns the ids of a text.
    """
    words = line.split(" ")
    signs = "".join(c for c in line if not c.isalpha())
    begins = [word.lstrip(signs)[:2] for word in words]
    # TensorFlow's capitals end at NUL.
    if "\0" in line or not _are_capitals(begin[:1] for begin in begins):
        return encoder(line), str
    is_upper = _are_capitals(line)
    best = (
        word  # as (USA), not as Don'T, which some programs write
        if not is_upper and begin.isalpha() and begin[1:].isupper()
        else min(
            (word.lower(), word, word[:1] + word[1:].lower()),
            key=lambda form: sum(PIECE + i for i in encoder(form)),
        )
        for word, begin in zip(words, begins, strict=True)
    )
    text = line[:1] + " ".join(best)[1:]
    return encoder(text), str.upper if is_upper and text != line else str


def _are_capitals(characters):
    """Returns whether no letter is another than a capital."""
    return all(c.isupper() or not c.isalpha() for c in characters)
