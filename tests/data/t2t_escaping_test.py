"""Tests of odd spellings; t2t_subwords_test has those of any text."""

import itertools
import sys
import unicodedata

import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.data import graph_escaping
from relpos_tf.data import t2t_escaping

_ALPHABET = t2t_escaping.SPELLING | set("abcé .日")
# Spellings that ids can have, but no text.
_MALFORMED = (
    ("a", "a"),
    ("__a__b_", "a b"),
    ("a._b_", "a. b"),
    (".a_b_", ".ab"),
    (r"a_\98;_", "a b"),
    (r"a_\33;_b_", "a!b"),
    (r"\\u_", r"\u"),
    (r"\\\u_", r"\_"),
    (r"\\97;_", r"\97;"),
    (r"\_a_", r"\a"),
    (r"\97_", r"\97"),
    (r"\;\97\97;_", r"\;\97a"),
    (r"\x\+1;_", r"\x\+1;"),
    # Digits of other scripts do not count.
    ("\\\u0967;_", "\\\u0967;"),
    (r"\0;_", "\0"),
    (r"\1114111;_", "\U0010ffff"),
    (r"\1114112;_", "\u3013"),
    (r"\9999999;\99999999;_", "\u3013\u3013"),
    (r"\4294967393;_", "\u3013"),
    (rf"\{'0' * 6000}97;_", "a"),
    (rf"\{'9' * 6000};_", "\u3013"),
    # Surrogates, alone and as a pair, and their neighbours.
    (r"\55296;\57343;_", "??"),
    (r"\55295;\57344;_", "\ud7ff\ue000"),
    (r"a_\55357;\56832;_b_", "a??b"),
)


def constant(strings):
    return tf.constant([string.encode() for string in strings], tf.string)


class SpellingTest(parameterized.TestCase):
    @parameterized.parameters(*_MALFORMED)
    def test_any_spelling_can_be_read(self, spelled, text):
        self.assertEqual(t2t_escaping.read(spelled), text)

    def assert_graph_agrees(self, texts, spelled):
        expected = [
            [t2t_escaping.spell(token, _ALPHABET).encode() for token in row]
            for row in map(t2t_escaping.split, texts)
        ]
        self.assertEqual(
            graph_escaping.spell(constant(texts), _ALPHABET).to_list(), expected
        )
        expected = list(map(t2t_escaping.read, spelled))
        found = graph_escaping.read(constant(spelled)).numpy()
        self.assertEqual([text.decode() for text in found], expected)

    def test_graph_agrees(self):
        self.assert_graph_agrees(["a"], [spelled for spelled, _ in _MALFORMED])

    def test_letters_and_numbers_are_the_same_in_graphs(self):
        is_letter = {
            chr(code): unicodedata.category(chr(code))[0] in "LN"
            for code in range(sys.maxunicode + 1)
            if not 0xD800 <= code <= 0xDFFF
        }
        # Both sides of each place where the answer changes.
        edges = [
            character
            for pair in itertools.pairwise(is_letter)
            if is_letter[pair[0]] != is_letter[pair[1]]
            for character in pair
        ]
        self.assertGreater(len(edges), 1000)
        texts = [f"a{character}" for character in edges]
        sizes = [len(t2t_escaping.split(text)) for text in texts]
        self.assertEqual(sizes, [2 - is_letter[c] for c in edges])
        self.assert_graph_agrees(
            texts, [rf"a_\{ord(character)};_" for character in edges]
        )
