"""Learning and encoding word by word, against SentencePiece's whole lines."""

import io
import itertools
import random
import tempfile
from unittest import mock

import numpy as np
import sentencepiece
from absl.testing import absltest
from absl.testing import parameterized
from sentencepiece import sentencepiece_model_pb2

from relpos_tf import errors
from relpos_tf.data import pieces
from relpos_tf.data import spelling
from relpos_tf.data import tokenizer
from tests import folders
from tests.data import t2t_subwords_test

# With SentencePiece's sign for a blank, characters of "</s>" and "<unk>", and
# some that the rules of spelling change.
_CHARACTERS = (
    "aaaabbbccdeé漢 \u2581_\u2047\u00a0\u3000\u2028\r\t\x01\U0001f600"
    "<>/sunk\ufeff\u00ad\u0301\u0323"
)


def lines(number, seed, characters=_CHARACTERS):
    """Returns lines of odd characters; some are empty."""
    draw = random.Random(seed)
    return [
        "".join(draw.choices(characters + " " * 6, k=draw.randint(0, 30)))
        for _ in range(number)
    ]


def model_of(text, **options):
    """Returns the ModelProto that SentencePiece learns from lines."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text),
        model_writer=model,
        **{"model_type": "bpe", "hard_vocab_limit": False} | options,
        byte_fallback=True,
        minloglevel=2,
    )
    return sentencepiece_model_pb2.ModelProto.FromString(model.getvalue())


class PiecesTest(folders.TestCase):
    def setUp(self):
        super().setUp()
        self.path = self.folder / "made.model"

    @parameterized.product(size=(20, 300), coverage=(1.0, 0.98))
    def test_words_give_what_sentencepiece_learns_from_lines(
        self, size, coverage
    ):
        rules = self.folder / "rules.tsv"
        rules.write_text(spelling.rules(), encoding="utf-8")
        for seed in range(3):
            made = lines(size, seed)
            # Two parts, as of two processes.
            words = pieces.count_words(made[1::2])
            words.update(pieces.count_words(made[::2]))
            pieces.learn(words, self.path, 340, coverage)
            found = sentencepiece_model_pb2.ModelProto.FromString(
                self.path.read_bytes()
            )
            whole = model_of(
                made,
                vocab_size=340,
                character_coverage=coverage,
                normalization_rule_tsv=str(rules),
                pad_id=0,
                eos_id=1,
                unk_id=2,
                bos_id=-1,
            )
            self.assertEqual(found.pieces, whole.pieces)
            self.assertEqual(
                found.normalizer_spec.precompiled_charsmap,
                whole.normalizer_spec.precompiled_charsmap,
            )

    def test_special_pieces_come_first_and_little_text_gives_few_pieces(self):
        # As where only the folder of the data can be written.
        with mock.patch.object(tempfile, "gettempdir", side_effect=OSError):
            pieces.learn(pieces.count_words(["ab ab", "abc"]), self.path, 8000)
        tokens = tokenizer.Tokenizer(self.path)
        self.assertEqual(tokens.pieces()[:3], ["<pad>", "</s>", "<unk>"])
        self.assertEqual(
            tokens.pieces()[3:259], [f"<0x{byte:02X}>" for byte in range(256)]
        )
        self.assertBetween(tokens.vocab_size, 263, 270)
        self.assertEqual(tokens.encode("ab"), [tokens.pieces().index("▁ab"), 1])

    @parameterized.parameters(
        ([], 300, "text"),
        ([" \u00ad", ""], 300, "text"),
        (["abc de"], 264, "265 pieces.*vocab_size=264.*--vocab_size"),
        (["abc de"], 1, "256 bytes.*vocab_size=1.*Raise --vocab_size"),
    )
    def test_no_text_or_no_room_is_the_users_mistake(self, text, size, words):
        with self.assertRaisesRegex(errors.UserError, words) as caught:
            pieces.learn(pieces.count_words(text), self.path, size)
        self.assertNotIn("character_coverage", str(caught.exception))
        self.assertEmpty(list(self.folder.iterdir()))

    def assert_encodes_as_tokenizer(self, encoder, path, texts):
        ids, lengths = encoder.arrays(texts)
        rows = list(map(tokenizer.load(path).encode, texts))
        self.assertEqual(ids.dtype, encoder.dtype)
        self.assertEqual(ids.tolist(), list(itertools.chain(*rows)))
        self.assertEqual(lengths.dtype, np.int64)
        self.assertEqual(lengths.tolist(), list(map(len, rows)))

    def test_lines_have_the_ids_of_the_tokenizer(self):
        pieces.learn(pieces.count_words(lines(300, 1)), self.path, 330)
        encoder = pieces.encoder(str(self.path))
        self.assertIs(pieces.encoder(str(self.path)), encoder)
        self.assertEqual((encoder.vocab_size, encoder.dtype), (330, np.uint16))
        odd = ["", " ", "  ", "a", " a ", "a  b", "\ud800 a", "▁ ▁", "\0", "é"]
        texts = [*odd, *lines(500, 2, _CHARACTERS + "\u2585xyzß")]
        with absltest.mock.patch.object(pieces, "_LARGEST_CACHE", 1000):
            for part in (texts, texts, texts[:1], [], texts):
                self.assert_encodes_as_tokenizer(encoder, self.path, part)

    @parameterized.parameters(
        {"user_defined_symbols": ["b c"]},
        {"split_by_whitespace": False},
        {"remove_extra_whitespaces": False},
    )
    def test_models_of_others_have_the_ids_of_the_tokenizer(self, **options):
        proto = model_of(["ab c ab c", "b c"] * 40, vocab_size=290, **options)
        self.path.write_bytes(proto.SerializeToString())
        encoder = pieces.Encoder(self.path)
        texts = [" ab  c b c", "", "b c", "ﬁ"]
        self.assert_encodes_as_tokenizer(encoder, self.path, texts)

    def test_large_vocabularies_of_tensor2tensor_have_wider_ids(self):
        made = [f"{number}_" for number in range(70_000)]
        path = t2t_subwords_test.write(self.folder, ["<pad>_", "<EOS>_", *made])
        encoder = pieces.Encoder(path)
        self.assertEqual(encoder.dtype, np.uint32)
        ids, lengths = encoder.arrays(["69999 7", ""])
        self.assertEqual(ids.tolist(), [70_001, 9, 1, 1])
        self.assertEqual(lengths.tolist(), [3, 1])
