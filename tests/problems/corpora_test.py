"""Tests of finding, downloading, unpacking and reading pairs of files."""

import bz2
import contextlib
import gzip
import hashlib
import http.server
import io
import logging
import random
import tarfile
import threading
import time
import zipfile

from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf.problems import corpora
from relpos_tf.utils import terminal
from relpos_tf.utils import text
from tests import folders
from tests.utils import terminal_test


class FolderTest(folders.TestCase):
    """Has a folder of raw files and a folder that acts as a server."""

    def setUp(self):
        super().setUp()
        self.server = self.folder / "server"
        self.server.mkdir()
        self.tmp_dir = self.folder / "tmp"
        self.terminal = terminal_test.Terminal()
        self.enter_context(contextlib.redirect_stderr(self.terminal))
        terminal._Last.time = 0.0  # The next line is shown.

    def write(self, name, content):
        path = self.tmp_dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    def remote(self, name, checksum=""):
        return corpora.Remote((self.server / name).as_uri(), checksum)

    def archive(self, name, members):
        """Writes a .zip or .tar on the server; returns its path."""
        path = self.server / name
        if name.endswith(".zip"):
            with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
                for member, content in members.items():
                    archive.writestr(member, content)
            return path
        kind = name.rpartition(".")[2]
        with tarfile.open(path, f"w:{kind.removeprefix('tar')}") as archive:
            for member, content in members.items():
                info = tarfile.TarInfo(member)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
        return path

    def names(self, folder=None):
        return {path.name for path in (folder or self.tmp_dir).iterdir()}


class DownloadTest(FolderTest):
    @parameterized.parameters("md5", "sha256")
    def test_a_download_arrives_whole_and_shows_progress(self, kind):
        log = logging.getLogger("relpos_tf")
        self.addCleanup(log.setLevel, log.level)
        log.setLevel(logging.INFO)
        content = b"ein Satz\n" * 300_000  # more than one block
        (self.server / "file.txt").write_bytes(content)
        checksum = hashlib.new(kind, content).hexdigest()
        path = corpora.fetch(self.remote("file.txt", checksum), self.tmp_dir)
        self.assertEqual(path.read_bytes(), content)
        self.assertEqual(self.names(), {"file.txt"})
        self.assertIn("file.txt: 1 of 3 MB", self.terminal.getvalue())
        wrong = f"0{checksum[:-1]}"
        with self.assertRaisesRegex(corpora.MissingFileError, checksum):
            corpora.fetch(self.remote("file.txt", wrong), self.folder)
        self.assertEqual(self.names(self.folder), {"server", "tmp"})

    @parameterized.parameters(
        (b"Content-Length: 8\r\n", b"one\ntwo\n", True),
        (b"Content-Length: 8\r\n", b"one\n", False),
        (b"Content-Length: 8\r\n", b"", False),
        (
            b"Transfer-Encoding: chunked\r\n",
            b"4\r\none\n\r\n4\r\ntwo\n\r\n0\r\n\r\n",
            True,
        ),
        (b"Transfer-Encoding: chunked\r\n", b"4\r\none\n\r\n4\r\ntw", False),
        (b"Transfer-Encoding: chunked\r\n", b"4\r\none\n\r\n", False),
        (b"", b"one\ntwo\n", True),
    )
    def test_a_download_that_is_cut_leaves_nothing(
        self, headers, body, is_whole
    ):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.wfile.write(b"HTTP/1.1 200 OK\r\n" + headers + b"\r\n")
                self.wfile.write(body)

            def log_message(self, *arguments):
                pass

        with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
            thread = threading.Thread(target=server.handle_request)
            thread.start()
            address = f"http://127.0.0.1:{server.server_port}/file.txt"
            try:
                corpora.fetch(corpora.Remote(address), self.tmp_dir)
            except corpora.MissingFileError:
                self.assertEmpty(self.names())
                self.assertFalse(is_whole)
            else:
                content = (self.tmp_dir / "file.txt").read_bytes()
                self.assertEqual(content, b"one\ntwo\n")
                self.assertTrue(is_whole)
            finally:
                thread.join()


class ArchiveTest(FolderTest):
    @parameterized.parameters("a.tar.gz", "a.tar.xz", "a.zip")
    def test_one_member_is_read_and_no_damage_goes_unnoticed(self, name):
        content = "".join(f"line {i**5}\n" for i in range(999)).encode()
        path = self.archive(name, {"x/a.en": b"other", "x/b.en": content})
        found = corpora.extract(path, "x/b.en", self.tmp_dir)
        self.assertEqual(found.read_bytes(), content)
        self.assertEqual(self.names(), {"b.en"})
        with self.assertRaisesRegex(errors.UserError, name):
            corpora.extract(path, "x/c.en", self.tmp_dir)
        whole, draw = path.read_bytes(), random.Random(4)
        for length in (len(whole),) * 40 + (len(whole) // 2, 20):
            found.unlink(missing_ok=True)
            damaged = bytearray(whole[:length])
            damaged[draw.randrange(length)] ^= 1 << draw.randrange(8)
            path.write_bytes(damaged)
            try:
                corpora.extract(path, "x/b.en", self.tmp_dir)
            except errors.UserError as error:
                self.assertIn(str(path), str(error))
                self.assertEmpty(self.names())
            else:
                self.assertEqual(found.read_bytes(), content)

    def test_a_member_cannot_leave_the_folder(self):
        path = self.archive("a.tar", {"../../evil.en": b"one\n"})
        found = corpora.extract(path, "../../evil.en", self.tmp_dir)
        self.assertEqual(found, self.tmp_dir / "evil.en")

    def test_links_are_not_followed_out_of_the_archive(self):
        path = self.server / "a.tar"
        with tarfile.open(path, "w") as archive:
            info = tarfile.TarInfo("a.en")
            info.type = tarfile.SYMTYPE
            info.linkname = "/etc/hostname"
            archive.addfile(info)
        with self.assertRaises(errors.UserError):
            corpora.extract(path, "a.en", self.tmp_dir)
        self.assertEmpty(self.names())

    def test_tags_without_an_end_take_no_time(self):
        content = b"<seg id='1'>a</seg>\n" + b"<seg \n" * 40_000
        path = self.write("a.sgm", content)
        started = time.monotonic()
        self.assertEqual(corpora.plain_text(path).read_bytes(), b"a\n")
        self.assertLess(time.monotonic() - started, 2)

    def test_segments_become_lines_as_sacrebleu_makes_them(self):
        path = self.write(
            "newstest.sgm",
            '<refset setid="x">\n<doc docid="1">\n<hl>\n'
            '<seg id="1"> One  &amp; two\u2028three </seg>\n</hl>\n<p>\n'
            '<seg id="2"></seg>\n<seg id="3">a <b> c</seg>\n</p>\n'
            "</doc>\n</refset>\n".encode(),
        )
        lines = list(text.read_lines(corpora.plain_text(path)))
        self.assertEqual(lines, ["One &amp; two three", "", "a <b> c"])


class ReadTest(FolderTest):
    def corpus(self, remote=None, members=(None, None)):
        sides = [
            corpora.Side(f"a.{language}", remote, member)
            for language, member in zip(("en", "de"), members, strict=True)
        ]
        return corpora.Bitext(*sides, folders=("corpus",))

    def read(self, *arguments):
        return list(corpora.read([self.corpus(*arguments)], str(self.tmp_dir)))

    def test_corpora_are_read_in_turn_and_again(self):
        files = [
            (self.write("a.en", b"1\n2\n"), self.write("a.de", b"eins\nzwei")),
            (self.write("b.en", b"3\r\n"), self.write("b.de", b"drei\x0b\n")),
        ]
        pairs = corpora.ParallelText(files)
        expected = [("1", "eins"), ("2", "zwei"), ("3", "drei\x0b")]
        self.assertLen(pairs, 3)
        self.assertEqual(list(pairs), expected)
        self.assertEqual(list(pairs), expected)

    @parameterized.parameters(
        (b"eins\nzwei\ndrei\n",), (b"eins\n",), (b"zwei\neins\n",), (b"",)
    )
    def test_files_that_change_between_two_readings_are_named(self, content):
        # The bytes behind the end of bz2 count, although none is decoded.
        sides = b"1\n2\n", b"eins\nzwei\n"
        pair = (
            self.write("a.en.bz2", bz2.compress(sides[0]) + b"more"),
            self.write("a.de.gz", gzip.compress(sides[1])),
        )
        pairs = corpora.ParallelText([pair])
        self.assertLen(list(pairs), 2)
        for path, changed in zip(
            pair, (bz2.compress(content), gzip.compress(content)), strict=True
        ):
            before = path.read_bytes()
            path.write_bytes(changed)
            words = f"{pair[0]} and {pair[1]} .* while"
            with self.assertRaisesRegex(errors.UserError, words):
                list(pairs)
            path.write_bytes(before)
        self.assertLen(list(pairs), 2)

    def test_files_that_do_not_fit_are_named_with_both_counts(self):
        two = self.write("a.en", b"1\n2\n")
        three = self.write("a.de", b"1\n2\n3\n")
        empty = self.write("a.fr", b"")
        pairs = (two, three, 2, 3), (empty, two, 0, 2), (empty, empty, 0, 0)
        for a, b, m, n in pairs:
            words = f"{a} has {m} lines, {b} has {n} lines"
            with self.assertRaisesRegex(errors.UserError, words):
                corpora.ParallelText([(a, b)])

    def test_files_at_hand_are_taken_those_of_the_sub_folder_first(self):
        self.write("a.en", b"other\nfile\n")
        self.write("corpus/a.en.gz", gzip.compress(b"1\n"))
        self.write("a.de", b"eins\n")
        self.assertEqual(self.read(), [("1", "eins")])

    def test_missing_files_are_downloaded_and_unpacked_once(self):
        archive = self.archive(
            "a.zip",
            {
                "x/a.sgm": b'<seg id="1">1</seg>\n',
                "a.de.gz": gzip.compress(b"eins\n"),
            },
        )
        given = self.remote("a.zip"), ("x/a.sgm", "a.de.gz")
        self.assertEqual(self.read(*given), [("1", "eins")])
        archive.unlink()
        self.assertEqual(self.read(*given), [("1", "eins")])
        self.assertContainsSubset(
            {"a.zip", "a.sgm", "a.de.gz"}, self.names(self.tmp_dir / "corpus")
        )

    def test_files_nowhere_to_be_had_are_named_with_address_and_folder(self):
        remote = self.remote("a.zip")
        for tmp_dir, source, part in (
            (str(self.tmp_dir), remote, "a.zip"),
            (str(self.tmp_dir), None, "a.en"),
            (None, remote, "a.en"),
        ):
            corpus = self.corpus(source, ("x/a.en", "x/a.de"))
            with self.assertRaises(corpora.MissingFileError) as raised:
                corpora.read([corpus], tmp_dir)
            for word in (
                part,
                tmp_dir or "--tmp_dir",
                source and remote.address,
            ):
                self.assertIn(word or "", str(raised.exception))
