"""Tests of escaping, in Python and in graphs, with examples by hand."""

import itertools
import sys
import unicodedata

import tensorflow as tf
from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf.data import graph_escaping
from relpos_tf.data import t2t_escaping

_ALPHABET = t2t_escaping.SPELLING | set("abcé .日")
# Text, its tokens, their spelling one after another.
_EXAMPLES = (
    ("", [], ""),
    ("a", ["a"], "a_"),
    ("a b", ["a", "b"], "a_b_"),
    ("a  b", ["a", "  ", "b"], "a_  _b_"),
    (" ", [" "], " _"),
    ("  ", ["  "], "  _"),
    (" a b ", [" ", "a", "b", " "], " _a_b_ _"),
    (" a", [" ", "a"], " _a_"),
    ("a. b", ["a", ". ", "b"], "a_. _b_"),
    ("b1é日", ["b1é日"], "b1é日_"),
    ("_", ["_"], r"\u_"),
    ("a_b", ["a", "_", "b"], r"a_\u_b_"),
    (r"\_", [r"\_"], r"\\\u_"),
    (r"\u", ["\\", "u"], r"\\_u_"),
    (r"\97;", ["\\", "97", ";"], r"\\_97_;_"),
    ("x", ["x"], r"\120;_"),
    ("ax y!", ["ax", "y", "!"], r"a\120;_\121;_\33;_"),
    ("a\nb", ["a", "\n", "b"], r"a_\10;_b_"),
    ("a\r\n\tb", ["a", "\r\n\t", "b"], r"a_\13;\10;\9;_b_"),
    ("a\0b", ["a", "\0", "b"], r"a_\0;_b_"),
    ("a\u2028b", ["a", "\u2028", "b"], r"a_\8232;_b_"),
    ("a\u00a0b", ["a", "\u00a0", "b"], r"a_\160;_b_"),
    # A combining mark (Mn) is no letter, a superscript two (No) is a number.
    ("e\u0301", ["e", "\u0301"], r"\101;_\769;_"),
    ("a\u00b2 \u0967", ["a\u00b2", "\u0967"], r"a\178;_\2407;_"),
    # A letter and a face beyond 16 bits, and permanently unassigned codes.
    ("\U0001d5a6 a", ["\U0001d5a6", "a"], r"\120230;_a_"),
    ("a\U0001f600b", ["a", "\U0001f600", "b"], r"a_\128512;_b_"),
    ("\ufeff\uffff\U0010ffff", ["\ufeff\uffff\U0010ffff"],
     r"\65279;\65535;\1114111;_"),
)  # fmt: skip
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
    @parameterized.parameters(*_EXAMPLES)
    def test_examples(self, text, tokens, spelled):
        self.assertEqual(t2t_escaping.split(text), tokens)
        words = [t2t_escaping.spell(token, _ALPHABET) for token in tokens]
        self.assertEqual("".join(words), spelled)
        self.assertEqual(t2t_escaping.read(spelled), text)

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
        texts, _, spelled = zip(*_EXAMPLES, strict=True)
        malformed, _ = zip(*_MALFORMED, strict=True)
        self.assert_graph_agrees(texts, spelled + malformed)

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


if __name__ == "__main__":
    absltest.main()
