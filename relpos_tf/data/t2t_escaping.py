"""Text as tensor2tensor spells it, for vocabularies of subwords.

Shapes: N strings, C characters in all, K tokens in all, S parts of them.

A string is cut into tokens wherever a letter or number (Unicode categories L
and N) meets another character. A token of one blank is left out unless it is
the first or the last. Each token is then spelled in a given alphabet: `\\`
becomes `\\\\`, `_` becomes `\\u`, any other character outside the alphabet
becomes `\\number;`, its code point, and `_` marks the end. Reading it back puts
one blank between two tokens that begin with a letter or number, so that every
text comes back as it went in.

Every function is there twice, for Python and for graphs (`_tf`), with equal
results. Which characters are letters and numbers, Python's Unicode tables
decide; a graph keeps the tables of the Python that made it.
"""

import functools
import itertools
import re
import sys
import unicodedata
from collections.abc import Collection

import numpy as np
import tensorflow as tf

# They spell the others, so they belong to every alphabet.
SPELLING = frozenset("\\_u;0123456789")

_SPELLED = r"\\(?:u|\\|([0-9]+);)"
_NUMBER = r"\\0*([0-9]*);"
# U+3013 stands for a number that is no code point.
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
    """Returns where letters and numbers begin and cease, in turns: int32."""
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
        alphabet: The characters that stand for themselves, `SPELLING` among
            them.
    """
    token = token.replace("\\", "\\\\").replace("_", "\\u")
    characters = [
        character if character in alphabet else f"\\{ord(character)};"
        for character in token
    ]
    return "".join(characters) + "_"


def read(spelled: str) -> str:
    """Returns the text that spelled tokens, one after another, stand for.

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
    """Returns the character that a match of `_SPELLED` stands for."""
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
        strings: string [N]. What is not UTF-8 becomes U+FFFD.
        alphabet: See `spell`.

    Returns:
        string [N, (tokens)], ragged.
    """
    # Python's `decode(errors="replace")` and this put U+FFFD in the same
    # places.
    strings = tf.strings.unicode_transcode(
        strings, "UTF-8", "UTF-8", replace_control_characters=False
    )
    characters = tf.strings.unicode_split(strings, "UTF-8")  # [N, (C)]
    codes = tf.strings.unicode_decode(strings, "UTF-8").flat_values  # [C]
    rows = characters.value_rowids()  # [C]
    begins_row = _differs_from_last(rows)  # [C]
    begins = begins_row | _differs_from_last(_is_alphanumeric_tf(codes))  # [C]
    ends_row, ends = _precedes(begins_row), _precedes(begins)  # [C]
    is_blank = (codes == ord(" ")) & begins & ends  # [C]
    kept = begins_row | ends_row | ~is_blank  # [C]

    spelled = _spell_characters_tf(characters.flat_values, codes, alphabet)
    spelled = tf.strings.join([spelled, tf.where(ends, "_", "")])  # [C]
    begins = tf.boolean_mask(begins, kept)
    tokens = tf.strings.unsorted_segment_join(
        tf.boolean_mask(spelled, kept),
        tf.cumsum(tf.cast(begins, tf.int32)) - 1,
        tf.math.count_nonzero(begins, dtype=tf.int32),
    )  # [K]
    return tf.RaggedTensor.from_value_rowids(
        tokens,
        tf.boolean_mask(tf.boolean_mask(rows, kept), begins),
        nrows=characters.nrows(),
    )


def _spell_characters_tf(
    characters: tf.Tensor, codes: tf.Tensor, alphabet: Collection[str]
) -> tf.Tensor:
    """Returns the spelling of characters, given with their codes: string."""
    known = np.array(sorted(map(ord, alphabet)), np.int32)
    nearest = tf.searchsorted(known, codes, side="right") - 1  # [C]
    is_known = tf.gather(known, tf.maximum(nearest, 0)) == codes  # [C]
    numbers = tf.strings.join(["\\", tf.strings.as_string(codes), ";"])
    spelled = tf.where(is_known, characters, numbers)
    spelled = tf.where(codes == ord("\\"), "\\\\", spelled)
    return tf.where(codes == ord("_"), "\\u", spelled)


def read_tf(spelled: tf.Tensor) -> tf.Tensor:
    """Returns the texts that spelled tokens, one after another, stand for.

    Args:
        spelled: string [N].

    Returns:
        string [N].
    """
    tokens = tf.strings.split(spelled, "_")
    tokens = tf.ragged.boolean_mask(tokens, tokens != "")  # [N, (tokens)]
    # No token holds a "_", so it can mark where to cut.
    marked = tf.strings.regex_replace(
        tokens.flat_values, f"({_SPELLED})", r"_\1_"
    )
    parts = tf.strings.split(marked, "_")  # [K, (parts)]
    parts = parts.with_flat_values(_read_parts_tf(parts.flat_values))
    texts = tf.strings.reduce_join(parts, axis=1)  # [K]

    first = tf.strings.substr(texts, 0, 1, unit="UTF8_CHAR")
    codes = tf.strings.unicode_decode(first, "UTF-8").flat_values  # [K]
    is_alphanumeric = _is_alphanumeric_tf(codes)  # [K]
    follows = ~_differs_from_last(tokens.value_rowids())  # [K]
    was_alphanumeric = tf.concat([follows[:1], is_alphanumeric[:-1]], axis=0)
    needs_blank = follows & was_alphanumeric & is_alphanumeric  # [K]
    texts = tf.strings.join([tf.where(needs_blank, " ", ""), texts])
    return tf.strings.reduce_join(tokens.with_flat_values(texts), axis=1)


def _read_parts_tf(parts: tf.Tensor) -> tf.Tensor:
    """Returns what parts of spelled tokens stand for.

    Args:
        parts: string [S]. Either a whole match of `_SPELLED`, or without any.

    Returns:
        string [S].
    """
    is_number = tf.strings.regex_full_match(parts, r"\\[0-9]+;")
    digits = tf.strings.regex_replace(parts, f"^{_NUMBER}$", r"\1")
    is_short = is_number & (tf.strings.length(digits) <= _MOST_DIGITS)
    digits = tf.strings.join(["0", tf.where(is_short, digits, "")])
    codes = tf.strings.to_number(digits, tf.int32)  # [S]
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


def _differs_from_last(values: tf.Tensor) -> tf.Tensor:
    """Returns which values differ from the one before; the first does."""
    first = tf.ones_like(values[:1], tf.bool)
    return tf.concat([first, values[1:] != values[:-1]], axis=0)


def _precedes(begins: tf.Tensor) -> tf.Tensor:
    """Returns what is followed by a beginning, or by nothing."""
    return tf.concat([begins[1:], tf.ones_like(begins[:1])], axis=0)
