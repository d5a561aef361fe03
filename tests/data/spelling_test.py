"""Spellings that look alike have equal ids: in Python, graphs, preparation."""

import hashlib
import itertools
import pathlib
import random
import tempfile
import unicodedata

import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.data import graph_tokenizers
from relpos_tf.data import pieces
from relpos_tf.data import spelling
from relpos_tf.data import tokenizer
from relpos_tf.utils import text as text_lib

_LINE = "Zwei Männer über 30 °C, größer"
_BLANKS = (
    "\t\r\x1c\x1d\x1e\x1f\u0085\u00a0\u1680\u2028\u2029\u202f\u205f\u3000"
    + "".join(map(chr, range(0x2000, 0x200B)))
)
INVISIBLE = (
    "\u00ad\u200b\u2060\ufeff\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e"
    "\u2066\u2067\u2068\u2069"
)
# Lines, with joiners and signs that are left out at the ends of lines alone.
SHOW_NOTHING = (
    *("", " ", *INVISIBLE, *"\u034f\u180e\u200c\u200d\u2061\u2062\u2063\u2064"),
    *("\u200b \ufeff", "\u200d\u00ad\u200d", "\t\u200f\u2028\u2066 \u2069"),
)
_ALIKE = (
    unicodedata.normalize("NFD", _LINE),
    f" {_LINE}  ",
    _LINE.replace("M", "M\u00ad"),
    _LINE.replace("n", "\u200bn\u200b"),
    f"\u200b {_LINE} \u200b \ufeff",
    *(_LINE.replace(" ", blank) for blank in _BLANKS),
    *(_LINE.replace(" ", f" {blank}") for blank in _BLANKS),
    *(mark + _LINE for mark in INVISIBLE),
    *(_LINE.replace(" ", f" {mark} ") for mark in INVISIBLE),
)
# Each looks different from what other forms of Unicode make of it.
_KEPT = (
    "ﬁ ２ x² ① Ａ ℃ ﷺ",
    "می\u200cخواهم क्\u200dष",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 ❤\ufe0f \U0001f1e9\U0001f1ea",
    "Groß ß ẞ İi ıI",
    "«a» “b” ‘c’ – — … a‐b a‑b",
    "\x01\x7f\x80 \ufffd\uffff\U0010ffff nul\0inside",
    "</s> <pad> <unk> <0x41>",
)


def setUpModule():
    global _tokens, _graph, _encoder
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "tokenizer.model")
        pieces.learn(
            pieces.count_words([_LINE, "Ein Mann.", "ấ ệ 한국"] * 5), path, 330
        )
        _tokens = tokenizer.Tokenizer(path)
        _encoder = pieces.Encoder(path)
    _graph = graph_tokenizers.of(_tokens)


def read(texts):
    """Returns what ids keep of texts."""
    return [_tokens.decode(_tokens.encode(text)) for text in texts]


# Not tf.test.TestCase, which drops the kernel that holds the graph's tokenizer.
class SpellingTest(parameterized.TestCase):
    def assert_all_agree(self, texts, rows):
        self.assertEqual(list(map(_tokens.encode, texts)), rows)
        in_graph = _graph.encode(tf.constant([t.encode() for t in texts]))
        self.assertEqual(in_graph.to_list(), rows)
        ids, lengths = _encoder.arrays(texts)
        self.assertEqual(ids.tolist(), list(itertools.chain(*rows)))
        self.assertEqual(lengths.tolist(), list(map(len, rows)))

    def test_spellings_that_look_alike_have_equal_ids(self):
        rows = [_tokens.encode(_LINE)] * len(_ALIKE)
        self.assert_all_agree(_ALIKE, rows)
        self.assertEqual(read(_ALIKE), [_LINE] * len(_ALIKE))

    def test_lines_of_blanks_and_invisible_characters_are_empty(self):
        texts = ["", *_BLANKS, *INVISIBLE, " \u200b \ufeff\u00a0"]
        self.assert_all_agree(texts, [[text_lib.EOS_ID]] * len(texts))

    @parameterized.parameters(*_KEPT)
    def test_what_looks_different_stays(self, text):
        self.assertEqual(read([text]), [text])

    def test_the_sign_for_a_blank_is_read_as_an_underscore(self):
        self.assertEqual(read(["a\u2581b \u2581"]), ["a_b _"])

    def test_every_character_is_composed(self):
        forms = {
            unicodedata.normalize("NFD", character)
            for character in map(chr, range(0x110000))
            if not unicodedata.is_normalized("NFD", character)
            and not character.isspace()
        }
        self.assertGreater(len(forms), 12_000)
        # A mark in front belongs to no letter.
        texts = [f"x {form}" for form in sorted(forms)]
        expected = [unicodedata.normalize("NFC", text) for text in texts]
        self.assertEqual(read(texts), expected)

    def test_two_marks_may_stand_in_any_order(self):
        letters = "aeosuAOgqxäéịễςωηѝ漢한אب"
        scripts = (
            "\u0300\u0301\u0302\u0303\u0306\u0307\u0308\u030a\u030c\u0313\u031b"
            "\u0323\u0327\u0328\u0330\u0331\u0338\u0342\u0345",
            "\u064b\u064e\u064f\u0650\u0651\u0653\u0654",
            "\u05b4\u05b8\u05bc\u05c1",
        )
        texts = [
            letter + "".join(order)
            for letter in letters
            for marks in scripts
            for order in itertools.permutations(marks, 2)
            if len(unicodedata.normalize("NFD", letter)) == 1
        ]
        expected = [unicodedata.normalize("NFC", text) for text in texts]
        self.assertEqual(read(texts), expected)

    def test_any_text_reads_alike_everywhere(self):
        draw = random.Random(7)
        characters = (
            *"aäbq \u2581_ấ한\u1112\u1161\u11ab\u200c\u200d\0\x01漢ب\U0001f600",
            *"\u0300\u0301\u0323\u0345\u064e\u0651\u3099",
            *_BLANKS,
            *INVISIBLE,
        )
        texts = [
            "".join(draw.choices(characters, k=draw.randint(0, 15)))
            for _ in range(3000)
        ]
        self.assert_all_agree(texts, list(map(_tokens.encode, texts)))
        once = read(texts)
        for text in once:
            self.assertEqual(text, " ".join(text.split()))
            self.assertNoCommonElements(text, INVISIBLE)

    def test_every_python_makes_the_same_table(self):
        self.assertEqual(
            hashlib.sha256(spelling.rules().encode()).hexdigest()[:16],
            "5bc0fcaba85750ff",
        )
