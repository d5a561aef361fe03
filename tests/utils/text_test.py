"""Tests of reading and writing lines."""

import bz2
import gzip
import io
import itertools
import lzma
import os
import threading
from unittest import mock

from absl.testing import parameterized
from backports import zstd

from relpos_tf import errors
from relpos_tf.utils import text
from tests import folders

LINES = [f"{i} zwei\u2028drei ä" for i in range(3001)]
CONTENT = "".join(f"{line}\n" for line in LINES).encode()
PACKERS = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    # Two frames, as of two files that were joined.
    ".zst": lambda content: b"".join(
        map(zstd.compress, (content[:9999], content[9999:]))
    ),
}


class TextTest(folders.TestCase):
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
        ("separators", "a\u2028b\x85\n".encode(), ["a\u2028b\x85"]),
        ("marks", b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", ["a", "\ufeffb"]),
    )
    def test_a_line_ends_at_a_line_feed_only(self, content, expected):
        path = self.write(content)
        self.assertEqual(list(text.read_lines(path)), expected)
        self.assertEqual(list(text.checked_lines(path)), expected)
        stream = io.BytesIO(content)
        self.assertEqual(list(text.stream_lines(stream)), expected)

    @parameterized.product(suffix=[*PACKERS], name=["lines", "lines.txt.gz"])
    def test_compressed_text_is_known_by_its_content(self, suffix, name):
        path = self.write(PACKERS[suffix](CONTENT), name)
        self.assertEqual(list(text.checked_lines(path)), LINES)
        path = self.write(CONTENT, f"lines{suffix}")  # the reverse
        self.assertEqual(list(text.checked_lines(path)), LINES)
        path = self.write(b"BZh is a word\nBZh9\n")
        self.assertLen(list(text.checked_lines(path)), 2)

    @parameterized.parameters(*PACKERS)
    def test_a_cut_file_is_named(self, suffix):
        packed = PACKERS[suffix](CONTENT)
        for size in (len(packed) // 3, len(packed) - 1):
            path = self.write(packed[:size], "cut")
            with self.assertRaisesRegex(errors.UserError, f"{path} to its end"):
                list(text.read_lines(path))
        tar = self.write(PACKERS[suffix](bytes(257) + b"ustar"), "tar")
        with self.assertRaisesRegex(errors.UserError, f"{tar}, an archive"):
            list(text.read_lines(tar))

    @parameterized.parameters(*PACKERS, "")
    def test_a_line_without_an_end_is_refused(self, suffix):
        pack = PACKERS.get(suffix, bytes)
        path = self.write(pack(b"one\n" + bytes(17 << 20)), "bomb")
        with open(path, "rb") as file:
            streams = [text.checked_lines(path)]
            if not suffix:
                streams.append(text.stream_lines(text.bounded(file), path))
            for lines in streams:
                with self.assertRaisesRegex(errors.UserError, "line 2 is long"):
                    list(lines)

    @parameterized.parameters(
        "utf-16", "utf-16-le", "utf-16-be", "utf-32", "latin1", "gzip"
    )
    def test_what_is_not_utf_8_is_refused_with_a_command(self, encoding):
        content = "".join(f"schöne Grüße {i}\n" for i in range(7))
        if encoding == "gzip":  # twice, or in a stream
            content = gzip.compress(gzip.compress(CONTENT))
        else:
            content = content.encode(encoding)
        path = self.write(content)
        for lines in (
            text.checked_lines(path),
            text.stream_lines(io.BytesIO(content), path),
            text.stream_lines(itertools.cycle(content.splitlines(True)), path),
        ):
            with self.assertRaisesRegex(errors.UserError, f"{path}.*iconv -f"):
                list(lines)

    @parameterized.parameters((5, True), (6, False))
    def test_a_few_lines_that_are_not_utf_8_are_read(self, number, is_fine):
        lines = [b"a\xffb\n"] * number + [b"c\n"] * (100 - number)
        path = self.write(b"".join(lines))
        if not is_fine:
            with self.assertRaisesRegex(errors.UserError, "6 of 100 lines"):
                list(text.checked_lines(path))
            return
        with self.assertLogs("relpos_tf", "WARNING") as logs:
            found = list(text.checked_lines(path))
        self.assertEqual(found, ["a\ufffdb"] * 5 + ["c"] * 95)
        self.assertRegex(logs.output[0], f"5 of 100 lines of {path}")

    def test_stray_nuls_and_a_true_replacement_character_are_read(self):
        path = self.write("a\0b\n\ufffd\nc\0\0d\ne\0\n".encode())
        with self.assertNoLogs("relpos_tf"):
            found = list(text.checked_lines(path))
        self.assertEqual(found, ["a\0b", "\ufffd", "c\0\0d", "e\0"])
        self.assertLen([*text.checked_lines(self.write(b"a\xff\n"))], 1)

    def test_a_stream_is_read_line_by_line(self):
        def lines():
            yield b"a\n"
            raise AssertionError("read ahead")

        self.assertEqual(next(text.stream_lines(lines())), "a")

    def test_a_pipe_is_read_once(self):
        path = self.folder / "pipe"
        os.mkfifo(path)
        thread = threading.Thread(target=path.write_bytes, args=[CONTENT])
        thread.start()
        self.assertEqual(list(text.read_nonempty(path)), LINES)
        thread.join()

    def test_without_the_package_the_extra_is_named(self):
        path = self.write(PACKERS[".zst"](CONTENT))
        with mock.patch.dict("sys.modules", {"backports.zstd": None}):
            with self.assertRaisesRegex(ImportError, r"Zstandard.*\[zstd\]"):
                list(text.read_lines(path))

    def test_files_that_cannot_be_read_are_named(self):
        for path, kind in (
            (self.folder / "missing.txt", FileNotFoundError),
            (self.folder, IsADirectoryError),
            (self.write(b""), errors.UserError),
        ):
            with self.assertRaisesRegex(kind, str(path)):
                list(text.read_nonempty(path))

    def test_written_lines_come_back(self):
        path = self.folder / "out.txt"
        lines = ["", " a\tb ", "c\u2028d", "\x85", "é\0"]
        text.write_lines(path, lines)
        self.assertEqual(list(text.read_lines(path)), lines)
        with self.assertRaisesRegex(ValueError, "line 2"):
            text.write_lines(path, ["a", "b\nc"])
