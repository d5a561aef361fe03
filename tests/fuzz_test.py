"""Tests with arbitrary bytes, from a file of lines to its translation."""

import pathlib
import tempfile

import hypothesis
from absl.testing import parameterized
from hypothesis import strategies

import relpos_tf
from relpos_tf.decoding import engines
from relpos_tf.problems import cleaning
from relpos_tf.problems import translate
from tests import tiny_run

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
_PAIRS = strategies.lists(
    strategies.tuples(_LINES_OF_BYTES, _LINES_OF_BYTES), min_size=1, max_size=30
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
    global _folder, _translator
    _folder = tempfile.TemporaryDirectory()
    _translator = relpos_tf.Translator.load(tiny_run.path())


def tearDownModule():
    _folder.cleanup()


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

    @examples(3)
    @hypothesis.given(_PAIRS)
    def test_files_of_anything_are_prepared_line_by_line(self, pairs):
        # Some sound pairs, so that there is something to learn.
        train = [(line.encode(), line.encode()) for line in tiny_run.TEXT]
        dev, files = [*pairs, train[0]], {}
        for split, some_pairs in (("train", train + pairs), ("dev", dev)):
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
                {"train": len(train + pairs) - dropped, "dev": len(dev)},
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
