"""Tests of system errors: a full disk, too little memory, other errors."""

import errno
import os

import tensorflow as tf
from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf.utils import system_errors


def tensorflow_error(kind, message):
    return kind(None, None, message)


EXHAUSTED = tf.errors.ResourceExhaustedError


class FaultsTest(parameterized.TestCase):
    @parameterized.named_parameters(
        ("python", MemoryError()),
        (
            "cpu",
            tensorflow_error(EXHAUSTED, "OOM when allocating tensor [7,11]"),
        ),
        (
            "driver",
            tensorflow_error(
                tf.errors.InternalError, "CUDA_ERROR_OUT_OF_MEMORY: x"
            ),
        ),
        (
            "library",
            tensorflow_error(
                tf.errors.UnknownError, "x\nFailed to allocate 7 bytes"
            ),
        ),
    )
    def test_memory(self, error):
        self.assertTrue(system_errors.is_out_of_memory(error))
        self.assertFalse(system_errors.is_full_disk(error))
        with self.assertRaises(errors.UserError) as caught:
            with system_errors.explained("Lower x."):
                raise error
        self.assertEqual(str(caught.exception), "Out of memory. Lower x.")

    @parameterized.named_parameters(
        ("space", "A/ckpt-7_temp: No space left on device"),
        ("quota", "a/ckpt-7_temp: Disk quota exceeded"),
        ("limit", "a/ckpt-7_temp: File too large"),
    )
    def test_disk_of_tensorflow(self, message):
        # The class is the one that also means memory.
        error = tensorflow_error(
            EXHAUSTED,
            f"While saving:\n{{{{function_node x}}}} {message} [Op:Y]\nat x",
        )
        self.assertTrue(system_errors.is_full_disk(error))
        self.assertFalse(system_errors.is_out_of_memory(error))
        with self.assertRaises(errors.UserError) as caught:
            with system_errors.explained("Lower x."):
                raise error
        self.assertEqual(
            str(caught.exception),
            f"Cannot write: {message}. Make room.",
        )

    @parameterized.named_parameters(
        ("bug", ZeroDivisionError("out of memory")),
        ("shape", tensorflow_error(tf.errors.InvalidArgumentError, "zoom")),
        ("file", OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "a/b")),
        ("user_error", errors.UserError("Out of memory. Other advice.")),
    )
    def test_others_pass(self, error):
        with self.assertRaises(type(error)) as caught:
            with system_errors.explained("Lower x."):
                raise error
        self.assertIs(caught.exception, error)

    @parameterized.named_parameters(
        ("full", errno.ENOSPC, "no space left on device. Make room and run ag"),
        ("quota", errno.EDQUOT, "disk quota exceeded. Make room and run again"),
        ("denied", errno.EACCES, r"permission denied\.$"),
    )
    def test_write(self, number, expected):
        with self.assertRaisesRegex(
            errors.UserError, f"^Cannot write a/b: {expected}"
        ):
            with system_errors.writing("a/b"):
                raise OSError(number, os.strerror(number))


if __name__ == "__main__":
    absltest.main()
