"""Tests with arbitrary bytes, from a file of lines to its translation."""

import pathlib
import tempfile
import unicodedata

import hypothesis
import tensorflow as tf
from absl.testing import parameterized
from hypothesis import strategies

import relpos_tf
from relpos_tf.data import graph_tokenizers
from relpos_tf.data import pieces
from relpos_tf.data import t2t_subwords
from relpos_tf.data import tokenizer
from relpos_tf.decoding import engines
from relpos_tf.problems import cleaning
from relpos_tf.problems import translate
from relpos_tf.utils import text as text_lib
from tests import tiny_run
from tests.data import spelling_test
from tests.data import t2t_subwords_test

_ODD = (
    *("\0", "\r", "\x85", "\u2028", "\u2029", "\x0b", "\x1c", "\t", "\ufeff"),
    *("\u0627\u0644", "\u05e9\u05c1", "\u202e", "\u200f", "e\u0301", "\u0335"),
    *("\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea"),
    *("\u2581", "_", "\\", "<pad>", "</s>", "<0x0A>", "\\10;", "\\u", "&amp;"),
    *("\ufffd", "\uffff", "\U0010ffff", "\ud800", "\udfff", " ", "  ", "the "),
)
_BROKEN = (b"\xff", b"\xe2\x82", b"\xf0\x9f\x98", b"\xc0\xaf", b"\xf8\x88")
_LINES_OF_BYTES = strategies.lists(
    strategies.one_of(
        strategies.text(),
        strategies.sampled_from(_ODD),
        strategies.sampled_from(_BROKEN),
        strategies.binary(max_size=4),
    ).map(
        lambda part: (
            part.encode("utf-8", errors="surrogatepass")
            if isinstance(part, str)
            else part
        )
    ),
    max_size=7,
).map(lambda parts: b"".join(parts).replace(b"\n", b""))
# 10,000 characters each.
_LONG_LINES = strategies.sampled_from(
    [
        b"the man " * 1250,
        "\u65e5".encode() * 10_000,
        b"!" * 10_000,
        b" " * 10_000,
        b"\xff" * 10_000,
        "e\u0301".encode() * 5000,
    ]
)
_PAIRS = strategies.lists(
    strategies.tuples(_LINES_OF_BYTES, _LINES_OF_BYTES),
    min_size=1,
    max_size=30,
)


def examples(number):
    """Returns settings of hypothesis: always the same few examples."""
    return hypothesis.settings(
        max_examples=number,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )


def setUpModule():
    global _folder, _tokenizers, _translator
    _folder = tempfile.TemporaryDirectory()
    folder = pathlib.Path(_folder.name)
    pieces.train(tiny_run.TEXT * 5, folder / "made.model", 400)
    path = folder / "t2t.subwords"
    path.write_text(t2t_subwords_test.T2T["vocab_file"], encoding="utf-8")
    _tokenizers = {
        "sentencepiece": tokenizer.Tokenizer(folder / "made.model"),
        "subwords": t2t_subwords.SubwordTokenizer(path),
    }
    _translator = relpos_tf.Translator.load(tiny_run.path())


def tearDownModule():
    _folder.cleanup()


def spelled(line):
    """Returns what lines that SentencePiece need not tell apart share."""
    kept = line.translate(dict.fromkeys(map(ord, spelling_test.INVISIBLE)))
    kept = " ".join(kept.replace("\u2581", "_").split())
    return unicodedata.normalize("NFD", kept)


def lines_of(content):
    """Returns the lines of a file, as the module `text` defines them."""
    lines = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if not lines[-1]:
        lines.pop()
    return [
        line.removesuffix(b"\r").decode("utf-8", errors="replace")
        for line in lines
    ]


class FuzzTest(parameterized.TestCase):
    def path(self, name):
        return pathlib.Path(_folder.name, name)

    @parameterized.parameters("sentencepiece", "subwords")
    def test_tokens_are_ids_and_come_back_alike_in_graph(self, name):
        tokens = _tokenizers[name]
        graph = graph_tokenizers.of(tokens)

        @examples(5)
        @hypothesis.given(
            strategies.lists(
                _LINES_OF_BYTES | _LONG_LINES, min_size=1, max_size=3
            )
        )
        def check(lines):
            strings = [line.decode("utf-8", errors="replace") for line in lines]
            rows = tokens.encode_batch(strings)
            for string, row in zip(strings, rows, strict=True):
                self.assertEqual(row[-1], text_lib.EOS_ID)
                self.assertNotIn(text_lib.EOS_ID, row[:-1])
                self.assertBetween(min(row), 1, tokens.vocab_size - 1)
                self.assertBetween(max(row), 1, tokens.vocab_size - 1)
                found = tokens.decode(row)
                if name == "sentencepiece":
                    self.assertEqual(spelled(found), spelled(string))
                else:
                    self.assertEqual(found, string)
            self.assertEqual(graph.encode(tf.constant(lines)).to_list(), rows)
            padded = tf.ragged.constant(rows, dtype=tf.int32).to_tensor(0)
            self.assertEqual(
                [s.decode() for s in graph.decode(padded).numpy()],
                list(map(tokens.decode, rows)),
            )

        check()

    @examples(3)
    @hypothesis.given(_PAIRS)
    def test_files_of_anything_are_prepared_line_by_line(self, pairs):
        # Some sound pairs, so that there is something to learn.
        train = [(line.encode(), line.encode()) for line in tiny_run.TEXT]
        files = {}
        for split, some_pairs in (("train", train + pairs), ("dev", pairs)):
            for side, lines in zip(
                ("source", "target"), zip(*some_pairs, strict=True), strict=True
            ):
                path = self.path(f"{split}.{side}")
                files[f"{split}_{side}"] = str(path)
                lines = [line.decode(errors="replace") for line in lines]
                content = "".join(f"{line}\n" for line in lines)
                path.write_bytes(content.replace("\0", "").encode())
        problem = translate.files_problem(files, vocab_size=2000)
        with tempfile.TemporaryDirectory() as folder:
            manifest = problem.prepare(folder)
            dropped = sum(cleaning.dropped(manifest["cleaning"]).values())
            self.assertEqual(
                manifest["counts"],
                {"train": len(train + pairs) - dropped, "dev": len(pairs)},
            )
            for split in ("train", "dev"):
                self.assertLen(
                    problem.tokens(folder, split), manifest["counts"][split]
                )
            sides = problem.lines(folder, "dev")
        for side, lines in zip(("source", "target"), sides, strict=True):
            expected = pathlib.Path(files[f"dev_{side}"]).read_bytes()
            self.assertEqual(lines, lines_of(expected))

    @examples(3)
    @hypothesis.given(strategies.lists(_LINES_OF_BYTES, min_size=1, max_size=8))
    def test_each_line_has_one_line_of_translation(self, lines):
        strings = lines_of(b"".join(line + b"\n" for line in lines))
        found = _translator.translate(strings, beam_size=2, extra_length=3)
        self.assertLen(found, len(lines))
        for string, translation in zip(strings, found, strict=True):
            self.assertNoCommonElements(translation, "\r\n")
            if engines.is_blank(string):
                self.assertEqual(translation, "")
