"""Tests of learning and encoding word by word, against whole lines."""

import pathlib
import random
import tempfile

import sentencepiece
from absl.testing import absltest
from absl.testing import parameterized
from sentencepiece import sentencepiece_model_pb2

from relpos_tf import errors
from relpos_tf.data import pieces
from relpos_tf.data import tokenizer

# With what SentencePiece treats in a special way: its signs for a blank and for
# a rare character, characters of "</s>" and "<unk>", tabulators.
_CHARACTERS = (
    "aaaabbbccdeé漢 \u2581_\u2047\u00a0\u3000\u2028\r\x01\U0001f600"
    "<>/sunk\ufeff"
)


def lines(number, seed, characters=_CHARACTERS):
    """Returns lines without blanks at their ends."""
    generator = random.Random(seed)
    made = []
    while len(made) < number:
        size = generator.randint(1, 30)
        line = "".join(generator.choices(characters + " " * 6, k=size)).strip()
        made += [line] if line else []
    return made


class PiecesTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    @parameterized.product(
        size=(5, 300),
        coverage=(1.0, 0.97),
        more=("", "\t", "\u2585", "\t\u2585"),
    )
    def test_counted_words_give_the_file_of_the_lines(
        self, size, coverage, more
    ):
        paths = self.folder / "lines.model", self.folder / "words.model"
        for seed in range(3):
            made = lines(size, seed, _CHARACTERS + more)
            # Two parts, as of two processes.
            words = pieces.count_words(made[::2])
            words.update(pieces.count_words(made[1::2]))
            found = []
            for learn, text, path in (
                (pieces.train, made, paths[0]),
                (pieces.learn, words, paths[1]),
            ):
                try:
                    learn(text, path, 330, coverage)
                    found.append(path.read_bytes())
                except errors.UserError as error:
                    found.append(str(error))
            self.assertEqual(found[0], found[1])

    def test_no_words_are_an_error(self):
        with self.assertRaisesRegex(errors.UserError, "expected text"):
            pieces.learn(pieces.count_words([]), self.folder / "x.model", 300)

    def test_packed_lines_are_the_ids_of_whole_lines(self):
        path = self.folder / "made.model"
        pieces.train(lines(300, 1), path, 330)
        encoder = pieces.Encoder(path)
        self.assertTrue(encoder.is_word_by_word)
        packer = pieces.Packer(encoder, is_word_by_word=True)
        self.assertEqual(packer.vocab_size, 330)
        whole = tokenizer.Tokenizer(path)
        texts = [
            *("", " ", "  ", "a", " a", "a ", "a  b", "\ud800 a", "▁ ▁", "\0"),
            *lines(500, 2, _CHARACTERS + "\t\u2585xyzß"),
        ]
        for _ in range(2):  # made, and then known
            packed = packer.pack(texts)
            self.assertEqual(
                packed,
                [
                    b"".join(map(pieces.varint, ids[:-1]))
                    for ids in whole.encode_batch(texts)
                ],
            )

    def test_many_words_are_forgotten_again(self):
        path = self.folder / "made.model"
        pieces.train(lines(300, 1), path, 330)
        packer = pieces.Packer(pieces.Encoder(path), is_word_by_word=True)
        with absltest.mock.patch.object(pieces, "_LARGEST_CACHE", 10):
            first = [packer.pack([line]) for line in lines(40, 5)]
            self.assertLess(len(packer._words), 30)
            again = [packer.pack([line]) for line in lines(40, 5)]
        self.assertEqual(first, again)

    def test_other_models_are_not_split_into_words(self):
        for number, options in enumerate(
            (
                {"model_type": "unigram"},
                {"remove_extra_whitespaces": True},
                {"user_defined_symbols": ["b c"]},
                {"split_by_whitespace": False},
                {"normalization_rule_name": "nmt_nfkc"},
            )
        ):
            prefix = str(self.folder / f"{number}")
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(["ab c ab c", "b c"] * 40),
                model_prefix=prefix,
                **{
                    "vocab_size": 290,
                    "hard_vocab_limit": False,
                    "byte_fallback": True,
                    "model_type": "bpe",
                    "normalization_rule_name": "identity",
                    "remove_extra_whitespaces": False,
                    "minloglevel": 2,
                    **options,
                },
            )
            encoder = pieces.Encoder(f"{prefix}.model")
            self.assertFalse(encoder.is_word_by_word, options)
            packer = pieces.Packer(encoder)
            text = " ab  c b c"
            self.assertEqual(
                packer.pack([text]),
                [
                    b"".join(
                        map(pieces.varint, encoder.encode_batch([text])[0][:-1])
                    )
                ],
            )

    def test_a_piece_with_an_inner_blank_is_noticed(self):
        path = self.folder / "made.model"
        pieces.train(lines(300, 1), path, 330)
        proto = sentencepiece_model_pb2.ModelProto.FromString(path.read_bytes())
        proto.pieces[-1].piece = "a\u2581b"
        path.write_bytes(proto.SerializeToString())
        self.assertFalse(pieces.Encoder(path).is_word_by_word)


if __name__ == "__main__":
    absltest.main()
