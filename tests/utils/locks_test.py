"""Tests of locks: the second trainer in a directory is refused."""

import pathlib
import subprocess
import sys
from unittest import mock

from relpos_tf import errors
from relpos_tf.utils import locks
from tests import folders

CHILD = """
import sys
from relpos_tf.utils import locks
locks.acquire_exclusive(sys.argv[1])
print("locked", flush=True)
sys.stdin.read()
"""


class LocksTest(folders.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = self.folder / "a" / "b"

    def test_second_process_is_refused_until_the_first_is_gone(self):
        with subprocess.Popen(
            [sys.executable, "-c", CHILD, str(self.folder)],
            cwd=pathlib.Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as child:
            self.assertEqual(child.stdout.readline(), b"locked\n")
            with self.assertRaisesRegex(errors.UserError, "is training in"):
                locks.acquire_exclusive(self.folder)
            self.assertTrue(locks.is_locked(self.folder))
            child.kill()
        self.assertFalse(locks.is_locked(self.folder))
        for folder in (self.folder, str(self.folder)):
            locks.acquire_exclusive(folder)
        self.assertTrue(locks.is_locked(self.folder))
        self.assertEmpty(list(self.folder.iterdir()))

    def test_file_system_without_locks_is_no_obstacle(self):
        error = OSError(95, "Operation not supported")
        with mock.patch.object(locks.fcntl, "flock", side_effect=error):
            locks.acquire_exclusive(self.folder)
            self.assertTrue(locks.is_locked(self.folder))  # maybe
