"""The escaping of tokens in tensor2tensor's subword vocabularies.

Shapes: N strings, C characters in all, K tokens in all, P parts of tokens.

A string is split into tokens wherever a letter or number (Unicode categories L
and N) meets another character. A token that is one blank is left out unless it
is the first or the last. Each token is then spelled in a given alphabet: `\\`
becomes `\\\\`, `_` becomes `\\u`, any other character outside the alphabet
becomes `\\number;`, its code point, and `_` marks the end. Reading puts one
blank between two tokens that begin with a letter or number, which restores
every text.

Each function exists for Python and for graphs (`_tf`), with equal results.
Python's Unicode tables decide which characters are letters and numbers; a
graph contains the tables of the Python that made it.
"""

import functools
import itertools
import re
import sys
import unicodedata
from collections.abc import Collection

import numpy as np
import tensorflow as tf

# These characters spell the others, so every alphabet contains them.
SPELLING = frozenset("\\_u;0123456789")

_SPELLED = r"\\(?:u|\\|([0-9]+);)"
_NUMBER = r"\\0*([0-9]*);"
# U+3013 replaces a number that is no code point.
_UNDEFINED = 0x3013
_MOST_DIGITS = len(str(sys.maxunicode))
_FIRST_SURROGATE, _LAST_SURROGATE = 0xD800, 0xDFFF


@functools.cache
def _alphanumeric() -> frozenset[str]:
    """Returns all letters and numbers."""
    return frozenset(
        character
        for character in map(chr, range(sys.maxunicode + 1))
        if unicodedata.category(character)[0] in "LN"
    )


@functools.cache
def _alphanumeric_bounds() -> np.ndarray:
    """Returns the codes where runs of letters and numbers start and stop."""
    codes = set(map(ord, _alphanumeric()))
    return np.array(sorted(codes ^ {code + 1 for code in codes}), np.int32)


def split(text: str) -> list[str]:
    """Returns the tokens of a text."""
    runs = itertools.groupby(text, _alphanumeric().__contains__)
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
        re.sub(_SPELLED, _character, token)
        for token in spelled.split("_")
        if token
    ]
    parts = []
    was_alphanumeric = False
    for token in tokens:
        is_alphanumeric = token[0] in _alphanumeric()
        if was_alphanumeric and is_alphanumeric:
            parts.append(" ")
        parts.append(token)
        was_alphanumeric = is_alphanumeric
    return without_surrogates("".join(parts))


def without_surrogates(text: str) -> str:
    """Returns a text with "?" in place of lone surrogates."""
    return text.encode("utf-8", errors="replace").decode("utf-8")


def _character(spelled: re.Match) -> str:
    """Returns the character that a match of `_SPELLED` spells."""
    digits = spelled[1]
    if digits is None:
        return "_" if spelled[0] == "\\u" else "\\"
    # Python refuses to convert thousands of digits.
    digits = digits.lstrip("0")
    code = int(digits or 0) if len(digits) <= _MOST_DIGITS else _UNDEFINED
    return chr(code if code <= sys.maxunicode else _UNDEFINED)


def spell_tf(strings: tf.Tensor, alphabet: Collection[str]) -> tf.RaggedTensor:
    """Returns the spelling of each token of each string.

    Args:
        strings: string [N]. Bytes that are not UTF-8 become U+FFFD.
        alphabet: See `spell`.

    Returns:
        string [N, (tokens)], ragged.
    """
    # This op puts U+FFFD in the same places as Python's `decode`.
    strings = tf.strings.unicode_transcode(
        strings, "UTF-8", "UTF-8", replace_control_characters=False
    )
    characters = tf.strings.unicode_split(strings, "UTF-8")  # [N, (C)]
    codes = tf.strings.unicode_decode(strings, "UTF-8").flat_values  # [C]
    rows = characters.value_rowids()  # [C]
    starts_token = _differs_from_previous(rows)  # [C]
    starts_token |= _differs_from_previous(_is_alphanumeric_tf(codes))
    starts = tf.where(starts_token)[:, 0]  # [K]

    spelled = _spell_characters_tf(characters.flat_values, codes, alphabet)
    tokens = tf.RaggedTensor.from_row_starts(spelled, starts)  # [K, (C)]
    tokens = tf.strings.reduce_join(tokens, axis=1)  # [K]
    tokens = tf.strings.join([tokens, "_"])
    rows = tf.gather(rows, starts)  # [K]

    is_first = _differs_from_previous(rows)  # [K]
    is_last = tf.concat([is_first[1:], tf.ones_like(is_first[:1])], axis=0)
    kept = is_first | is_last | (tokens != spell(" ", alphabet))  # [K]
    return tf.RaggedTensor.from_value_rowids(
        tf.boolean_mask(tokens, kept),
        tf.boolean_mask(rows, kept),
        nrows=characters.nrows(),
    )


def _spell_characters_tf(
    characters: tf.Tensor, codes: tf.Tensor, alphabet: Collection[str]
) -> tf.Tensor:
    """Returns the spelling of each character, string [C].

    Args:
        characters: string [C].
        codes: int32 [C]. Their code points.
        alphabet: See `spell`.
    """
    known = np.array(sorted(map(ord, alphabet)), np.int32)
    nearest = tf.searchsorted(known, codes, side="right") - 1  # [C]
    is_known = tf.gather(known, tf.maximum(nearest, 0)) == codes  # [C]
    numbers = tf.strings.join(["\\", tf.strings.as_string(codes), ";"])
    spelled = tf.where(is_known, characters, numbers)
    spelled = tf.where(codes == ord("\\"), "\\\\", spelled)
    return tf.where(codes == ord("_"), "\\u", spelled)


def read_tf(spelled: tf.Tensor) -> tf.Tensor:
    """Returns the texts of concatenated spelled tokens.

    Args:
        spelled: string [N].

    Returns:
        string [N].
    """
    tokens = tf.strings.split(spelled, "_")
    tokens = tf.ragged.boolean_mask(tokens, tokens != "")  # [N, (tokens)]
    # No token contains "_", so it can mark the ends of parts.
    marked = tf.strings.regex_replace(
        tokens.flat_values, f"({_SPELLED})", r"_\1_"
    )
    parts = tf.strings.split(marked, "_")  # [K, (parts)]
    parts = parts.with_flat_values(_read_parts_tf(parts.flat_values))
    texts = tf.strings.reduce_join(parts, axis=1)  # [K]

    first = tf.strings.substr(texts, 0, 1, unit="UTF8_CHAR")
    codes = tf.strings.unicode_decode(first, "UTF-8").flat_values  # [K]
    is_alphanumeric = _is_alphanumeric_tf(codes)  # [K]
    is_first = _differs_from_previous(tokens.value_rowids())  # [K]
    was_alphanumeric = tf.concat([is_first[:1], is_alphanumeric[:-1]], axis=0)
    needs_blank = ~is_first & was_alphanumeric & is_alphanumeric  # [K]
    texts = tf.strings.join([tf.where(needs_blank, " ", ""), texts])
    return tf.strings.reduce_join(tokens.with_flat_values(texts), axis=1)


def _read_parts_tf(parts: tf.Tensor) -> tf.Tensor:
    """Returns the text of parts of spelled tokens.

    Args:
        parts: string [P]. Each is a whole match of `_SPELLED`, or has none.

    Returns:
        string [P].
    """
    is_number = tf.strings.regex_full_match(parts, r"\\[0-9]+;")
    digits = tf.strings.regex_replace(parts, f"^{_NUMBER}$", r"\1")
    is_short = is_number & (tf.strings.length(digits) <= _MOST_DIGITS)
    digits = tf.strings.join(["0", tf.where(is_short, digits, "")])
    codes = tf.strings.to_number(digits, tf.int32)  # [P]
    is_code = is_short & (codes <= sys.maxunicode)
    codes = tf.where(is_code, codes, _UNDEFINED)
    is_surrogate = (codes >= _FIRST_SURROGATE) & (codes <= _LAST_SURROGATE)
    codes = tf.where(is_surrogate, ord("?"), codes)
    characters = tf.strings.unicode_encode(codes[:, tf.newaxis], "UTF-8")
    texts = tf.where(is_number, characters, parts)
    texts = tf.where(parts == "\\\\", "\\", texts)
    return tf.where(parts == "\\u", "_", texts)


def _is_alphanumeric_tf(codes: tf.Tensor) -> tf.Tensor:
    """Returns which code points are letters or numbers: bool."""
    bounds = _alphanumeric_bounds()
    return tf.searchsorted(bounds, codes, side="right") % 2 == 1


def _differs_from_previous(values: tf.Tensor) -> tf.Tensor:
    """Returns which values differ from the previous one; the first does."""
    first = tf.ones_like(values[:1], tf.bool)
    return tf.concat([first, values[1:] != values[:-1]], axis=0)
