"""`t2t_escaping` in graphs, with equal results.

A graph contains the Unicode tables of the Python that made it.

Shapes: N strings, C characters in all, K tokens in all, P parts of tokens.
"""

import functools
import sys
from collections.abc import Collection

import numpy as np
import tensorflow as tf

from relpos_tf.data import t2t_escaping

_NUMBER = r"\\0*([0-9]*);"
_FIRST_SURROGATE, _LAST_SURROGATE = 0xD800, 0xDFFF


@functools.cache
def _alphanumeric_bounds() -> np.ndarray:
    """Returns the codes where runs of letters and numbers start and stop."""
    codes = set(map(ord, t2t_escaping.alphanumeric()))
    return np.array(sorted(codes ^ {code + 1 for code in codes}), np.int32)


def spell(strings: tf.Tensor, alphabet: Collection[str]) -> tf.RaggedTensor:
    """Returns the spelling of each token of each string.

    Args:
        strings: string [N]. Bytes that are not UTF-8 become U+FFFD.
        alphabet: As in `t2t_escaping.spell`.

    Returns:
        string [N, (tokens)], ragged.
    """
    strings = valid(strings)
    characters = tf.strings.unicode_split(strings, "UTF-8")  # [N, (C)]
    codes = tf.strings.unicode_decode(strings, "UTF-8").flat_values  # [C]
    rows = characters.value_rowids()  # [C]
    starts_token = _differs_from_previous(rows)  # [C]
    starts_token |= _differs_from_previous(_is_alphanumeric(codes))
    starts = tf.where(starts_token)[:, 0]  # [K]

    spelled = _spell_characters(characters.flat_values, codes, alphabet)
    tokens = tf.RaggedTensor.from_row_starts(spelled, starts)  # [K, (C)]
    tokens = tf.strings.reduce_join(tokens, axis=1)  # [K]
    tokens = tf.strings.join([tokens, "_"])
    rows = tf.gather(rows, starts)  # [K]

    is_first = _differs_from_previous(rows)  # [K]
    is_last = tf.concat([is_first[1:], tf.ones_like(is_first[:1])], axis=0)
    kept = (
        is_first | is_last | (tokens != t2t_escaping.spell(" ", alphabet))
    )  # [K]
    return tf.RaggedTensor.from_value_rowids(
        tf.boolean_mask(tokens, kept),
        tf.boolean_mask(rows, kept),
        nrows=characters.nrows(),
    )


def valid(strings: tf.Tensor) -> tf.Tensor:
    """Returns strings with U+FFFD where Python's `decode` puts it."""
    return tf.strings.unicode_transcode(
        strings, "UTF-8", "UTF-8", replace_control_characters=False
    )


def _spell_characters(
    characters: tf.Tensor, codes: tf.Tensor, alphabet: Collection[str]
) -> tf.Tensor:
    """Returns the spelling of each character, string [C].

    Args:
        characters: string [C].
        codes: int32 [C]. Their code points.
        alphabet: As in `t2t_escaping.spell`.
    """
    known = np.array(sorted(map(ord, alphabet)), np.int32)
    nearest = tf.searchsorted(known, codes, side="right") - 1  # [C]
    is_known = tf.gather(known, tf.maximum(nearest, 0)) == codes  # [C]
    numbers = tf.strings.join(["\\", tf.strings.as_string(codes), ";"])
    spelled = tf.where(is_known, characters, numbers)
    spelled = tf.where(codes == ord("\\"), "\\\\", spelled)
    return tf.where(codes == ord("_"), "\\u", spelled)


def read(spelled: tf.Tensor) -> tf.Tensor:
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
        tokens.flat_values, f"({t2t_escaping.SPELLED})", r"_\1_"
    )
    parts = tf.strings.split(marked, "_")  # [K, (parts)]
    parts = parts.with_flat_values(_read_parts(parts.flat_values))
    texts = tf.strings.reduce_join(parts, axis=1)  # [K]

    first = tf.strings.substr(texts, 0, 1, unit="UTF8_CHAR")
    codes = tf.strings.unicode_decode(first, "UTF-8").flat_values  # [K]
    is_alphanumeric = _is_alphanumeric(codes)  # [K]
    is_first = _differs_from_previous(tokens.value_rowids())  # [K]
    was_alphanumeric = tf.concat([is_first[:1], is_alphanumeric[:-1]], axis=0)
    needs_blank = ~is_first & was_alphanumeric & is_alphanumeric  # [K]
    texts = tf.strings.join([tf.where(needs_blank, " ", ""), texts])
    return tf.strings.reduce_join(tokens.with_flat_values(texts), axis=1)


def _read_parts(parts: tf.Tensor) -> tf.Tensor:
    """Returns the text of parts of spelled tokens.

    Args:
        parts: string [P]. Each is a whole match of `SPELLED`, or has none.

    Returns:
        string [P].
    """
    is_number = tf.strings.regex_full_match(parts, r"\\[0-9]+;")
    digits = tf.strings.regex_replace(parts, f"^{_NUMBER}$", r"\1")
    is_short = is_number & (
        tf.strings.length(digits) <= t2t_escaping.MOST_DIGITS
    )
    digits = tf.strings.join(["0", tf.where(is_short, digits, "")])
    codes = tf.strings.to_number(digits, tf.int32)  # [P]
    is_code = is_short & (codes <= sys.maxunicode)
    codes = tf.where(is_code, codes, t2t_escaping.UNDEFINED)
    is_surrogate = (codes >= _FIRST_SURROGATE) & (codes <= _LAST_SURROGATE)
    codes = tf.where(is_surrogate, ord("?"), codes)
    characters = tf.strings.unicode_encode(codes[:, tf.newaxis], "UTF-8")
    texts = tf.where(is_number, characters, parts)
    texts = tf.where(parts == "\\\\", "\\", texts)
    return tf.where(parts == "\\u", "_", texts)


def _is_alphanumeric(codes: tf.Tensor) -> tf.Tensor:
    """Returns which code points are letters or numbers: bool."""
    return tf.searchsorted(_alphanumeric_bounds(), codes, side="right") % 2 == 1


def _differs_from_previous(values: tf.Tensor) -> tf.Tensor:
    """Returns which values differ from the previous one; the first does."""
    first = tf.ones_like(values[:1], tf.bool)
    return tf.concat([first, values[1:] != values[:-1]], axis=0)
