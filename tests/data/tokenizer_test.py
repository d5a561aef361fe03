"""Tests of the tokenizer: the same in Python and in graphs.

`spelling_test` says what comes back.
"""

import random

import tensorflow as tf
from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf.data import graph_tokenizers
from relpos_tf.data import tokenizer
from relpos_tf.utils import text as text_lib
from tests import folders
from tests import tiny_run
from tests.data import t2t_subwords_test

NO_UTF8 = (
    b"a\xffb",
    b"\xe2\x82",
    b"cut \xf0\x9f\x98 off",
    b"\xed\xa0\x80 surrogate",
    b"\xc0\xaf overlong",
    b"\xc2\xa0blank \xc2\xad\xad\xcc\x81",
)


def setUpModule():
    global _path, _tokens, _graph
    _path = tiny_run.path() / "tokenizer.model"
    _tokens = tokenizer.Tokenizer(_path)
    _graph = graph_tokenizers.of(_tokens)


def in_graph(rows):
    """Returns the texts of rows of ids, decoded in a graph."""
    padded = tf.ragged.constant(rows, tf.int32, ragged_rank=1).to_tensor()
    return [text.decode() for text in _graph.decode(padded).numpy()]


# Not tf.test.TestCase, which drops the kernel that holds the graph's tokenizer.
class TokenizerTest(parameterized.TestCase):
    @parameterized.parameters(*NO_UTF8)
    def test_invalid_utf8_reads_in_graph_as_in_python(self, string):
        expected = string.decode("utf-8", errors="replace")
        (ids,) = _graph.encode(tf.constant([string])).to_list()
        self.assertEqual(ids, _tokens.encode(expected))

    def test_lone_surrogates_do_not_raise(self):
        self.assertEqual(_tokens.encode("a\ud800b"), _tokens.encode("a?b"))

    def test_decoding_stops_at_the_first_end_and_skips_padding(self):
        first = _tokens.encode("A man.")
        second = _tokens.encode("two dogs")
        rows = [
            first + second,
            [0, *first, 0, 0],
            second[:-1],
            [text_lib.EOS_ID, *second],
            [],
        ]
        expected = ["A man.", "A man.", "two dogs", "", ""]
        self.assertEqual([_tokens.decode(row) for row in rows], expected)
        padded = tf.ragged.constant(rows, dtype=tf.int64).to_tensor()
        decode = tf.function(
            _graph.decode,
            input_signature=[tf.TensorSpec([None, None], tf.int64)],
        )
        found = [text.decode() for text in decode(padded).numpy()]
        self.assertEqual(found, expected)

    def test_any_ids_decode_alike(self):
        draw = random.Random(3)
        # Blanks and unknown ids in front, in the middle and at the end.
        often = [_tokens.pieces().index("▁"), text_lib.UNKNOWN_ID, 0x20 + 3]
        rows = [[i] for i in range(_tokens.vocab_size)]
        for _ in range(2000):
            any_ids = draw.choices(range(_tokens.vocab_size), k=3)
            size = draw.randint(1, 6)
            rows.append(draw.choices(often + any_ids, k=size))
        expected = [_tokens.decode(row) for row in rows]
        self.assertEqual(in_graph(rows), expected)


class FileTest(folders.TestCase):
    def test_loading_goes_by_the_name(self):
        self.assertEqual(
            tokenizer.load(str(_path)).fingerprint, _tokens.fingerprint
        )
        path = t2t_subwords_test.write(self.folder, t2t_subwords_test.SMALL)
        self.assertEqual(tokenizer.load(path).encode("the"), [2, 1])

    def test_other_files_are_named(self):
        model, subwords = self.folder / "b.model", self.folder / "b.subwords"
        missing, other = self.folder / "c.model", self.folder / "d.bpe"
        with self.assertRaisesRegex(FileNotFoundError, str(missing)):
            tokenizer.load(missing)
        model.write_bytes(b"not a model")
        subwords.write_bytes(_tokens.model_bytes)
        for path in (model, subwords, other):
            with self.assertRaisesRegex(errors.UserError, str(path)):
                tokenizer.load(path)


class FitTest(absltest.TestCase):
    def test_text_that_the_vocabulary_knows_needs_few_ids_and_no_bytes(self):
        found = tokenizer.fit(_tokens, tiny_run.TEXT)
        ids = sum(len(row) - 1 for row in map(_tokens.encode, tiny_run.TEXT))
        words = sum(text.count(" ") + 1 for text in tiny_run.TEXT)
        self.assertAlmostEqual(found.ids_per_word, ids / words)
        self.assertEqual(found.byte_share, 0)

    def test_other_text_is_spelled_in_bytes(self):
        # Two bytes for each letter, and the blank in front of each word.
        found = tokenizer.fit(_tokens, ["Два", "щенка бегут"])
        self.assertAlmostEqual(found.ids_per_word, (7 + 11 + 11) / 3)
        self.assertAlmostEqual(found.byte_share, (6 + 10 + 10) / 29)
        self.assertEqual(tokenizer.fit(_tokens, ["", "\u00a0"]), (0, 0))
