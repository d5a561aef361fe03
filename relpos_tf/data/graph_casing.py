"""`casing` in graphs, with equal results.

Shapes: N lines, B translations of each.
"""

from collections.abc import Callable

import tensorflow as tf

from relpos_tf.data import casing

_OTHER = r"[^\P{L}\p{Lu}]"  # a letter that is no capital


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

    def matches(pattern):
        return tf.strings.regex_full_match(lines, f"(?s){pattern}")

    is_upper = ~matches(f".*{_OTHER}.*")
    is_title = matches(rf" *([^ ]+ +){{{casing.TITLE - 1}}}[^ ].*")
    is_title &= ~matches(rf"(.* )?[^\p{{L}} ]*{_OTHER}.*")
    rest = tf.strings.regex_replace(lines, "(?s)^.", "")
    first = tf.strings.substr(lines, 0, 1, unit="UTF8_CHAR")
    sentences = tf.strings.join([first, tf.strings.lower(rest, "utf-8")])
    sentences = tf.where(is_upper | is_title, sentences, lines)
    is_fewer = encoder(sentences).row_lengths() < encoder(lines).row_lengths()

    def write(texts):
        capitals = tf.strings.upper(texts, "utf-8")
        return tf.where((is_fewer & is_upper)[:, tf.newaxis], capitals, texts)

    return encoder(tf.where(is_fewer, sentences, lines)), write
