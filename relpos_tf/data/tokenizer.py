"""The subword tokenizer: SentencePiece BPE with byte fallback.

Text is first spelled by the rules of `spelling`: composed, with single blanks
and without invisible characters. Decoding restores that spelling of any text,
since a character without a piece is spelled in bytes. The paper used 32,768
wordpieces instead.

Ids: 0 padding, 1 end of sentence (EOS), 2 unknown. There is no start symbol.

`load` also reads vocabularies of tensor2tensor, see `t2t_subwords`. No
TensorFlow: `graph_tokenizers` has the same tokenizers for graphs.
"""

import functools
import hashlib
import pathlib
import re
from collections.abc import Iterable
from collections.abc import Sequence
from typing import NamedTuple

from relpos_tf import errors
from relpos_tf.data import bpe_dropout
from relpos_tf.data import t2t_subwords
from relpos_tf.utils import extras
from relpos_tf.utils import files

with extras.imports("translate", "translation"):
    import sentencepiece

_BYTE = re.compile("<0x[0-9A-F]{2}>")


class Tokenizer:
    """A trained tokenizer.

    Args:
        model_path: str or path. A file that `pieces.learn` wrote.

    Attributes:
        model_bytes: bytes. The file's content.
        fingerprint: str. Its sha256, in hexadecimal.
        vocab_size: int. Number of ids.

    Raises:
        UserError: the file is missing or not a SentencePiece model.

    Example:
        tokens = tokenizer.Tokenizer("tokenizer.model")
        tokens.decode(tokens.encode("Ein  Satz. "))  # "Ein Satz."
    """

    def __init__(self, model_path: str | pathlib.Path):
        self.model_bytes = files.regular(model_path).read_bytes()
        self.fingerprint = hashlib.sha256(self.model_bytes).hexdigest()
        self._processor = sentencepiece.SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(self.model_bytes)
        except RuntimeError as error:
            raise errors.UserError(
                f"Expected a SentencePiece model. Received: {model_path}, "
                "which is not one or is damaged."
            ) from error
        self.vocab_size = self._processor.vocab_size()

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a string, EOS last."""
        # Lone surrogates, which UTF-8 cannot hold, become "?".
        encoded = text.encode("utf-8", errors="replace")
        return self._processor.encode(encoded, add_eos=True)

    @functools.cached_property
    def segmenter(self) -> bpe_dropout.Segmenter:
        """Segments texts anew, with random merges left out."""
        model = self._processor
        others = (model.is_byte, model.is_control, model.is_unknown)
        return bpe_dropout.Segmenter(
            {
                i: (model.id_to_piece(i), model.get_score(i))
                for i in range(self.vocab_size)
                if not any(is_other(i) for is_other in others)
            }
        )

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text before the first EOS; padding is left out."""
        return self._processor.decode(list(t2t_subwords.text_ids(ids)))

    def pieces(self) -> list[str]:
        """Returns the piece of every id, in order."""
        return [self._processor.id_to_piece(i) for i in range(self.vocab_size)]


# The two classes have the same methods.
AnyTokenizer = Tokenizer | t2t_subwords.SubwordTokenizer


def load(path: str | pathlib.Path) -> AnyTokenizer:
    """Returns the tokenizer in a file, of the kind that its suffix tells.

    Args:
        path: A SentencePiece model, `*.model`, or a vocabulary of
            tensor2tensor, `*.subwords`.

    Raises:
        UserError: the suffix is another, or the file is of another kind.
    """
    suffix = pathlib.Path(path).suffix
    if suffix == ".model":
        return Tokenizer(path)
    if suffix == ".subwords":
        return t2t_subwords.SubwordTokenizer(path)
    raise errors.UserError(
        "Expected the file of a tokenizer, *.model for SentencePiece or "
        f"*.subwords for tensor2tensor. Received: {path}."
    )


class Fit(NamedTuple):
    """How well a vocabulary fits a text.

    Attributes:
        ids_per_word: float. Ids per word; blanks end words. 0 without words.
        byte_share: float. The share of the ids that are single bytes, of
            characters without a piece. 0 for vocabularies of tensor2tensor,
            which spell such a character in some five ids.
    """

    ids_per_word: float
    byte_share: float


def fit(tokens: AnyTokenizer, lines: Iterable[str]) -> Fit:
    """Returns how well a vocabulary fits a text.

    Args:
        tokens: The vocabulary.
        lines: The text.
    """
    lines = list(lines)
    words = sum(len(line.split()) for line in lines)
    is_byte = [_BYTE.fullmatch(piece) is not None for piece in tokens.pieces()]
    ids = [i for line in lines for i in tokens.encode(line)[:-1]]
    of_bytes = sum(is_byte[i] for i in ids)
    return Fit(len(ids) / max(words, 1), of_bytes / max(len(ids), 1))
