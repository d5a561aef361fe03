r"""The escaping of tokens in tensor2tensor's subword vocabularies.

A string is split into tokens wherever a letter or number (Unicode categories L
and N) meets another character. A token that is one blank is left out unless it
is the first or the last. Each token is then spelled in a given alphabet: `\`
becomes `\\`, `_` becomes `\u`, any other character outside the alphabet
becomes `\number;`, its code point, and `_` marks the end. Reading puts one
blank between two tokens that begin with a letter or number, which restores
every text.

Python's Unicode tables decide which characters are letters and numbers.
`graph_escaping` has the same functions for graphs, with equal results.
"""

import functools
import itertools
import re
import sys
import unicodedata
from collections.abc import Collection

# These characters spell the others, so every alphabet contains them.
SPELLING = frozenset("\\_u;0123456789")

SPELLED = r"\\(?:u|\\|([0-9]+);)"
# U+3013 replaces a number beyond all code points.
UNDEFINED = 0x3013
MOST_DIGITS = len(str(sys.maxunicode))


@functools.cache
def alphanumeric() -> frozenset[str]:
    """Returns all letters and numbers."""
    return frozenset(
        character
        for character in map(chr, range(sys.maxunicode + 1))
        if unicodedata.category(character)[0] in "LN"
    )


def split(text: str) -> list[str]:
    """Returns the tokens of a text."""
    runs = itertools.groupby(text, alphanumeric().__contains__)
    tokens = ["".join(run) for _, run in runs]
    outer = (0, len(tokens) - 1)
    return [
        token
        for position, token in enumerate(tokens)
        if token != " " or position in outer
    ]


def spell(token: str, alphabet: Collection[str]) -> str:
    """Returns the spelling of a token.

    Args:
        token: str.
        alphabet: The characters that are not escaped, with `SPELLING`.
    """
    token = token.replace("\\", "\\\\").replace("_", "\\u")
    characters = [
        character if character in alphabet else f"\\{ord(character)};"
        for character in token
    ]
    return "".join(characters) + "_"


def read(spelled: str) -> str:
    """Returns the text of concatenated spelled tokens.

    A lone surrogate, which UTF-8 cannot hold, becomes "?".
    """
    tokens = [
        re.sub(SPELLED, _character, token)
        for token in spelled.split("_")
        if token
    ]
    parts = []
    was_alphanumeric = False
    for token in tokens:
        is_alphanumeric = token[0] in alphanumeric()
        if was_alphanumeric and is_alphanumeric:
            parts.append(" ")
        parts.append(token)
        was_alphanumeric = is_alphanumeric
    return without_surrogates("".join(parts))


def without_surrogates(text: str) -> str:
    """Returns a text with "?" in place of lone surrogates."""
    return text.encode("utf-8", errors="replace").decode("utf-8")


def _character(spelled: re.Match) -> str:
    """Returns the character that a match of `SPELLED` spells."""
    digits = spelled[1]
    if digits is None:
        return "_" if spelled[0] == "\\u" else "\\"
    # Python refuses to convert thousands of digits.
    digits = digits.lstrip("0")
    code = int(digits or 0) if len(digits) <= MOST_DIGITS else UNDEFINED
    return chr(code if code <= sys.maxunicode else UNDEFINED)
