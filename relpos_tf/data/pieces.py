"""SentencePiece without TensorFlow: learning, and encoding many lines fast.

BPE with `split_by_whitespace` never joins two words, so two facts hold, which
tests check against SentencePiece itself:

* A vocabulary depends on the text only by the number of times that each word
  occurs. `count_words` counts the words of a part of the text, and `learn`
  makes from the sum the same file as `train` from the lines.
* The ids of a line are the ids of its words, one after the other. `Packer`
  keeps the ids of the words it has met, so that SentencePiece sees each word
  about once.

A word is what stands between two blanks (U+0020); it may be empty.

`tokenizer` has the class for everything else, with its operations in graphs.
"""

import collections
import functools
import hashlib
import io
import itertools
import os
import pathlib
import tempfile
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence

from relpos_tf import errors
from relpos_tf.utils import extras
from relpos_tf.utils import files
from relpos_tf.utils import text as text_lib

with extras.imports("translate", "translation"):
    import sentencepiece

# U+2581, SentencePiece's sign for a blank, becomes U+005F.
_RULES = "2581\t5F\n"
# Of these rules, compiled.
_RULES_SHA256 = (
    "46602abfdae567799184ecadf7eac23b78592728858fd27e2f08f6f0d592a283"
)
_BLANK_SIGN = "\u2581"
# In bytes; SentencePiece skips longer lines.
_MAX_SENTENCE_BYTES = 16384
# SentencePiece skips lines with its sign for a rare character.
_SKIPPED = "\u2585"
_LARGEST_CACHE = 1 << 18  # words, of some 200 bytes each


def train(
    lines: Iterable[str],
    model_path: str | pathlib.Path,
    vocab_size: int,
    character_coverage: float = 1.0,
    *,
    are_counted: bool = False,
) -> None:
    """Learns a tokenizer from text and writes it, whole or not at all.

    The same lines in any order give the same file.

    Args:
        lines: The text, both languages.
        model_path: The file to write.
        vocab_size: int. Pieces wanted, special and byte pieces included. Text
            with fewer different pieces gives a smaller vocabulary.
        character_coverage: float. Share of the characters that get a piece of
            their own; the rarest others are spelled in bytes.
        are_counted: bool. Each line ends with a tabulator and the number of
            times it occurs.

    Raises:
        UserError: no text, or more characters than `vocab_size` has room for.
    """
    model = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder:
        rules = os.path.join(folder, "rules.tsv")
        with open(rules, "w", encoding="utf-8") as file:
            file.write(_RULES)
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(lines),
                model_writer=model,
                model_type="bpe",
                input_format="tsv" if are_counted else "",
                vocab_size=vocab_size,
                hard_vocab_limit=False,
                character_coverage=character_coverage,
                byte_fallback=True,
                normalization_rule_tsv=rules,
                remove_extra_whitespaces=False,
                pad_id=text_lib.PAD_ID,
                eos_id=text_lib.EOS_ID,
                unk_id=text_lib.UNKNOWN_ID,
                bos_id=-1,
                max_sentence_length=_MAX_SENTENCE_BYTES,
                minloglevel=2,
            )
        except RuntimeError as error:
            raise errors.UserError(
                "Cannot learn a vocabulary: expected text, and room for 256 "
                "bytes and every character. Received: "
                f"vocab_size={vocab_size}; SentencePiece says: "
                f"{' '.join(str(error).split())}"
            ) from error
    proto = _parsed(model.getvalue())
    # The rules are compiled in; the path of their file is random.
    proto.normalizer_spec.ClearField("normalization_rule_tsv")
    proto.trainer_spec.ClearField("input_format")
    files.write(model_path, proto.SerializeToString(deterministic=True))


def count_words(lines: Iterable[str]) -> collections.Counter:
    """Returns how often each word occurs in lines, for `learn`."""
    counts = collections.Counter()
    counts.update(
        itertools.chain.from_iterable(
            line.split(" ") for line in lines if line and _SKIPPED not in line
        )
    )
    return counts


def learn(
    counts: collections.Counter,
    model_path: str | pathlib.Path,
    vocab_size: int,
    character_coverage: float = 1.0,
) -> None:
    """Learns a tokenizer from the words of a text, as `train` from its lines.

    The lines must not have blanks, "\\r" or "\\n" at their ends.

    Args:
        counts: Counter of `count_words`, of all lines.
        model_path: See `train`.
        vocab_size: See `train`.
        character_coverage: See `train`.

    Raises:
        UserError: see `train`.
    """
    # A tabulator would end the word.
    are_counted = not any("\t" in word for word in counts)
    make = _counted_lines if are_counted else _sentences
    train(
        make(counts),
        model_path,
        vocab_size,
        character_coverage,
        are_counted=are_counted,
    )


def _counted_lines(counts: collections.Counter) -> Iterator[str]:
    """Yields a line for each word, with its count."""
    # Two empty words are a line of one blank. A single one needs a companion,
    # since an empty line has no word.
    halves, is_odd = divmod(counts[""], 2)
    if halves:
        yield f" \t{halves}"
    for word, count in counts.items():
        if not word:
            continue
        if is_odd:
            yield f" {word}\t1"
            count, is_odd = count - 1, 0
        if count:
            yield f"{word}\t{count}"


def _sentences(counts: collections.Counter) -> Iterator[str]:
    """Yields lines that have each word as often as it was counted."""

    def repeated(is_wanted):
        for word, count in counts.items():
            if is_wanted(word):
                yield from itertools.repeat(word, count)

    # SentencePiece removes "\r" from the end of a line, and skips empty ones.
    def can_end(word):
        return word and not word.endswith("\r")

    last = repeated(can_end)
    line, size = [], 0
    for word in repeated(lambda word: not can_end(word)):
        line.append(word)
        size += len(word) + 1
        if size > _MAX_SENTENCE_BYTES // 32:
            yield " ".join([*line, next(last)])
            line, size = [], 0
    for word in last:
        line.append(word)
        size += len(word) + 1
        if size > _MAX_SENTENCE_BYTES // 32:
            yield " ".join(line)
            line, size = [], 0
    if line:
        yield " ".join(line)


class Packer:
    """Encodes lines to packed ids, as protocol buffers hold them.

    Args:
        tokenizer: Encodes texts by `encode_batch(texts)`, to ids that end in
            EOS: the class `Encoder` below, or one of `tokenizer`.
        is_word_by_word: bool. Whether the ids of a line are those of its
            words, see `Encoder`.

    Attributes:
        vocab_size: int. Number of ids.
    """

    def __init__(self, tokenizer, is_word_by_word: bool = False):
        self.vocab_size = tokenizer.vocab_size
        self._tokenizer = tokenizer
        self._words = _Words(self._pack_word) if is_word_by_word else None

    def pack(self, lines: list[str]) -> list[bytes]:
        """Returns the ids of each line, as varints, without the EOS."""
        if self._words is None:
            return [_packed(ids) for ids in self._tokenizer.encode_batch(lines)]
        words = self._words
        words.make_room()
        get, join = words.__getitem__, b"".join
        return [
            join(map(get, line.split(" "))) if line else b"" for line in lines
        ]

    def _pack_word(self, word: str) -> bytes:
        # No word: one blank alone, half of what a line of one blank gives.
        [ids] = self._tokenizer.encode_batch([word or " "])
        packed = _packed(ids)
        return packed if word else packed[: len(packed) // 2]


class _Words(dict):
    """Packed ids by word; a missing one is made.

    Args:
        make: Function from a word to its packed ids.
    """

    def __init__(self, make):
        super().__init__()
        self._make = make

    def make_room(self):
        """Forgets all words if there are many."""
        if len(self) > _LARGEST_CACHE:
            self.clear()

    def __missing__(self, word):
        packed = self[word] = self._make(word)
        return packed


class Encoder:
    """A SentencePiece model that only encodes.

    Args:
        path: A file that `train` wrote, or any SentencePiece model.

    Attributes:
        vocab_size: int. Number of ids.
        is_word_by_word: bool. Whether the ids of a line are those of its words
            one after the other: for every model that `train` wrote.
    """

    def __init__(self, path: str | pathlib.Path):
        content = pathlib.Path(path).read_bytes()
        self._processor = sentencepiece.SentencePieceProcessor()
        self._processor.LoadFromSerializedProto(content)
        self.vocab_size = self._processor.vocab_size()
        self.is_word_by_word = _is_word_by_word(_parsed(content))

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        """Returns the ids of each text, EOS last."""
        # Lone surrogates, which UTF-8 cannot hold, become "?".
        encoded = [text.encode("utf-8", errors="replace") for text in texts]
        if len(encoded) == 1:  # A list begins threads.
            return [self._processor.encode(encoded[0], add_eos=True)]
        return self._processor.encode(encoded, add_eos=True, num_threads=1)


def _parsed(content: bytes):
    """Returns the ModelProto of a model's file."""
    with extras.imports("translate", "training"):
        # Not at the top: this needs protobuf, which translating does without.
        from sentencepiece import sentencepiece_model_pb2

    return sentencepiece_model_pb2.ModelProto.FromString(content)


def _is_word_by_word(proto) -> bool:
    """Returns whether a model encodes the words of a line one by one."""
    trained, normalizer = proto.trainer_spec, proto.normalizer_spec
    return (
        trained.model_type == trained.BPE
        and not trained.treat_whitespace_as_suffix
        and trained.byte_fallback
        and hashlib.sha256(normalizer.precompiled_charsmap).hexdigest()
        == _RULES_SHA256
        and normalizer.add_dummy_prefix
        and normalizer.escape_whitespaces
        and not normalizer.remove_extra_whitespaces
        and all(
            _BLANK_SIGN not in piece.piece[1:]
            for piece in proto.pieces
            if piece.type == piece.NORMAL
        )
        and not any(piece.type == piece.USER_DEFINED for piece in proto.pieces)
    )


@functools.cache
def varint(number: int) -> bytes:
    """Returns a number as protocol buffers write it: 7 bits in each byte."""
    packed = bytearray()
    while number > 0x7F:
        packed.append(0x80 | (number & 0x7F))
        number >>= 7
    packed.append(number)
    return bytes(packed)


def _packed(ids: Sequence[int]) -> bytes:
    """Returns ids as varints, without the last one, which is EOS."""
    return b"".join(map(varint, ids[:-1]))
