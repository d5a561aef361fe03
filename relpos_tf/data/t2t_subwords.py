"""The subword tokenizer of tensor2tensor, for its vocabulary files.

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
import itertools
import pathlib
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence

from relpos_tf import errors
from relpos_tf.data import t2t_escaping
from relpos_tf.utils import files
from relpos_tf.utils import text as text_lib

_CACHED_TOKENS = 2**16


class SubwordTokenizer:
    """A vocabulary of tensor2tensor.

    It has the interface of `tokenizer.Tokenizer`.

    Args:
        vocab_path: str or path. A file that `SubwordTextEncoder` stored.

    Attributes:
        model_bytes: bytes. The file's content.
        fingerprint: str. Its sha256, in hexadecimal.
        vocab_size: int. Number of ids.
        ids: dict. The id of each piece that is used.
        longest: int. Characters of the longest piece.
        alphabet: frozenset. The characters of the pieces.

    Raises:
        OSError: the file is missing.
        UserError: it is not such a vocabulary.

    Example:
        tokens = t2t_subwords.SubwordTokenizer("vocab.ende.32768.subwords")
        tokens.decode(tokens.encode("Ein Satz."))  # "Ein Satz."
    """

    def __init__(self, vocab_path: str | pathlib.Path):
        self.model_bytes = files.regular(vocab_path).read_bytes()
        self.fingerprint = hashlib.sha256(self.model_bytes).hexdigest()
        self._path = vocab_path
        self._pieces = _read_pieces(self.model_bytes, vocab_path)
        self.vocab_size = len(self._pieces)
        # The last of equal pieces counts. Empty pieces are never used.
        self.ids = {piece: i for i, piece in enumerate(self._pieces) if piece}
        self.longest = max(map(len, self.ids))
        self.alphabet = t2t_escaping.SPELLING.union(*self.ids)
        # Most words of a text have occurred in it before.
        self._encode_token = functools.lru_cache(_CACHED_TOKENS)(self._match)

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a string, EOS last.

        Raises:
            UserError: the vocabulary lacks a piece that is needed.
        """
        ids: list[int] = []
        for token in t2t_escaping.split(t2t_escaping.without_surrogates(text)):
            ids.extend(self._encode_token(token))
        ids.append(text_lib.EOS_ID)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text before the first EOS; padding is left out."""
        known = range(self.vocab_size)
        pieces = [self._pieces[i] for i in text_ids(ids) if i in known]
        return t2t_escaping.read("".join(pieces))

    def pieces(self) -> list[str]:
        """Returns the piece of every id, in order."""
        return list(self._pieces)

    def _match(self, token: str) -> tuple[int, ...]:
        """Returns the ids of a token."""
        spelled = t2t_escaping.spell(token, self.alphabet)
        ids = []
        start = 0
        while start < len(spelled):
            longest = min(self.longest, len(spelled) - start)
            for end in range(start + longest, start, -1):
                piece = self.ids.get(spelled[start:end])
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


def text_ids(ids: Iterable[int]) -> Iterator[int]:
    """Yields the ids before the first EOS, without padding."""
    for i in itertools.takewhile(lambda i: i != text_lib.EOS_ID, ids):
        if i != text_lib.PAD_ID:
            yield int(i)


def _read_pieces(content: bytes, path: str | pathlib.Path) -> list[str]:
    """Returns the piece of every id.

    Args:
        content: bytes. A vocabulary file.
        path: Its name, for messages.

    Raises:
        UserError: the content is not such a vocabulary.
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
