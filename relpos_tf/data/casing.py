"""Lines in capitals and in title case, written as training writes sentences.

A model that saw few such lines spells their words letter by letter and cannot
translate them. So they are translated in lower case behind their first letter,
if that has fewer pieces: names that the vocabulary knows stay as they are, and
so does the text of a training in capitals. The translation of a line in
capitals is written in capitals. `graph_casing` has the same rules for graphs.
"""

from collections.abc import Callable

# Words of a line in title case. Fewer may be a name, or nouns of German.
TITLE = 4


def encode(
    line: str, encoder: Callable[[str], list[int]]
) -> tuple[list[int], Callable[[str], str]]:
    """Returns the ids of a line, and what writes its translation.

    A line is in capitals if it has no other letters, and in title case if the
    first letter of each word is a capital. U+0020 ends words.

    Args:
        line: str.
        encoder: Returns the ids of a text.
    """
    ids, words = encoder(line), list(filter(None, line.split(" ")))
    firsts = (next(filter(str.isalpha, word), "") for word in words)
    is_upper = _are_capitals(line)
    if is_upper or (len(words) >= TITLE and _are_capitals(firsts)):
        sentence = encoder(line[:1] + line[1:].lower())
        if len(sentence) < len(ids):
            return sentence, str.upper if is_upper else str
    return ids, str


def _are_capitals(characters):
    """Returns whether no letter is another than a capital."""
    return all(c.isupper() or not c.isalpha() for c in characters)
