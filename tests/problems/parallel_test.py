"""Tests of pairs of files."""

import contextlib
import gzip
import io
import pathlib
import tempfile
import zipfile

from absl.testing import absltest

from relpos_tf import errors
from relpos_tf.problems import download
from relpos_tf.problems import parallel


class ParallelTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, name, content):
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        return path

    def corpus(self, remote=None, member=None, num_lines=None):
        sides = [
            parallel.Side(f"a.{language}", remote, member and member + suffix)
            for language, suffix in (("en", "en"), ("de", "de"))
        ]
        return parallel.Corpus(*sides, ("corpus",), num_lines)

    def test_corpora_are_read_in_turn_and_again(self):
        files = [
            (self.write("a.en", b"1\n2\n"), self.write("a.de", b"eins\nzwei")),
            (self.write("b.en", b"3\r\n"), self.write("b.de", b"drei\x0b\n")),
        ]
        pairs = parallel.ParallelText(files, [2, None])
        expected = [("1", "eins"), ("2", "zwei"), ("3", "drei\x0b")]
        self.assertEqual(list(pairs), expected)
        self.assertEqual(list(pairs), expected)

    def test_files_that_do_not_fit_are_named_with_both_counts(self):
        two = self.write("a.en", b"1\n2\n")
        three = self.write("a.de", b"1\n2\n3\n")
        empty = self.write("a.fr", b"")
        for pair, expected, counts in (
            ((two, three), None, (2, 3)),
            ((empty, two), None, (0, 2)),
            ((empty, empty), None, (0, 0)),
            ((two, two), 29, (2, 2)),
        ):
            with self.assertRaises(errors.UserError) as raised:
                parallel.ParallelText([pair], [expected])
            for path, count in zip(pair, counts, strict=True):
                self.assertIn(
                    f"{path} has {count} lines", str(raised.exception)
                )
            self.assertNotIn("\n", str(raised.exception))

    def test_local_files_are_taken_as_they_are(self):
        self.write("a.en", b"other\nfile\n")
        self.write("corpus/a.en.gz", gzip.compress(b"1\n"))
        self.write("a.de", b"eins\n")
        pairs = parallel.read([self.corpus()], str(self.folder))
        self.assertEqual(list(pairs), [("1", "eins")])
        with self.assertRaisesRegex(errors.UserError, "Expected 7 lines"):
            parallel.read([self.corpus(num_lines=7)], str(self.folder))

    def test_missing_files_are_unpacked_from_the_download(self):
        server = self.folder / "server.zip"
        with zipfile.ZipFile(server, "w") as archive:
            archive.writestr("x/a.sgm.en", "1\n")
            archive.writestr("x/a.sgm.de", "eins\n")
        remote = download.Remote(server.as_uri())
        tmp_dir = self.folder / "tmp"
        with contextlib.redirect_stderr(io.StringIO()):
            pairs = parallel.read(
                [self.corpus(remote, "x/a.sgm.")], str(tmp_dir)
            )
        self.assertEqual(list(pairs), [("1", "eins")])
        server.unlink()
        for name in ("a.sgm.en", "a.sgm.de"):
            self.assertTrue((tmp_dir / "corpus" / name).is_file())
        pairs = parallel.read([self.corpus(remote, "x/a.sgm.")], str(tmp_dir))
        self.assertEqual(list(pairs), [("1", "eins")])

    def test_sgm_members_become_plain_text(self):
        server = self.folder / "server.zip"
        with zipfile.ZipFile(server, "w") as archive:
            archive.writestr("a.sgm", '<seg id="1">eins</seg>\n')
        side = parallel.Side("a.de", download.Remote(server.as_uri()), "a.sgm")
        with contextlib.redirect_stderr(io.StringIO()):
            path = parallel.locate(side, ["corpus"], str(self.folder))
        self.assertEqual(path.read_text(), "eins\n")

    def test_files_nowhere_to_be_had_are_named_with_address_and_folder(self):
        remote = download.Remote("file:///nowhere/a.zip")
        for tmp_dir, source, parts in (
            (str(self.folder), remote, ("a.zip", "file:///nowhere/a.zip")),
            (str(self.folder), None, ()),
            (None, remote, ("file:///nowhere/a.zip",)),
        ):
            with self.assertRaises(errors.UserError) as raised:
                parallel.read([self.corpus(source, "a.")], tmp_dir)
            for part in ("a.en", "a.en.gz", tmp_dir or "--tmp_dir", *parts):
                self.assertIn(part, str(raised.exception))


if __name__ == "__main__":
    absltest.main()
