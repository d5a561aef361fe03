"""tensor2tensor's subwords: its own results, examples by hand, an oracle."""

import functools
import json
import pathlib
import re
import tempfile
import unicodedata

import hypothesis
from absl.testing import parameterized
from hypothesis import strategies

from relpos_tf import errors
from relpos_tf.data import t2t_subwords
from tests import folders

T2T = json.loads(
    (
        pathlib.Path(__file__).parents[1] / "reference" / "t2t_subwords.json"
    ).read_text(encoding="utf-8")
)
# A piece for each id. No piece is a "p", and of the digits only 0 to 3 are.
SMALL = (
    *("<pad>_", "<EOS>_", "the_", "th", "e_", "é", "t", "h", "e", "_"),
    *(" ", "\\", "u", ";", ".", "1", "0", "3", "2", "._"),
)
# Text, and its ids before EOS.
BY_HAND = (
    ("", []),
    ("the", [2]),
    ("the the", [2, 2]),
    ("the  the", [2, 10, 10, 9, 2]),
    (" ", [10, 9]),
    (" the ", [10, 9, 2, 10, 9]),
    ("the.", [2, 19]),
    ("the. the", [2, 14, 10, 9, 2]),
    ("th", [3, 9]),
    ("thé", [3, 5, 9]),
    ("he", [7, 4]),
    ("ethe", [8, 2]),
    ("t_e", [6, 9, 11, 12, 9, 4]),
    ("\\", [11, 11, 9]),
    ("!", [11, 17, 17, 13, 9]),
    ("x1", [11, 15, 18, 16, 13, 15, 9]),
    ("the\nthe", [2, 11, 15, 16, 13, 9, 2]),
    ("\0", [11, 16, 13, 9]),
    ("\U0001d5a6 e", [11, 15, 18, 16, 18, 17, 16, 13, 9, 4]),
)
# Ids that no text has, and their text.
DECODED_BY_HAND = (
    ([], ""),
    ([2, 2, 1, 2], "the the"),
    ([1, 2], ""),
    ([0, 2, 0, 0, 3, 0, 4, 0], "the the"),
    ([2, 20, 99, -1, -20, 2], "the the"),
    ([9, 9, 2, 9], "the"),
    ([3, 8], "the"),
    ([6, 14, 9, 8, 9], "t. e"),
    ([11, 9, 11, 15], "\\\\1"),
    ([11, 3, 9], "\\th"),
)
_FAVOURITES = "the pad.u;01239_\\ \t\r\n\0é\u0301\u2028\u65e5\U0001f600"


def texts(max_size: int = 30):
    """Returns a strategy for text: some likely, some odd characters."""
    characters = strategies.sampled_from(_FAVOURITES)
    anything = strategies.characters(exclude_categories=["Cs"])
    return strategies.text(characters | anything, max_size=max_size)


def write(folder: str, pieces, name: str = "small.subwords") -> pathlib.Path:
    """Writes a vocabulary as tensor2tensor does, and returns its path."""
    path = pathlib.Path(folder, name)
    path.write_bytes("".join(f"'{piece}'\n" for piece in pieces).encode())
    return path


@functools.cache
def tokenizers():
    """Returns the tokenizers of SMALL and of tensor2tensor's vocabulary."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "t2t.subwords")
        path.write_bytes(T2T["vocab_file"].encode())
        return [
            t2t_subwords.SubwordTokenizer(one)
            for one in (write(folder, SMALL), path)
        ]


def slow_ids(pieces, string):
    """Encodes, by regular expressions alone."""
    kinds = "".join(
        "a" if unicodedata.category(c)[0] in "LN" else "-" for c in string
    )
    spans = [match.span() for match in re.finditer("a+|-+", kinds)]
    alphabet = set("".join(pieces)) | set("\\_u;0123456789")
    special = {"\\": "\\\\", "_": "\\u"}
    longest_first = sorted(filter(None, pieces), key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, longest_first)))
    ids = []
    for first, last in spans:
        if string[first:last] == " " and first > 0 and last < len(string):
            continue
        spelled = "".join(
            special.get(c, c if c in alphabet else f"\\{ord(c)};")
            for c in string[first:last]
        )
        ids += [pieces.index(p) for p in pattern.findall(spelled + "_")]
    return [*ids, 1]


class SubwordTokenizerTest(parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.small, cls.t2t = tokenizers()

    def test_tensor2tensors_own_results(self):
        pieces = self.t2t.pieces()
        self.assertEqual(self.t2t.model_bytes, T2T["vocab_file"].encode())
        self.assertEqual(self.t2t.vocab_size, T2T["vocab_size"])
        self.assertLen(T2T["cases"], 5)
        for case in T2T["cases"]:
            ids = self.t2t.encode(case["text"])
            self.assertEqual(ids, [*case["ids"], 1])
            self.assertEqual([pieces[i] for i in ids[:-1]], case["subtokens"])
            self.assertEqual(self.t2t.decode(ids), case["decoded"])
            self.assertEqual(self.t2t.decode(case["ids"]), case["decoded"])

    @parameterized.parameters(*BY_HAND)
    def test_examples(self, string, ids):
        self.assertEqual(self.small.encode(string), [*ids, 1])
        self.assertEqual(self.small.decode([*ids, 1]), string)

    @parameterized.parameters(*DECODED_BY_HAND)
    def test_any_ids_decode(self, ids, string):
        self.assertEqual(self.small.decode(ids), string)

    @hypothesis.settings(
        max_examples=300, deadline=None, derandomize=True, database=None
    )
    @hypothesis.given(texts())
    def test_oracle_agrees_and_text_comes_back(self, string):
        ids = self.t2t.encode(string)
        self.assertEqual(ids, slow_ids(self.t2t.pieces(), string))
        self.assertEqual(self.t2t.decode(ids), string)

    def test_lone_surrogates_do_not_raise(self):
        self.assertEqual(
            self.t2t.encode("a\ud800\udfffb"), self.t2t.encode("a??b")
        )

    def test_token_without_pieces_is_the_vocabularys_mistake(self):
        with self.assertRaisesRegex(
            errors.UserError, r"small.subwords cannot spell 'tp'.* 'p_'\. A"
        ):
            self.small.encode("the. tp the")
        # U+00DF is 223 and can be spelled, U+00E0 is 224 and cannot.
        self.assertLen(self.small.encode("\u00df"), 7)
        with self.assertRaisesRegex(errors.UserError, r" '4;_'\. A"):
            self.small.encode("\u00e0")


class VocabularyFileTest(folders.TestCase):
    def read(self, content):
        path = self.folder / "vocab.subwords"
        path.write_bytes(content)
        return t2t_subwords.SubwordTokenizer(path)

    @parameterized.parameters("\n", "\r\n", " \t\n")
    def test_quotes_and_blanks_around_lines_do_not_count(self, end):
        lines = ["'<pad>_'", '"<EOS>_"', "it's_", "''t_'", " a_", "' '", "'"]
        lines += ['"\'"', '"', "'b\"", "\u2028c\x85d_", "e_\u00a0\u2028", ""]
        tokens = self.read(end.join([*lines, "f_"]).encode())
        expected = ["<pad>_", "<EOS>_", "it's_", "'t_", " a_", " ", ""]
        expected += ["'", "", "'b\"", "\u2028c\x85d_", "e_", "", "f_"]
        self.assertEqual(tokens.pieces(), expected)
        tokens = self.read((end.join([*lines, "f_"]) + end).encode())
        self.assertEqual(tokens.pieces(), expected)

    def test_carriage_returns_are_lost_as_in_tensorflows_files(self):
        tokens = self.read(b"'<pad>_'\n'<EOS>_'\n'a\rb_'\n'\r'\n'_'\n")
        self.assertEqual(tokens.pieces()[2:], ["ab_", "", "_"])

    def test_empty_lines_keep_their_id_and_the_last_of_equals_counts(self):
        tokens = self.read(b"'<pad>_'\n'<EOS>_'\na_\n\n''\na_\n_\na\n_\n")
        self.assertEqual(tokens.vocab_size, 9)
        self.assertEqual(tokens.encode("a aa"), [5, 7, 5, 1])
        self.assertEqual(tokens.decode([2, 3, 4, 7, 6, 7, 8, 1]), "a a a")

    def test_early_names_of_the_special_pieces(self):
        tokens = self.read(b"'<pad>'\n'<EOS>'\n'a_'\n")
        self.assertEqual(tokens.encode("a a"), [2, 2, 1])
        self.assertEqual(tokens.decode([0, 2, 1]), "a")

    @parameterized.parameters(
        (b"", r"begins with \[\]"),
        (b"\n\n", r"begins with \['', ''\]"),
        (b"'<pad>_'\n", r"begins with \['<pad>_'\]"),
        (b"'<EOS>_'\n'<pad>_'\n'a_'\n", "begins with "),
        (b"a_\nb_\n", "begins with "),
        (b"\xef\xbb\xbf'<pad>_'\n'<EOS>_'\n'a_'\n", r"\\ufeff"),
        (b"'<pad>_'\n'<EOS>_'\n'\xff_'\n", "not text in UTF-8"),
        (b"<pad>\n<EOS>\nthe\n_\nof\n", "whole words"),
    )
    def test_other_files_are_refused(self, content, message):
        with self.assertRaisesRegex(errors.UserError, message) as caught:
            self.read(content)
        self.assertIn("/vocab.subwords", str(caught.exception))
        self.assertNotIn("\n", str(caught.exception))
