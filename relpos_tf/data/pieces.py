"""Learning a vocabulary, and encoding many lines fast, without TensorFlow.

BPE with `split_by_whitespace` never joins two words, and the rules of
`spelling` make every blank a word's end. So two facts hold, which tests check
against SentencePiece itself:

* A vocabulary depends on the text only by the number of times that each word
  occurs. `count_words` counts the words of a part of the text, and `learn`
  makes from the sum the same file as SentencePiece from the lines.
* The ids of a line are the ids of its words, one after the other. `Encoder`
  keeps the ids of the words it has met, so that SentencePiece sees each word
  about once.

`tokenizer` has the class for everything else.
"""

import collections
import functools
import io
import itertools
import pathlib
import re
import tempfile
from collections.abc import Iterable

import numpy as np

from relpos_tf import errors
from relpos_tf.data import spelling
from relpos_tf.data import token_files
from relpos_tf.data import tokenizer
from relpos_tf.utils import extras
from relpos_tf.utils import files
from relpos_tf.utils import text as text_lib

with extras.imports("translate", "translation"):
    import sentencepiece

# In bytes; SentencePiece leaves longer words out.
_LONGEST_WORD = 16384
_LARGEST_CACHE = 1 << 18  # words, of some 200 bytes each


def count_words(lines: Iterable[str]) -> collections.Counter:
    """Returns how often each word occurs in lines, for `learn`."""
    return collections.Counter(
        itertools.chain.from_iterable(map(str.split, lines))
    )


def learn(
    counts: collections.Counter,
    model_path: str | pathlib.Path,
    vocab_size: int,
    character_coverage: float = 1.0,
) -> None:
    """Learns a tokenizer from the words of a text; writes it whole or not.

    The same words in any order give the same file.

    Args:
        counts: Counter of `count_words`, of all lines of both languages.
        model_path: The file to write.
        vocab_size: int. Pieces wanted, special and byte pieces included. Text
            with fewer different pieces gives a smaller vocabulary.
        character_coverage: float from 0.98 to 1. Share of the characters that
            get a piece each; the rarest others are spelled in bytes.

    Raises:
        UserError: no text, more characters than `vocab_size` has room for, or
            another coverage.
    """
    model = io.BytesIO()
    target = pathlib.Path(model_path)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        rules = pathlib.Path(folder, "rules.tsv")
        rules.write_text(spelling.rules(), encoding="utf-8")
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=(f"{w}\t{n}" for w, n in counts.items()),
                model_writer=model,
                model_type="bpe",
                input_format="tsv",
                vocab_size=vocab_size,
                hard_vocab_limit=False,
                character_coverage=character_coverage,
                byte_fallback=True,
                normalization_rule_tsv=str(rules),
                remove_extra_whitespaces=True,
                pad_id=text_lib.PAD_ID,
                eos_id=text_lib.EOS_ID,
                unk_id=text_lib.UNKNOWN_ID,
                bos_id=-1,
                max_sentence_length=_LONGEST_WORD,
                minloglevel=2,
            )
        except RuntimeError as error:
            raise errors.UserError(_message(str(error), vocab_size)) from error
    proto = _parsed(model.getvalue())
    # The rules are compiled in; the path of their file is random.
    proto.normalizer_spec.ClearField("normalization_rule_tsv")
    proto.normalizer_spec.name = spelling.NAME
    files.write(model_path, proto.SerializeToString(deterministic=True))


class Encoder:
    """Encodes lines to one array of ids.

    Args:
        path: str or path. A vocabulary, see `tokenizer.load`.

    Attributes:
        vocab_size: int. Number of ids.
        dtype: The type of the ids, see `token_files.id_type`.

    Raises:
        UserError: see `tokenizer.load`.

    Example:
        encoder = pieces.Encoder("tokenizer.model")
        ids, lengths = encoder.arrays(["Ein Satz.", ""])
        len(ids) == sum(lengths), lengths[1]  # True, 1
    """

    def __init__(self, path: str | pathlib.Path):
        self._tokenizer = tokenizer.load(path)
        self.vocab_size = self._tokenizer.vocab_size
        self.dtype = token_files.id_type(self.vocab_size)
        self._is_word_by_word = _knows_words(self._tokenizer)
        self._word_ids = functools.cache(self._encode_word)

    def arrays(self, lines: list[str]) -> token_files.Rows:
        """Returns the ids of lines, of type `dtype`; EOS ends each line."""
        if self._is_word_by_word:
            return self._join_words(lines)
        rows = list(map(self._tokenizer.encode, lines))
        lengths = np.array([len(row) for row in rows], np.int64)
        ids = itertools.chain.from_iterable(rows)
        flat = np.fromiter(ids, self.dtype, lengths.sum())
        return token_files.Rows(flat, lengths)

    def _join_words(self, lines):
        """Returns `arrays`, from the ids of each word."""
        if self._word_ids.cache_info().currsize > _LARGEST_CACHE:
            self._word_ids.cache_clear()
        rows = [b"".join(map(self._word_ids, line.split())) for line in lines]
        lengths = np.array([len(row) for row in rows], np.int64)
        lengths = lengths // self.dtype.itemsize + 1
        end = np.array(text_lib.EOS_ID, self.dtype).tobytes()
        ids = end.join([*rows, b""])
        return token_files.Rows(np.frombuffer(ids, self.dtype), lengths)

    def _encode_word(self, word: str) -> bytes:
        return np.array(self._tokenizer.encode(word)[:-1], self.dtype).tobytes()


@functools.lru_cache(maxsize=2)
def encoder(path: str) -> Encoder:
    """Returns the encoder with a vocabulary; the same one for the same path.

    A process that encodes many chunks thus keeps the words it has met.
    """
    return Encoder(path)


def _message(error: str, vocab_size: int) -> str:
    """Returns what a user can do about an error of SentencePiece."""
    needed = re.search(r"\d+ vs (\d+)", error)
    if needed or vocab_size <= text_lib.UNKNOWN_ID:
        room = f"{needed[1]} pieces: " if needed else ""
        return (
            f"Expected a vocabulary with room for {room}256 bytes, 3 special "
            "ones and every character of the text. Received: "
            f"vocab_size={vocab_size}. Raise --vocab_size."
        )
    return (
        "Cannot learn a vocabulary: expected text. Received: "
        f"vocab_size={vocab_size}; SentencePiece says: "
        f"{' '.join(error.split())}"
    )


def _parsed(content: bytes):
    """Returns the ModelProto of a model's file."""
    with extras.imports("translate", "training"):
        # Not at the top: this needs protobuf, which translating does without.
        from sentencepiece import sentencepiece_model_pb2

    return sentencepiece_model_pb2.ModelProto.FromString(content)  # type: ignore[attr-defined]


def _knows_words(tokens: tokenizer.AnyTokenizer) -> bool:
    """Returns whether the ids of a line are those of its words."""
    return (
        isinstance(tokens, tokenizer.Tokenizer)
        and _parsed(tokens.model_bytes).normalizer_spec.name == spelling.NAME
    )
