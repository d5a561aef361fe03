"""Files written whole or not at all, whatever lies at their names."""

import contextlib
import errno
import os
import stat
import threading
from unittest import mock

from absl.testing import parameterized

from relpos_tf.utils import files
from tests import folders


class ReplacingTest(folders.TestCase):
    def setUp(self):
        super().setUp()
        self.outside = self.folder / "outside" / "own"
        self.outside.parent.mkdir()
        self.outside.write_bytes(b"mine")
        self.path = self.folder / "x.txt"

    def names(self):
        return sorted(set(os.listdir(self.folder)) - {"outside"})

    def test_file_appears_when_the_block_is_over(self):
        self.path.write_bytes(b"old")
        with files.replacing(self.path) as file:
            file.write(b"new")
            file.flush()
            self.assertEqual(self.path.read_bytes(), b"old")
            self.assertLen(list(self.folder.glob(f"x.txt{files.PART}")), 1)
        self.assertEqual(self.path.read_bytes(), b"new")
        self.assertEqual(self.names(), ["x.txt"])

    @parameterized.parameters(ValueError, KeyboardInterrupt)
    def test_block_that_raises_leaves_the_old_file_alone(self, kind):
        self.path.write_bytes(b"old")
        with self.assertRaises(kind):
            with files.replacing(self.path) as file:
                file.write(b"new")
                raise kind
        self.assertEqual(self.path.read_bytes(), b"old")
        self.assertEqual(self.names(), ["x.txt"])

    def test_an_end_that_fails_leaves_the_old_file_alone(self):
        self.path.write_bytes(b"old")
        fault = OSError(errno.EIO, "broken")
        with mock.patch.object(os, "fsync", side_effect=fault):
            with self.assertRaisesRegex(OSError, f"broken: '{self.path}'$"):
                files.write(self.path, "new")
        self.assertEqual(self.path.read_bytes(), b"old")
        self.assertEqual(self.names(), ["x.txt"])

    def test_a_name_that_cannot_be_had_is_named_and_not_the_temporary(self):
        with self.assertRaisesRegex(OSError, f"directory: '{self.path}'$"):
            with files.replacing(self.path):
                self.path.mkdir()
        self.assertEqual(self.names(), ["x.txt"])

    def test_link_at_the_temporary_name_is_not_followed(self):
        (self.folder / "x.txt.00000007.part").symlink_to(self.outside)
        with (
            mock.patch.object(
                files.secrets, "token_hex", return_value="00000007"
            ),
            self.assertRaisesRegex(FileExistsError, "x.txt'"),
        ):
            files.write(self.path, "new")
        self.assertEqual(self.outside.read_bytes(), b"mine")

    def test_content_is_on_the_disk_before_the_name_changes(self):
        called = mock.Mock()
        with (
            mock.patch.object(os, "fsync", called.fsync),
            mock.patch.object(os, "replace", called.replace),
        ):
            files.write(self.path, "new")
        self.assertEqual(
            [name for name, _, _ in called.mock_calls], ["fsync", "replace"]
        )

    @parameterized.parameters(0o600, 0o755, 0o440)
    def test_permissions_of_the_old_file_stay(self, mode):
        self.path.write_bytes(b"old")
        self.path.chmod(mode)
        files.write(self.path, "new")
        self.assertEqual(stat.S_IMODE(self.path.stat().st_mode), mode)

    def test_link_is_replaced_and_not_followed(self):
        for target in (self.outside, self.folder / "nowhere", self.folder):
            self.path.unlink(missing_ok=True)
            self.path.symlink_to(target)
            files.write(self.path, "new")
            self.assertFalse(self.path.is_symlink())
            self.assertEqual(self.path.read_bytes(), b"new")
        self.assertEqual(self.outside.read_bytes(), b"mine")
        self.assertEqual(self.names(), ["x.txt"])

    def test_folder_is_refused_before_anything_is_written(self):
        with self.assertRaises(IsADirectoryError) as raised:
            with files.replacing(self.folder):
                self.fail("The block has begun.")
        self.assertEqual(raised.exception.filename, str(self.folder))

    def test_pipe_is_written_to(self):
        os.mkfifo(self.path)
        found = []
        reader = threading.Thread(
            target=lambda: found.append(self.path.read_bytes())
        )
        reader.start()
        files.write(self.path, "new")
        reader.join()
        self.assertEqual(found, [b"new"])
        self.assertTrue(self.path.is_fifo())

    @parameterized.parameters("/dev/full", "x.txt")
    def test_a_device_or_a_pipe_that_takes_no_more_is_named(self, name):
        path = str(self.folder / name)
        with contextlib.suppress(FileExistsError):
            os.mkfifo(path)
        reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with self.assertRaises(OSError) as raised:
            with files.replacing(path) as file:
                os.close(reader)
                file.write(b"new")
        self.assertEqual(raised.exception.filename, path)

    def test_stream_of_the_process_is_written_to_and_stays(self):
        # Of /dev/stdout, a run as root would leave a plain file.
        self.path.write_bytes(b"before ")
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        self.addCleanup(os.close, descriptor)
        for name in (f"/dev/fd/{descriptor}", f"/proc/self/fd/{descriptor}"):
            files.write(name, "new ")
            self.assertTrue(os.path.islink(name))
        self.assertEqual(self.path.read_bytes(), b"before new new ")


class FolderTest(folders.TestCase):
    def setUp(self):
        super().setUp()
        self.path = self.folder / "a" / "x"

    def replace(self, content):
        with files.replacing_folder(self.path) as partial:
            (partial / "file").write_text(content)
            if content == "bad":
                raise KeyboardInterrupt

    def names(self):
        return [path.name for path in self.path.parent.iterdir()]

    def test_folder_appears_and_is_replaced_when_the_block_is_over(self):
        for content in ("one", "two"):
            self.replace(content)
            self.assertEqual((self.path / "file").read_text(), content)
            self.assertEqual(stat.S_IMODE(self.path.stat().st_mode), 0o755)
            self.assertEqual(self.names(), [self.path.name])

    def test_nothing_is_left_beside_it_and_what_a_link_names_stays(self):
        old = self.path.with_name(f".{self.path.name}.0123abcd.part.old")
        old.mkdir(parents=True)
        self.path.symlink_to(self.create_tempdir().full_path)
        self.replace("one")
        self.assertEqual(self.names(), [self.path.name])

    def test_block_that_raises_leaves_the_old_folder_alone(self):
        for before in ([], [self.path.name]):
            self.assertRaises(KeyboardInterrupt, self.replace, "bad")
            self.assertEqual(self.names(), before)
            self.replace("one")
        self.assertEqual((self.path / "file").read_text(), "one")

    def test_renaming_that_fails_leaves_the_old_folder_alone(self):
        self.replace("one")
        rename = os.rename

        def fail(source, target):
            if target == self.path and not str(source).endswith(files.OLD):
                raise OSError(errno.EIO, "broken")
            rename(source, target)

        with mock.patch.object(os, "rename", fail):
            self.assertRaisesRegex(OSError, "broken", self.replace, "two")
        self.assertEqual((self.path / "file").read_text(), "one")
        self.assertEqual(self.names(), [self.path.name])


class AppendingTest(folders.TestCase):
    def test_link_is_refused(self):
        outside, path = self.folder / "own", self.folder / "x.txt"
        path.symlink_to(outside)
        with self.assertRaisesRegex(OSError, "x.txt"):
            files.open_appending(path)
        self.assertFalse(outside.exists())
