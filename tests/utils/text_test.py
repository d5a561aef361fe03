"""Tests of reading and writing lines."""

import gzip
import io
import pathlib
import random
import tempfile
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf.utils import text


def import_zstandard(test):
    """Returns the package, or skips the test where it is missing."""
    try:
        import zstandard
    except ImportError:
        test.skipTest("needs the extra zstd")
    return zstandard


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
        path = self.write(content)
        self.assertEqual(list(text.read_lines(path)), expected)
        self.assertEqual(text.count_lines(path), len(expected))
        whole = content.removeprefix(b"\xef\xbb\xbf")
        self.assertEqual(text.lines_of(whole), expected)

    def test_lines_of_any_bytes_are_those_of_a_stream(self):
        generator = random.Random(3)
        some = b"ab\n\n\r\xe2\x82\xac\xf0\x9f\x98\x80\xc3\xff\xed\xa0\xef\xbb"
        for _ in range(3000):
            size = generator.randint(0, 20)
            content = bytes(generator.choices(some, k=size))
            expected = [
                line.removesuffix(b"\n")
                .removesuffix(b"\r")
                .decode(errors="replace")
                for line in io.BytesIO(content)
            ]
            self.assertEqual(text.lines_of(content), expected, content)

    def test_gzipped_files_read_like_plain_ones(self):
        content = "eins\nzwei\u2028drei\n".encode()
        path = self.write(gzip.compress(content), "lines.txt.gz")
        self.assertEqual(
            list(text.read_lines(path)), ["eins", "zwei\u2028drei"]
        )
        self.assertEqual(text.count_lines(path), 2)

    def test_files_of_zstandard_read_like_plain_ones(self):
        zstandard = import_zstandard(self)
        lines = [f"{i} zwei\u2028drei" for i in range(30_000)]
        content = "".join(f"{line}\n" for line in lines).encode()
        half = len(content) // 2
        # Two frames, as of two files that were joined.
        packed = b"".join(
            map(zstandard.compress, (content[:half], content[half:]))
        )
        path = self.write(packed, "lines.zst")
        self.assertEqual(list(text.read_lines(path)), lines)
        self.assertEqual(text.count_lines(path), len(lines))
        for size in (9, len(packed) // 3, len(packed) - 1):
            path.write_bytes(packed[:size])
            with self.assertRaisesRegex(errors.UserError, f"{path} to its end"):
                text.count_lines(path)
        path.write_bytes(b"not Zstandard")
        with self.assertRaisesRegex(errors.UserError, f"{path} to its end"):
            text.count_lines(path)

    def test_without_the_package_the_extra_is_named(self):
        path = self.write(b"", "lines.zst")
        with mock.patch.dict("sys.modules", {"zstandard": None}):
            with self.assertRaisesRegex(ImportError, r"zstandard.*\[zstd\]"):
                list(text.read_lines(path))

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
