"""Tests that write to a folder."""

import os
import pathlib

from absl.testing import parameterized

from relpos_tf.utils import files


class TestCase(parameterized.TestCase):
    """Has a folder, which goes after the test.

    Attributes:
        folder: `pathlib.Path`.
    """

    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)

    def enter_folder(self):
        """Makes it the working directory of the test."""
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder)

    def write(self, name, *lines):
        """Writes lines to a file in the folder; returns its path."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
        return path


def checksums(folder):
    """Returns the checksum of every file of a folder, by its name there."""
    return {
        str(path.relative_to(folder)): files.sha256(path)
        for path in folder.rglob("*")
        if path.is_file()
    }
