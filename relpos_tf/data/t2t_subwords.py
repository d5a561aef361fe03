"""The subword tokenizer of tensor2tensor, for its vocabulary files.

Shapes: N strings, T ids per string.

`t2t_escaping` splits text into tokens and spells them in the characters of the
vocabulary. Each token is then split greedily, from the left, into the longest
pieces that fit.

Differences from tensor2tensor: encoding adds EOS; decoding ends at EOS and
leaves out padding. Lone surrogates, which UTF-8 cannot hold, become "?", in
text and in decoded ids. Blanks at the ends of a text stay, as in
tensor2tensor, which strips lines only when it reads files.

Ids: 0 padding, 1 end of sentence (EOS). There is no start symbol.
"""

import functools
import hashlib
import pathlib
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from relpos_tf import errors
from relpos_tf.data import t2t_escaping
from relpos_tf.utils import extras
from relpos_tf.utils import text as text_lib

with extras.imports("translate", "translation"):
    import tensorflow_text

_CACHED_TOKENS = 2**16
_LONGEST_TOKEN = 2**31 - 1  # Bytes.


class SubwordTokenizer:
    """A vocabulary of tensor2tensor, in Python and in the graph.

    It has the interface of `tokenizer.Tokenizer`.

    Args:
        vocab_path: str or path. A file that `SubwordTextEncoder` stored.

    Attributes:
        model_bytes: bytes. The file's content.
        fingerprint: str. Its sha256, in hexadecimal.
        vocab_size: int. Number of ids.

    Raises:
        UserError: the file is missing or not such a vocabulary.

    Example:

        tokens = t2t_subwords.SubwordTokenizer("vocab.ende.32768.subwords")
        tokens.decode(tokens.encode("Ein Satz."))  # "Ein Satz."
    """

    def __init__(self, vocab_path: str | pathlib.Path):
        try:
            self.model_bytes = pathlib.Path(vocab_path).read_bytes()
        except OSError as error:
            raise errors.UserError(
                f"Cannot read the vocabulary {vocab_path} ({error.strerror})."
            ) from error
        self.fingerprint = hashlib.sha256(self.model_bytes).hexdigest()
        self._path = vocab_path
        self._pieces = _read_pieces(self.model_bytes, vocab_path)
        self.vocab_size = len(self._pieces)
        # The last of equal pieces counts. Empty pieces are never used.
        self._ids = {piece: i for i, piece in enumerate(self._pieces) if piece}
        self._longest = max(map(len, self._ids))
        self._alphabet = t2t_escaping.SPELLING.union(*self._ids)
        # Most words of a text have occurred in it before.
        self._encode_token = functools.lru_cache(_CACHED_TOKENS)(self._match)

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a string, EOS last.

        Raises:
            UserError: the vocabulary lacks a piece that is needed.
        """
        ids = []
        for token in t2t_escaping.split(t2t_escaping.without_surrogates(text)):
            ids.extend(self._encode_token(token))
        ids.append(text_lib.EOS_ID)
        return ids

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of each string, EOS last."""
        return [self.encode(text) for text in texts]

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text before the first EOS; padding is left out."""
        pieces = []
        for token in ids:
            if token == text_lib.EOS_ID:
                break
            if token != text_lib.PAD_ID and 0 <= token < self.vocab_size:
                pieces.append(self._pieces[token])
        return t2t_escaping.read("".join(pieces))

    def pieces(self) -> list[str]:
        """Returns the piece of every id, in order."""
        return list(self._pieces)

    def _match(self, token: str) -> tuple[int, ...]:
        """Returns the ids of a token."""
        spelled = t2t_escaping.spell(token, self._alphabet)
        ids = []
        start = 0
        while start < len(spelled):
            longest = min(self._longest, len(spelled) - start)
            for end in range(start + longest, start, -1):
                piece = self._ids.get(spelled[start:end])
                if piece is not None:
                    break
            else:
                raise errors.UserError(
                    f"The vocabulary {self._path} cannot spell {token!r}: it "
                    f"has no piece that fits {spelled[start:]!r}. A complete "
                    "one has a piece for each of its characters and for each "
                    f"of {''.join(sorted(t2t_escaping.SPELLING))!r}."
                )
            ids.append(piece)
            start = end
        return tuple(ids)

    @functools.cached_property
    def graph_tokenizer(self) -> tensorflow_text.WordpieceTokenizer:
        """The pieces as a trackable object, for SavedModels.

        It takes spelled tokens.
        """
        # Outside the graph that asks for it first.
        with tf.init_scope():
            table = tf.lookup.StaticHashTable(
                tf.lookup.KeyValueTensorInitializer(
                    list(self._ids),
                    list(self._ids.values()),
                    value_dtype=tf.int64,
                ),
                default_value=-1,
            )
        return tensorflow_text.WordpieceTokenizer(
            table,
            suffix_indicator="",
            max_bytes_per_word=_LONGEST_TOKEN,
            max_chars_per_token=self._longest,
            token_out_type=tf.int32,
            unknown_token=None,
        )

    def encode_tf(self, strings: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of each string, EOS last.

        Args:
            strings: string [N].

        Returns:
            int32 [N, (T)], ragged.

        Raises:
            InvalidArgumentError: the vocabulary lacks a piece that is needed.
        """
        tokens = t2t_escaping.spell_tf(strings, self._alphabet)
        pieces = self.graph_tokenizer.tokenize(tokens)  # [N, (tokens), (T)]
        ids = pieces.merge_dims(1, 2)  # [N, (T)]
        if not self._alphabet.issubset(self._ids):
            is_bad = tf.reduce_any(pieces.values < 0, axis=1)  # [tokens]
            bad = tf.boolean_mask(tokens.flat_values, is_bad)
            message = "The vocabulary lacks a piece to spell:"
            tf.debugging.Assert(tf.size(bad) == 0, [message, bad])
        ends = tf.fill([tokens.nrows(), 1], text_lib.EOS_ID)
        return tf.concat([ids, ends], axis=1)

    def decode_tf(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns the text before the first EOS of each row.

        Args:
            ids: int32 [N, T], padded with 0.

        Returns:
            string [N].
        """
        ids = tf.cast(ids, tf.int32)
        ends = tf.cumsum(tf.cast(ids == text_lib.EOS_ID, tf.int32), axis=1)
        kept = (ends == 0) & (ids >= 0) & (ids < self.vocab_size)  # [N, T]
        # Ids that are left out become padding, whose piece is empty here.
        pieces = tf.gather(self._piece_bytes, tf.where(kept, ids, 0))
        return t2t_escaping.read_tf(tf.strings.reduce_join(pieces, axis=1))

    @functools.cached_property
    def _piece_bytes(self) -> np.ndarray:
        """The pieces in UTF-8 by id; empty for padding."""
        pieces = self.pieces()
        pieces[text_lib.PAD_ID] = ""
        return np.array([piece.encode("utf-8") for piece in pieces], object)


def _read_pieces(content: bytes, path: str | pathlib.Path) -> list[str]:
    """Returns the piece of every id.

    Args:
        content: bytes. A vocabulary file.
        path: Its name, for messages.

    Raises:
        UserError: the content is no such vocabulary.
    """
    expected = "Expected a subword vocabulary of tensor2tensor. Received:"
    try:
        # tensor2tensor reads with TensorFlow's files, which drop every "\r".
        lines = content.decode("utf-8").replace("\r", "").split("\n")
    except UnicodeDecodeError as error:
        raise errors.UserError(
            f"{expected} {path}, which is not text in UTF-8."
        ) from error
    if not lines[-1]:
        lines.pop()
    pieces = [_unquoted(line.rstrip()) for line in lines]
    first = pieces[:2]
    if first == ["<pad>_", "<EOS>_"]:
        return pieces
    # Early versions wrote these names, as do vocabularies of whole words,
    # whose entries do not end in "_".
    if first != ["<pad>", "<EOS>"]:
        raise errors.UserError(
            f"{expected} {path}, which begins with {first} instead of "
            "['<pad>_', '<EOS>_']."
        )
    if not any(len(piece) > 1 and piece.endswith("_") for piece in pieces):
        raise errors.UserError(
            f"{expected} {path}, which holds whole words: none ends in '_'."
        )
    return pieces


def _unquoted(line: str) -> str:
    """Returns a line without one pair of quotation marks around it."""
    for mark in "'\"":
        if line.startswith(mark) and line.endswith(mark):
            return line[1:-1]
    return line
