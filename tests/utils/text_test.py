"""Tests of reading and writing lines."""

import gzip
import pathlib
import tempfile

from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf.utils import text


class LinesTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, content, name="lines.txt"):
        path = self.folder / name
        path.write_bytes(content)
        return path

    @parameterized.named_parameters(
        ("empty file", b"", []),
        ("no final line end", b"a\nb", ["a", "b"]),
        ("blank lines", b"\na\n\n", ["", "a", ""]),
        ("windows line ends", b"a\r\nb\r\n", ["a", "b"]),
        ("carriage return inside", b"a\rb\r\r\n", ["a\rb\r"]),
        ("unicode separators", "a\u2028b\x85c\x0bd\n".encode(), None),
        ("byte order mark", b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", None),
        ("invalid utf-8", b"a\xffb\n\xe2\x82\n", ["a\ufffdb", "\ufffd"]),
        ("nul", b"a\0b\n", ["a\0b"]),
    )
    def test_a_line_ends_at_a_line_feed_only(self, content, expected):
        if expected is None:
            expected = {
                b"a\xe2": ["a\u2028b\x85c\x0bd"],
                b"\xef\xbb": ["a", "\ufeffb"],
            }[content[:2]]
        self.assertEqual(list(text.read_lines(self.write(content))), expected)

    def test_gzipped_files_read_like_plain_ones(self):
        content = "eins\nzwei\u2028drei\n".encode()
        path = self.write(gzip.compress(content), "lines.txt.gz")
        self.assertEqual(
            list(text.read_lines(path)), ["eins", "zwei\u2028drei"]
        )
        self.assertEqual(text.count_lines(path), 2)

    def test_files_that_cannot_be_read_are_named(self):
        cut = gzip.compress(b"eins\n" * 1000)[:-9]
        for path in (
            self.folder / "missing.txt",
            self.folder,
            self.write(cut, "cut.gz"),
            self.write(b"not gzip", "plain.gz"),
        ):
            with self.assertRaisesRegex(errors.UserError, str(path)):
                list(text.read_lines(path))

    def test_written_lines_come_back(self):
        path = self.folder / "out.txt"
        lines = ["", " a\tb ", "c\u2028d", "\x85", "é\0"]
        text.write_lines(path, lines)
        self.assertEqual(list(text.read_lines(path)), lines)
        with self.assertRaisesRegex(ValueError, "line 2"):
            text.write_lines(path, ["a", "b\nc"])


if __name__ == "__main__":
    absltest.main()
