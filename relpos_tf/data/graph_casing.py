"""`casing` in graphs, with equal results.

TensorFlow knows the letters of Unicode 13, and follows the locale of its
process; i and I are a pair in every locale here.

Shapes: N lines, W words in all, B translations of a line.
"""

from collections.abc import Callable

import tensorflow as tf

from relpos_tf.data import casing

_OTHER = r"[^\P{L}\p{Lu}\p{Lm}ßªº]"  # a letter that has a capital


def of(
    lines: tf.Tensor, encoder: Callable[[tf.Tensor], tf.RaggedTensor]
) -> tuple[tf.RaggedTensor, Callable[[tf.Tensor], tf.Tensor]]:
    """Returns the ids of lines, and what writes their translations.

    Args:
        lines: string [N], UTF-8.
        encoder: Returns the ids of each string.

    Returns:
        ids: int32 [N, (T)], ragged.
        write: Function of translations, string [N, B], and their result.
    """

    def has(pattern):
        return tf.strings.regex_full_match(lines, f"(?s)({pattern}).*")

    has_other = has(f".*{_OTHER}")  # [N]
    is_kept = has(rf".*\x00|.*[^\P{{Lo}}ªº]|(.* )?[^\p{{L}} ]*{_OTHER}")  # [N]
    words = tf.strings.split(tf.where(is_kept, "", lines), " ")  # [N, (W)]
    word = words.flat_values
    forms = _lower(word), word, _first(word) + _lower(_rest(word))
    costs = [
        tf.reduce_sum(tf.cast(encoder(form), tf.int64) + casing.PIECE, axis=1)
        for form in forms
    ]
    best = tf.gather(tf.stack(forms, 1), tf.argmin(costs), batch_dims=1)  # [W]
    begins_so = tf.strings.regex_full_match(word, r"(?s)\P{L}*\p{Lu}{2}.*")
    is_acronym = begins_so & tf.gather(has_other, words.value_rowids())
    joined = words.with_flat_values(tf.where(is_acronym, word, best))
    joined = tf.strings.reduce_join(joined, axis=1, separator=" ")  # [N]
    sentences = tf.where(is_kept, lines, _first(lines) + _rest(joined))
    sizes = [encoder(text).row_lengths() for text in (sentences, lines)]
    is_changed = (words.row_lengths() > casing.NAME) | (sizes[0] < sizes[1])
    is_written = is_changed & (sentences != lines) & ~has_other

    def write(texts):
        capitals = tf.strings.regex_replace(texts, "i", "I")
        capitals = tf.strings.upper(capitals, "utf-8")
        return tf.where(is_written[:, tf.newaxis], capitals, texts)

    return encoder(tf.where(is_changed, sentences, lines)), write


def _first(texts):
    """Returns texts up to their first letters."""
    return tf.strings.regex_replace(texts, r"(?s)^(\P{L}*\pL?).*", r"\1")


def _rest(texts):
    return tf.strings.regex_replace(texts, r"(?s)^\P{L}*\pL?", "")


def _lower(texts):
    return tf.strings.lower(tf.strings.regex_replace(texts, "I", "i"), "utf-8")
