"""tensor2tensor's subwords in graphs, also without this package."""

import hypothesis
import tensorflow as tf
from absl.testing import parameterized
from hypothesis import strategies

from relpos_tf.data import graph_tokenizers
from tests.data import t2t_subwords_test

_STRINGS = (
    *(string for string, _ in t2t_subwords_test.BY_HAND),
    *(case["text"] for case in t2t_subwords_test.T2T["cases"]),
    "     ",
    "\u2028\r\n\t \0 \x7f\x85\u00a0",
    "e\u0301 \U0001f468\u200d\U0001f469 \u65e5\u672c\u8a9e\u3002\u0627\u0644",
    "\ufeff\ufffd\uffff\U0010ffff",
    "\\97; \\\\u__ 1_000",
)
_LONG = ("the" * 4000, "!" * 10000, "\u65e5" * 10000, " " * 10000)
_LINES = tf.TensorSpec([None], tf.string, "strings")
_IDS = tf.TensorSpec([None, None], tf.int32)


def _ids():
    """Returns a strategy for ids: any, and such as spell odd characters."""
    lines = t2t_subwords_test.T2T["vocab_file"].split("\n")
    spelled = strategies.from_regex(
        r"(\\([0-9]{1,8};|u|\\)|[ab._;\\])*", fullmatch=True
    )
    return strategies.lists(strategies.integers(-2, 105)) | spelled.map(
        lambda string: [lines.index(f"'{c}'") for c in string]
    )


class Both(tf.Module):
    """Both directions of a tokenizer, as a SavedModel contains them."""

    def __init__(self, tokens):
        super().__init__()
        graph = graph_tokenizers.of(tokens)
        self._encode, self._decode = graph.encode, graph.decode
        self.tokenizer = graph.tokenizer

    @tf.function(input_signature=[_LINES])
    def encode(self, strings):
        return self._encode(strings)

    @tf.function(input_signature=[_IDS])
    def decode(self, ids):
        return self._decode(ids)


def constant(strings):
    return tf.constant([string.encode() for string in strings], tf.string)


# Not tf.test.TestCase, which drops kernels.
class SubwordGraphTest(parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        small, cls.t2t = t2t_subwords_test.tokenizers()
        cls.small = graph_tokenizers.of(small)
        cls.module = Both(cls.t2t)

    def assert_graph_agrees(self, strings):
        expected = list(map(self.t2t.encode, strings))
        ids = self.module.encode(constant(strings))
        self.assertEqual(ids.dtype, tf.int32)
        self.assertEqual(ids.to_list(), expected)
        texts = self.module.decode(ids.to_tensor())
        self.assertEqual([t.decode() for t in texts.numpy()], list(strings))

    @parameterized.parameters((_STRINGS,), (_LONG,), ((),), (("",),))
    def test_graph_agrees_with_python(self, strings):
        self.assert_graph_agrees(strings)

    @hypothesis.settings(
        max_examples=50, deadline=None, derandomize=True, database=None
    )
    @hypothesis.given(strategies.lists(_ids(), min_size=1, max_size=30))
    def test_graph_agrees_with_python_on_any_ids(self, rows):
        padded = tf.ragged.constant(rows, tf.int32, ragged_rank=1).to_tensor()
        self.assertEqual(
            [text.decode() for text in self.module.decode(padded).numpy()],
            [self.t2t.decode(row) for row in rows],
        )

    def test_token_without_pieces_raises(self):
        for encode in (self.small.encode, tf.function(self.small.encode)):
            with self.assertRaisesRegex(
                tf.errors.InvalidArgumentError, r"(?s)lacks a piece.*tp_"
            ):
                encode(tf.constant(["the", "the tp"]))
