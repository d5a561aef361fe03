"""Tests of the tokenizer: reversible, and the same in Python and in graphs."""

import pathlib
import tempfile

import hypothesis
import tensorflow as tf
from absl.testing import absltest
from absl.testing import parameterized
from hypothesis import strategies

from relpos_tf import errors
from relpos_tf.data import graph_tokenizers
from relpos_tf.data import pieces
from relpos_tf.data import tokenizer

_TEXT = [
    "Ein Mann mit einem roten Hut steht vor einem Haus.",
    "A man with a red hat is standing in front of a house.",
    "Zwei Hunde laufen über eine grüne Wiese, während es regnet.",
    "Two dogs are running over a green meadow while it is raining.",
] * 5

_EDGE_CASES = (
    "",
    " ",
    "   ",
    "A man.",
    "a  b",
    "  two in front",
    "two behind  ",
    "tab\tand\u00a0no-break",
    "line\u2028separator\u0085next",
    "emoji \U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "e\u0301 against \u00e9, \ufb01 against fi, \uff21 against A",
    "\u200b\ufeffzero width",
    "</s> <pad> <unk> <0x41>",
    "\u65e5\u672c\u8a9e \u0627\u0644\u0639\u0631\u0628\u064a\u0629",
    "nul\0inside",
    "\x01\x7f\x80\x9f",
    "\ufffd\uffff\U0010ffff",
)


def setUpModule():
    global _folder, _tokens, _graph
    _folder = tempfile.TemporaryDirectory()
    path = pathlib.Path(_folder.name, "tokenizer.model")
    pieces.train(_TEXT, path, 400)
    _tokens = tokenizer.Tokenizer(path)
    _graph = graph_tokenizers.of(_tokens)


def tearDownModule():
    _folder.cleanup()


# Not tf.test.TestCase, which drops the kernel that holds the graph's tokenizer.
class TokenizerTest(parameterized.TestCase):
    def in_graph(self, string):
        return _graph.encode(tf.constant([string])).to_list()[0]

    @parameterized.parameters(*_EDGE_CASES)
    def test_text_comes_back_and_graph_agrees(self, string):
        ids = _tokens.encode(string)
        self.assertEqual(ids[-1], tokenizer.EOS_ID)
        self.assertNotIn(tokenizer.EOS_ID, ids[:-1])
        self.assertNotIn(tokenizer.PAD_ID, ids)
        self.assertNotIn(tokenizer.UNKNOWN_ID, ids)
        self.assertEqual(_tokens.decode(ids), string)
        self.assertEqual(self.in_graph(string), ids)
        decoded = _graph.decode(tf.constant([ids]))
        self.assertEqual(decoded.numpy()[0].decode(), string)

    @hypothesis.settings(
        max_examples=60, deadline=None, derandomize=True, database=None
    )
    @hypothesis.given(
        strategies.text(
            strategies.characters(exclude_categories=["Cs"]), max_size=12
        )
    )
    def test_any_text_comes_back_and_graph_agrees(self, string):
        ids = _tokens.encode(string)
        meant = string.replace("\u2581", "_")
        self.assertEqual(_tokens.decode(ids), meant)
        self.assertEqual(self.in_graph(string), ids)
        decoded = _graph.decode(tf.constant([ids]))
        self.assertEqual(decoded.numpy()[0].decode(), meant)

    @parameterized.parameters(
        b"a\xffb",
        b"\xe2\x82",
        b"cut \xf0\x9f\x98 off",
        b"\xed\xa0\x80 surrogate",
        b"\xc0\xaf overlong",
    )
    def test_invalid_utf8_reads_in_graph_as_in_python(self, string):
        expected = string.decode("utf-8", errors="replace")
        ids = self.in_graph(string)
        self.assertEqual(ids, _tokens.encode(expected))
        decoded = _graph.decode(tf.constant([ids]))
        self.assertEqual(decoded.numpy()[0].decode(), expected)

    def test_lone_surrogates_do_not_raise(self):
        self.assertEqual(_tokens.encode("a\ud800b"), _tokens.encode("a?b"))

    def test_the_sign_for_a_blank_is_read_as_an_underscore(self):
        self.assertEqual(_tokens.decode(_tokens.encode("a\u2581b")), "a_b")

    def test_decoding_stops_at_the_first_end_and_skips_padding(self):
        first = _tokens.encode("A man.")
        second = _tokens.encode(" two dogs ")
        rows = [
            first + second,
            [0, *first, 0, 0],
            second[:-1],
            [tokenizer.EOS_ID, *second],
            [tokenizer.UNKNOWN_ID, *second],
            [],
        ]
        texts = [_tokens.decode(row) for row in rows]
        self.assertEqual(texts[:4], ["A man.", "A man.", " two dogs ", ""])
        padded = tf.ragged.constant(rows, dtype=tf.int32).to_tensor()
        decode = tf.function(
            _graph.decode,
            input_signature=[tf.TensorSpec([None, None], tf.int32)],
        )
        in_graph = [string.decode() for string in decode(padded).numpy()]
        self.assertEqual(in_graph, texts)
        as_int64 = _graph.decode(tf.cast(padded, tf.int64))
        self.assertEqual(
            as_int64.numpy().tolist(), decode(padded).numpy().tolist()
        )

    def test_all_single_ids_decode_alike(self):
        ids = list(range(_tokens.vocab_size))
        texts = [_tokens.decode([i]) for i in ids]
        in_graph = _graph.decode(tf.constant(ids)[:, tf.newaxis])
        decoded = [string.decode() for string in in_graph.numpy()]
        self.assertEqual(decoded, texts)

    def test_batches_encode_like_single_strings(self):
        self.assertEqual(
            _tokens.encode_batch(_EDGE_CASES),
            [_tokens.encode(string) for string in _EDGE_CASES],
        )
        ragged = _graph.encode(tf.constant([], tf.string))
        self.assertEqual(ragged.shape[0], 0)
        self.assertEqual(ragged.dtype, tf.int32)

    def test_special_pieces_come_first_and_every_byte_has_one(self):
        pieces = _tokens.pieces()
        self.assertEqual(pieces[:3], ["<pad>", "</s>", "<unk>"])
        self.assertEqual(
            pieces[3:259], [f"<0x{byte:02X}>" for byte in range(256)]
        )
        self.assertIn("▁man", pieces)


class TrainingTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.path = self.folder / "tokenizer.model"

    def test_the_same_text_gives_the_same_file(self):
        other = self.folder / "other.model"
        pieces.train(_TEXT, self.path, 350)
        pieces.train(iter(_TEXT), other, 350)
        self.assertEqual(self.path.read_bytes(), other.read_bytes())
        self.assertLen(list(self.folder.iterdir()), 2)
        first, second = map(tokenizer.Tokenizer, (self.path, other))
        self.assertEqual(first.fingerprint, second.fingerprint)
        self.assertEqual(first.vocab_size, 350)

    def test_other_text_gives_another_fingerprint(self):
        pieces.train(_TEXT[:2], self.path, 300)
        one = tokenizer.Tokenizer(self.path)
        pieces.train(_TEXT[2:4], self.path, 300)
        self.assertNotEqual(
            one.fingerprint, tokenizer.Tokenizer(self.path).fingerprint
        )

    def test_little_text_gives_a_small_vocabulary(self):
        pieces.train(["ab ab", "abc"], self.path, 8000)
        tokens = tokenizer.Tokenizer(self.path)
        self.assertBetween(tokens.vocab_size, 263, 270)
        self.assertEqual(
            tokens.encode("ab")[:-1], [tokens.pieces().index("▁ab")]
        )

    def test_no_text_or_no_room_is_the_users_mistake(self):
        for lines, size in (([], 300), (_TEXT, 260)):
            with self.assertRaisesRegex(errors.UserError, f"vocab_size={size}"):
                pieces.train(lines, self.path, size)
        self.assertEmpty(list(self.folder.iterdir()))

    def test_files_that_are_no_tokenizer_are_named(self):
        with self.assertRaisesRegex(errors.UserError, str(self.path)):
            tokenizer.Tokenizer(self.path)
        self.path.write_bytes(b"not a model")
        with self.assertRaisesRegex(errors.UserError, str(self.path)):
            tokenizer.Tokenizer(self.path)


if __name__ == "__main__":
    absltest.main()
