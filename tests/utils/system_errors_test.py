"""Tests of system errors: a full disk, too little memory, other errors."""

import errno
import os

import tensorflow as tf
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf.utils import system_errors


def tensorflow_error(name, message):
    return getattr(tf.errors, name)(None, None, message)


class SystemErrorsTest(parameterized.TestCase):
    @parameterized.parameters(
        (MemoryError(), "Out of memory. Lower x."),
        (
            tensorflow_error("ResourceExhaustedError", "OOM when allocating"),
            "Out of memory. Lower x.",
        ),
        (
            tensorflow_error("InternalError", "CUDA_ERROR_OUT_OF_MEMORY: x"),
            "Out of memory. Lower x.",
        ),
        (
            # The class is the one that also means memory.
            tensorflow_error(
                "ResourceExhaustedError", "a: No space left on device\nx"
            ),
            "cannot write: no space left on device. Make room",
        ),
        (
            tensorflow_error("UnknownError", "a; Disk quota exceeded"),
            "cannot write: disk quota exceeded. Make room",
        ),
    )
    def test_it_is_explained(self, error, message):
        self.assertEqual(
            system_errors.is_out_of_memory(error), "memory" in message
        )
        with self.assertRaisesRegex(errors.UserError, message):
            with system_errors.explained("Lower x."):
                raise error

    @parameterized.parameters(
        (ZeroDivisionError("out of memory"),),
        (tensorflow_error("InvalidArgumentError", "zoom"),),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "a/b"),),
        (errors.UserError("Out of memory. Other advice."),),
    )
    def test_others_pass(self, error):
        with self.assertRaises(type(error)) as caught:
            with system_errors.explained("Lower x."):
                raise error
        self.assertIs(caught.exception, error)

    @parameterized.parameters(
        (errno.ENOSPC, "a/b", "a/b: no space left on device. Make room."),
        (errno.EACCES, "a/b", "a/b: permission denied."),
        (errno.EDQUOT, None, "disk quota exceeded. Make room."),
        (errno.EACCES, None, None),  # a bug of the program
    )
    def test_errors_of_a_file_are_one_line(self, number, path, expected):
        error = OSError(number, os.strerror(number), path)
        self.assertEqual(system_errors.os_error_text(error), expected)
