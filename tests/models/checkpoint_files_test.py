"""A checkpoint's files: a kill between any two operations loses nothing."""

import collections
import contextlib
import os
import pathlib
import shutil
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf.models import checkpoints

Usage = collections.namedtuple("Usage", "total used free")


class Kill(BaseException):
    """Stands for SIGKILL: nothing is cleaned up after it."""


@contextlib.contextmanager
def killed_at(number):
    """Raises in place of the file operation with that number, from 0 on."""
    left = number
    operations = {
        (os, "replace"): os.replace,
        (pathlib.Path, "unlink"): pathlib.Path.unlink,
    }

    def wrapped(operation):
        def function(*args, **kwargs):
            nonlocal left
            if left == 0:
                raise Kill
            left -= 1
            return operation(*args, **kwargs)

        return function

    with contextlib.ExitStack() as stack:
        for (owner, name), operation in operations.items():
            stack.enter_context(
                mock.patch.object(owner, name, wrapped(operation))
            )
        yield


class MoveTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)
        self.prefix = str(self.folder / "ckpt-20")

    def write(self, prefix, value):
        variables = {"a/b": tf.Variable(tf.fill([7], value))}
        tf.train.Checkpoint(model=variables).write(prefix)

    def restored(self):
        """Returns what a new run finds, or None."""
        variable = tf.Variable(tf.zeros([7]))
        manager = checkpoints.CheckpointManager(
            self.folder, {"model": {"a/b": variable}}
        )
        if not manager.latest():
            return None
        self.assertEqual(manager.restore(), self.prefix)
        self.assertEqual(len(set(variable.numpy().tolist())), 1)
        return float(variable[0])

    @parameterized.parameters(False, True)
    def test_kill_at_any_operation_leaves_one_of_the_two(self, is_replaced):
        found = []
        for number in range(20):
            shutil.rmtree(self.folder)
            self.folder.mkdir()
            if is_replaced:
                self.write(self.prefix, 3.0)
            self.write(f"{self.prefix}_temp", 5.0)
            try:
                with killed_at(number):
                    checkpoints.move(f"{self.prefix}_temp", self.prefix)
            except Kill:
                found.append(self.restored())
            else:
                break
            names = sorted(path.suffix for path in self.folder.iterdir())
            self.assertNotIn(".part", names)
            self.assertEmpty(
                [p for p in self.folder.iterdir() if "_" in p.name]
            )
        else:
            self.fail("The move needs 20 operations or more.")
        self.assertEqual(self.restored(), 5.0)
        before = 3.0 if is_replaced else None
        self.assertEqual(found, sorted(found, key=lambda x: x == 5.0))
        self.assertEqual(set(found), {before, 5.0})

    def test_damaged_one_of_that_name_goes(self):
        pathlib.Path(f"{self.prefix}.index.damaged").write_bytes(b"x")
        self.write(f"{self.prefix}_temp", 5.0)
        checkpoints.move(f"{self.prefix}_temp", self.prefix)
        self.assertCountEqual(
            os.listdir(self.folder),
            ["ckpt-20.index", "ckpt-20.data-00000-of-00001"],
        )

    def test_half_of_a_new_one_is_removed(self):
        self.write(self.prefix, 3.0)
        half = pathlib.Path(f"{self.prefix}_new.data-00000-of-00001")
        half.write_bytes(b"x")
        (self.folder / ".metrics.jsonl.part").write_bytes(b"x")
        self.assertEqual(self.restored(), 3.0)
        self.assertCountEqual(
            os.listdir(self.folder),
            ["ckpt-20.index", "ckpt-20.data-00000-of-00001", "checkpoint"],
        )


class RoomTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)
        self.model = {"a": tf.Variable(np.arange(1000, dtype=np.float32))}

    def free(self, number):
        return mock.patch.object(
            shutil, "disk_usage", return_value=Usage(10**9, 0, number)
        )

    def test_too_little_room_is_said_before_training(self):
        with (
            self.free(6_999_999),
            self.assertRaisesRegex(
                errors.UserError,
                r"7\.1 MB\. Received: 7\.0 MB free\. Make room",
            ),
        ):
            checkpoints.check_room(self.folder / "not/there", 7_100_000)
        with self.free(7_100_000):
            checkpoints.check_room(self.folder / "not/there", 7_100_000)

    @parameterized.parameters((3_999, True), (90_000, False))
    def test_save_warns_when_the_next_one_would_not_fit(self, free, expected):
        manager = checkpoints.CheckpointManager(
            self.folder, {"model": self.model}
        )
        logs = self.assertLogs if expected else self.assertNoLogs
        with self.free(free), logs("relpos_tf", "WARNING") as found:
            manager.save(7)
        if expected:
            self.assertIn("Make room now", found.output[0])


if __name__ == "__main__":
    absltest.main()
