"""Tests of reading and writing lines."""

import bz2
import gzip
import io
import lzma
import os
import pathlib
import tarfile
import threading
import zipfile
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf.utils import text

LINES = [f"{i} zwei\u2028drei ä" for i in range(3001)]
CONTENT = "".join(f"{line}\n" for line in LINES).encode()


def zstd(content):
    """Returns two frames, as of two files that were joined."""
    import zstandard

    half = len(content) // 2
    return b"".join(map(zstandard.compress, (content[:half], content[half:])))


PACKERS = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstd,
}


def zipped():
    """Returns a zip archive of a text."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("lines.txt", CONTENT)
    return file.getvalue()


def tarred():
    """Returns a tar archive of a text."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        member = tarfile.TarInfo("lines.txt")
        member.size = len(CONTENT)
        archive.addfile(member, io.BytesIO(CONTENT))
    return file.getvalue()


class TextTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)

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
        (
            "byte order mark",
            b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n",
            ["a", "\ufeffb"],
        ),
        ("letters of zip", b"PKW\n", ["PKW"]),
    )
    def test_a_line_ends_at_a_line_feed_only(self, content, expected):
        path = self.write(content)
        self.assertEqual(list(text.read_lines(path)), expected)
        self.assertEqual(list(text.checked_lines(path)), expected)
        self.assertEqual(text.survey(path), len(expected))
        stream = io.BytesIO(content)
        self.assertEqual(list(text.stream_lines(stream)), expected)

    @parameterized.product(
        suffix=[*PACKERS], name=["lines", "lines.txt", "lines.GZ", "lines.zst"]
    )
    def test_compressed_text_is_known_by_its_content(self, suffix, name):
        path = self.write(PACKERS[suffix](CONTENT), name)
        self.assertEqual(list(text.checked_lines(path)), LINES)
        self.assertEqual(text.survey(path), len(LINES))

    @parameterized.parameters(*PACKERS)
    def test_plain_text_under_such_a_name_is_read(self, suffix):
        path = self.write(CONTENT, f"lines{suffix}")
        self.assertEqual(list(text.checked_lines(path)), LINES)

    @parameterized.parameters(*PACKERS)
    def test_a_cut_file_is_named(self, suffix):
        packed = PACKERS[suffix](CONTENT)
        for size in (len(packed) // 3, len(packed) - 1):
            path = self.write(packed[:size], "cut")
            with self.assertRaisesRegex(errors.UserError, f"{path} to its end"):
                list(text.read_lines(path))

    @parameterized.parameters(*PACKERS)
    def test_what_is_written_under_such_a_name_is_compressed(self, suffix):
        path = self.folder / f"out.de{suffix}"
        with text.writer(path) as write:
            for line in LINES:
                write(line)
        self.assertLess(path.stat().st_size, len(CONTENT) // 2)
        self.assertEqual(list(text.read_lines(path)), LINES)

    @parameterized.parameters("", ".gz", ".xz")
    def test_lines_of_an_interrupted_block_are_kept(self, suffix):
        path, kept = self.folder / f"out{suffix}", []
        with self.assertRaises(KeyboardInterrupt):
            with text.writer(
                path, on_kept=lambda *args: kept.append(args)
            ) as w:
                w("eins")
                w("zwei")
                raise KeyboardInterrupt
        [(name, number)] = kept
        self.assertEqual(number, 2)
        self.assertEqual(list(text.read_lines(name)), ["eins", "zwei"])
        self.assertFalse(path.exists())

    @parameterized.named_parameters(
        ("zip", zipped, "zip archive"),
        ("tar", tarred, "tar archive"),
        ("tgz", lambda: gzip.compress(tarred()), "tar archive"),
        ("pdf", lambda: b"%PDF-1.7\n", "PDF"),
        ("twice", lambda: gzip.compress(gzip.compress(CONTENT)), "twice"),
        ("binary", lambda: bytes(range(256)) * 9, "no text"),
    )
    def test_other_files_are_refused_by_name(self, make, kind):
        path = self.write(make())
        with self.assertRaisesRegex(errors.UserError, f"{path}.*{kind}"):
            list(text.checked_lines(path))

    @parameterized.product(
        encoding=["utf-16", "utf-16-le", "utf-16-be", "utf-32", "latin1"],
        is_stream=[False, True],
    )
    def test_other_encodings_are_refused_with_the_command_that_helps(
        self, encoding, is_stream
    ):
        content = "".join(f"schöne Grüße {i}\n" for i in range(7))
        path = self.write(content.encode(encoding))
        name = {"utf-16-le": "UTF-16LE", "utf-16-be": "UTF-16BE"}.get(
            encoding, encoding
        )
        with self.assertRaisesRegex(
            errors.UserError, f"(?i){path}.*iconv -f {name} -t UTF-8"
        ):
            if is_stream:
                with open(path, "rb") as file:
                    list(text.stream_lines(file, str(path)))
            else:
                list(text.checked_lines(path))

    def test_advice_for_other_letters_and_for_compressed_files(self):
        chinese = "".join(f"\u4f60\u597d\u4e16\u754c {i}\n" for i in range(7))
        path = self.write(chinese.encode("utf-16-le"))
        with self.assertRaisesRegex(errors.UserError, "iconv -f UTF-16LE"):
            text.survey(path)
        path = self.write(gzip.compress("schön\n".encode("latin1")))
        with self.assertRaisesRegex(errors.UserError, "Decompress it.* iconv"):
            text.survey(path)

    def test_a_few_lines_that_are_not_utf_8_are_read_and_warned_of(self):
        for number, is_fine in ((5, True), (6, False)):
            lines = [b"a\xffb\n"] * number + [b"c\n"] * (100 - number)
            path = self.write(b"".join(lines))
            if is_fine:
                with self.assertLogs("relpos_tf", "WARNING") as logs:
                    found = list(text.checked_lines(path))
                self.assertEqual(found, ["a\ufffdb"] * 5 + ["c"] * 95)
                self.assertLen(found, 100)
                self.assertRegex(logs.output[0], f"5 of 100 lines of {path}")
            else:
                with self.assertRaisesRegex(errors.UserError, "6 of 100 lines"):
                    list(text.checked_lines(path))

    def test_a_rare_nul_is_read(self):
        path = self.write(b"a\0b\n" + b"c\n" * 99)
        self.assertEqual(list(text.checked_lines(path)), ["a\0b"] + ["c"] * 99)

    def test_a_stream_is_read_line_by_line(self):
        def lines():
            yield b"a\n"
            raise AssertionError("read ahead")

        self.assertEqual(next(text.stream_lines(lines())), "a")

    def test_a_long_wrong_stream_is_stopped(self):
        lines = text.stream_lines(iter(lambda: b"\xff\n", None), "pipe")
        with self.assertRaisesRegex(errors.UserError, "pipe.*iconv"):
            list(lines)

    def test_a_pipe_is_read_once(self):
        path = self.folder / "pipe"
        os.mkfifo(path)
        thread = threading.Thread(target=path.write_bytes, args=[CONTENT])
        thread.start()
        self.assertEqual(list(text.read_nonempty(path)), LINES)
        thread.join()

    def test_without_the_package_the_extra_is_named(self):
        path = self.write(zstd(CONTENT))
        with mock.patch.dict("sys.modules", {"zstandard": None}):
            with self.assertRaisesRegex(ImportError, r"zstandard.*\[zstd\]"):
                list(text.read_lines(path))

    def test_files_that_cannot_be_read_are_named(self):
        for path in (self.folder / "missing.txt", self.folder):
            with self.assertRaisesRegex(errors.UserError, str(path)):
                list(text.read_lines(path))
        path = self.write(b"")
        with self.assertRaisesRegex(errors.UserError, f"{path} is empty"):
            text.read_nonempty(path)

    def test_written_lines_come_back(self):
        path = self.folder / "out.txt"
        lines = ["", " a\tb ", "c\u2028d", "\x85", "é\0"]
        text.write_lines(path, lines)
        self.assertEqual(list(text.read_lines(path)), lines)
        with self.assertRaisesRegex(ValueError, "line 2"):
            text.write_lines(path, ["a", "b\nc"])


if __name__ == "__main__":
    absltest.main()
