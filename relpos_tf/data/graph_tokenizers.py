"""The tokenizers in graphs, with the results that they have in Python.

Shapes: N strings, T ids per string.
"""

import tensorflow as tf

from relpos_tf.data import graph_escaping
from relpos_tf.data import t2t_subwords
from relpos_tf.data import tokenizer
from relpos_tf.utils import extras
from relpos_tf.utils import text

with extras.imports("translate", "translation"):
    import tensorflow_text

_LONGEST_TOKEN = 2**31 - 1  # Bytes.


class SentencePieceGraph:
    """The operations of a `tokenizer.Tokenizer`.

    Args:
        python: The tokenizer.

    Attributes:
        tokenizer: The same model as a trackable object, for SavedModels.
            TensorFlow forgets it when its kernels are dropped, and
            `tf.random.set_seed` drops them: set seeds first.
    """

    def __init__(self, python: tokenizer.Tokenizer):
        self.tokenizer = tensorflow_text.SentencepieceTokenizer(
            python.model_bytes, out_type=tf.int32, add_eos=True
        )

    def encode(self, strings: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of each string, EOS last.

        Args:
            strings: string [N].

        Returns:
            int32 [N, (T)], ragged.
        """
        # SentencePiece itself would put more U+FFFD.
        return self.tokenizer.tokenize(graph_escaping.valid(strings))

    def decode(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns the text before the first EOS of each row.

        Args:
            ids: int32 [N, T], padded with 0.

        Returns:
            string [N].
        """
        ids = tf.cast(ids, tf.int32)
        rows = tf.ragged.boolean_mask(ids, _is_text(ids))  # [N, (T)]
        return self.tokenizer.detokenize(rows)


class SubwordGraph:
    """The operations of a `t2t_subwords.SubwordTokenizer`.

    Args:
        python: The tokenizer.

    Attributes:
        tokenizer: The pieces as a trackable object, for SavedModels. It takes
            spelled tokens.
    """

    def __init__(self, python: t2t_subwords.SubwordTokenizer):
        self._python = python
        pieces = python.pieces()
        pieces[text.PAD_ID] = ""
        # In UTF-8, by id.
        self._piece_bytes = [piece.encode("utf-8") for piece in pieces]
        table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(
                list(python.ids),
                list(python.ids.values()),
                value_dtype=tf.int64,
            ),
            default_value=-1,
        )
        self.tokenizer = tensorflow_text.WordpieceTokenizer(
            table,
            suffix_indicator="",
            max_bytes_per_word=_LONGEST_TOKEN,
            max_chars_per_token=python.longest,
            token_out_type=tf.int32,
            unknown_token=None,
        )

    def encode(self, strings: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of each string, EOS last.

        Args:
            strings: string [N].

        Returns:
            int32 [N, (T)], ragged.

        Raises:
            InvalidArgumentError: the vocabulary lacks a piece that is needed.
        """
        tokens = graph_escaping.spell(strings, self._python.alphabet)
        pieces = self.tokenizer.tokenize(tokens)  # [N, (tokens), (T)]
        ids = pieces.merge_dims(1, 2)  # [N, (T)]
        if not self._python.alphabet.issubset(self._python.ids):
            is_bad = tf.reduce_any(pieces.values < 0, axis=1)  # [tokens]
            bad = tf.boolean_mask(tokens.flat_values, is_bad)
            message = "The vocabulary lacks a piece to spell:"
            tf.debugging.Assert(tf.size(bad) == 0, [message, bad])
        ends = tf.fill([tokens.nrows(), 1], text.EOS_ID)
        return tf.concat([ids, ends], axis=1)

    def decode(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns the text before the first EOS of each row.

        Args:
            ids: int32 [N, T], padded with 0.

        Returns:
            string [N].
        """
        ids = tf.cast(ids, tf.int32)
        is_piece = (ids >= 0) & (ids < self._python.vocab_size)
        kept = _is_text(ids) & is_piece  # [N, T]
        # Ids that are left out become padding, whose piece is empty here.
        pieces = tf.gather(self._piece_bytes, tf.where(kept, ids, 0))
        return graph_escaping.read(tf.strings.reduce_join(pieces, axis=1))


def _is_text(ids: tf.Tensor) -> tf.Tensor:
    """Returns which ids stand before the first EOS of their row: bool [N, T].

    Padding does not.
    """
    ends = tf.cumsum(tf.cast(ids == text.EOS_ID, tf.int32), axis=1)  # [N, T]
    return (ends == 0) & (ids != text.PAD_ID)


AnyGraph = SentencePieceGraph | SubwordGraph


def of(python: tokenizer.AnyTokenizer) -> AnyGraph:
    """Returns the operations of a tokenizer."""
    if isinstance(python, tokenizer.Tokenizer):
        return SentencePieceGraph(python)
    return SubwordGraph(python)
