"""Tests of finding, downloading and unpacking files."""

import contextlib
import gzip
import hashlib
import http.server
import io
import logging
import pathlib
import random
import tarfile
import tempfile
import threading
import zipfile

from absl.testing import absltest

from relpos_tf import errors
from relpos_tf.problems import download
from relpos_tf.utils import text
from tests.utils import terminal_test

_CONTENT = b"ein Satz\n" * 300_000  # more than one block


class DownloadTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.server = pathlib.Path(folder.name, "server")
        self.server.mkdir()
        self.tmp_dir = pathlib.Path(folder.name, "tmp")
        (self.server / "file.txt").write_bytes(_CONTENT)
        self.terminal = terminal_test.Terminal()
        log = logging.getLogger("relpos_tf")
        self.addCleanup(log.setLevel, log.level)
        log.setLevel(logging.INFO)

    def remote(self, name="file.txt", **known):
        return download.Remote((self.server / name).as_uri(), **known)

    def fetch(self, remote):
        with contextlib.redirect_stderr(self.terminal):
            return download.fetch(remote, str(self.tmp_dir))

    def test_a_download_arrives_whole_and_shows_progress(self):
        remote = self.remote(
            size=len(_CONTENT),
            sha256=hashlib.sha256(_CONTENT).hexdigest(),
            md5=hashlib.md5(_CONTENT).hexdigest(),
        )
        path = self.fetch(remote)
        self.assertEqual(path, self.tmp_dir / "file.txt")
        self.assertEqual(path.read_bytes(), _CONTENT)
        self.assertLen(list(self.tmp_dir.iterdir()), 1)
        self.assertIn("file.txt: 1 of 3 MB", self.terminal.getvalue())

    def test_an_unknown_checksum_is_printed_to_be_pinned(self):
        with self.assertLogs(level="WARNING") as logs:
            self.fetch(self.remote())
        self.assertIn(hashlib.sha256(_CONTENT).hexdigest(), logs.output[0])

    def test_a_file_that_is_there_is_not_downloaded(self):
        self.tmp_dir.mkdir()
        (self.tmp_dir / "file.txt").write_bytes(b"mine")
        self.assertEqual(self.fetch(self.remote()).read_bytes(), b"mine")
        self.assertEqual(self.terminal.getvalue(), "")

    def test_a_wrong_file_is_refused_and_leaves_nothing(self):
        for known in ({"size": 5}, {"sha256": "ab"}, {"md5": "cd"}):
            with self.assertRaisesRegex(errors.UserError, "Received: "):
                self.fetch(self.remote(**known))
            self.assertEmpty(list(self.tmp_dir.iterdir()))

    def test_a_failed_download_names_the_file_and_the_folder(self):
        remote = self.remote("missing.txt")
        with self.assertRaises(errors.UserError) as raised:
            self.fetch(remote)
        for part in ("missing.txt", remote.address, str(self.tmp_dir)):
            self.assertIn(part, str(raised.exception))
        self.assertEmpty(list(self.tmp_dir.iterdir()))
        with self.assertRaisesRegex(errors.UserError, "--tmp_dir"):
            download.fetch(remote, None)

    def test_files_are_found_plain_or_gzipped_in_named_folders_first(self):
        folder = self.tmp_dir / "corpus"
        folder.mkdir(parents=True)
        tmp_dir = str(self.tmp_dir)
        self.assertIsNone(download.find(tmp_dir, "a.en", ["corpus"]))
        self.assertIsNone(download.find(None, "a.en"))
        for path in (
            self.tmp_dir / "a.en.gz",
            self.tmp_dir / "a.en",
            folder / "a.en.gz",
            folder / "a.en",
        ):
            path.touch()
            found = download.find(tmp_dir, "a.en", ["corpus"])
            self.assertEqual(found, path)


class CutDownloadTest(absltest.TestCase):
    """A server whose connection ends before the file does."""

    def fetch(self, headers, body, **known):
        """Fetches from a server with this response; returns the files."""

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.wfile.write(b"HTTP/1.1 200 OK\r\n" + headers + b"\r\n")
                self.wfile.write(body)

            def log_message(self, *arguments):
                pass

        tmp_dir = pathlib.Path(self.create_tempdir().full_path)
        with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
            thread = threading.Thread(target=server.handle_request)
            thread.start()
            address = f"http://127.0.0.1:{server.server_port}/file.txt"
            try:
                with contextlib.redirect_stderr(io.StringIO()):
                    download.fetch(
                        download.Remote(address, **known), str(tmp_dir)
                    )
            except errors.UserError as error:
                self.assertIn(address, str(error))
                self.assertIn("by hand", str(error))
            finally:
                thread.join()
        return {path.name: path.read_bytes() for path in tmp_dir.iterdir()}

    def test_a_download_that_is_cut_leaves_nothing(self):
        whole = {"file.txt": b"one\ntwo\n"}
        length = b"Content-Length: 8\r\n"
        chunked = b"Transfer-Encoding: chunked\r\n"
        known = hashlib.md5(b"one\ntwo\n").hexdigest()
        for headers, body, expected in (
            (length, b"one\ntwo\n", whole),
            (length, b"one\n", {}),
            (length, b"", {}),
            (chunked, b"4\r\none\n\r\n4\r\ntwo\n\r\n0\r\n\r\n", whole),
            (chunked, b"4\r\none\n\r\n4\r\ntw", {}),
            (chunked, b"4\r\none\n\r\n", {}),
            (b"Content-Length: 1e3\r\n", b"one\ntwo\n", whole),
            (b"", b"one\ntwo\n", whole),
        ):
            with self.subTest(headers=headers, body=body):
                self.assertEqual(self.fetch(headers, body), expected)
                self.assertEqual(self.fetch(headers, body, md5=known), expected)


class ArchiveTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def tar(self, name, mode, members):
        path = self.folder / name
        with tarfile.open(path, mode) as archive:
            for member, content in members.items():
                info = tarfile.TarInfo(member)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
        return path

    def test_members_are_read_out_of_every_kind_of_archive(self):
        members = {"training/a.en": b"one\n", "training/b.en": b"two\n"}
        zipped = self.folder / "a.zip"
        with zipfile.ZipFile(zipped, "w") as archive:
            for member, content in members.items():
                archive.writestr(member, content)
        for path in (
            self.tar("a.tgz", "w:gz", members),
            self.tar("a.tar", "w", members),
            zipped,
        ):
            out = self.folder / f"{path.name}-out"
            out.mkdir()
            found = download.extract(path, "training/b.en", str(out))
            self.assertEqual(found.read_bytes(), b"two\n")
            self.assertEqual(list(out.iterdir()), [out / "b.en"])

    def test_a_gzipped_member_stays_gzipped(self):
        path = self.tar("a.tar", "w", {"a.en.gz": gzip.compress(b"one\n")})
        found = download.extract(path, "a.en.gz", str(self.folder))
        self.assertEqual(list(text.read_lines(found)), ["one"])

    def test_a_member_cannot_leave_the_folder(self):
        path = self.tar("a.tar", "w", {"../../evil.en": b"one\n"})
        found = download.extract(path, "../../evil.en", str(self.folder))
        self.assertEqual(found, self.folder / "evil.en")

    def test_missing_members_and_damaged_archives_are_named(self):
        noise = random.Random(1).randbytes(9999)
        whole = self.tar("a.tgz", "w:gz", {"a.en": noise})
        cut = self.folder / "cut.tgz"
        cut.write_bytes(whole.read_bytes()[:5000])
        text_file = self.folder / "text.tgz"
        text_file.write_bytes(b"<html>not found</html>")
        for path, member in ((whole, "b.en"), (cut, "a.en"), (text_file, "a")):
            with self.assertRaisesRegex(errors.UserError, str(path)):
                download.extract(path, member, str(self.folder))
        names = {path.name for path in self.folder.iterdir()}
        self.assertEqual(names, {"a.tgz", "cut.tgz", "text.tgz"})

    def test_no_damage_to_a_compressed_archive_goes_unnoticed(self):
        content = "".join(f"line {i**5}\n" for i in range(999)).encode()
        archives = [
            self.tar(f"a.{kind}", f"w:{kind}", {"a.en": content})
            for kind in ("gz", "bz2", "xz")
        ]
        archives.append(self.folder / "a.zip")
        with zipfile.ZipFile(archives[-1], "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr("a.en", content)
        draw = random.Random(4)
        for path in archives:
            whole = path.read_bytes()
            for _ in range(40):
                damaged = bytearray(whole)
                damaged[draw.randrange(len(whole))] ^= 1 << draw.randrange(8)
                path.write_bytes(damaged)
                try:
                    found = download.extract(path, "a.en", str(self.folder))
                except errors.UserError as error:
                    self.assertIn(str(path), str(error))
                else:
                    self.assertEqual(found.read_bytes(), content)
                    found.unlink()

    def test_links_are_not_followed_out_of_the_archive(self):
        path = self.folder / "a.tar"
        with tarfile.open(path, "w") as archive:
            info = tarfile.TarInfo("a.en")
            info.type = tarfile.SYMTYPE
            info.linkname = "/etc/hostname"
            archive.addfile(info)
        with self.assertRaises(errors.UserError):
            download.extract(path, "a.en", str(self.folder))
        self.assertEqual(list(self.folder.iterdir()), [path])

    def test_segments_become_lines_as_sacrebleu_makes_them(self):
        path = self.folder / "newstest.sgm"
        path.write_text(
            '<refset setid="x">\n<doc docid="1">\n<hl>\n'
            '<seg id="1"> One  &amp; two\u2028three </seg>\n</hl>\n<p>\n'
            '<seg id="2"></seg>\n<seg id="3">a <b> c</seg>\n</p>\n'
            "</doc>\n</refset>\n",
            encoding="utf-8",
        )
        lines = list(text.read_lines(download.plain_text(path)))
        self.assertEqual(lines, ["One &amp; two three", "", "a <b> c"])


if __name__ == "__main__":
    absltest.main()
