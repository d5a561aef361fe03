"""Tests of system errors: a full disk, too little memory, other errors."""

import errno
import os

import tensorflow as tf
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf.utils import system_errors


def tensorflow_error(name, message):
    return getattr(tf.errors, name)(None, None, message)


def reading_error(message):
    """Returns what TensorFlow raises for a mistake while batches are read."""

    def read():
        yield 1
        raise errors.UserError(message)

    spec = tf.TensorSpec([], tf.int64)
    dataset = tf.data.Dataset.from_generator(read, output_signature=spec)
    try:
        return list(dataset.prefetch(2))
    except tf.errors.OpError as error:
        return error


class SystemErrorsTest(parameterized.TestCase):
    @parameterized.parameters(
        (MemoryError(), "^Out of memory. .*batch_size"),
        (
            tensorflow_error("InternalError", "CUDA_ERROR_OUT_OF_MEMORY: x"),
            "^Out of memory. .*batch_size",
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
        (
            OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "a/b"),
            f"^a/b: no space left on device. Make room in {os.getcwd()}/a.$",
        ),
        (
            OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)),
            "^disk quota exceeded. Make room.$",
        ),
        (
            OSError(errno.EACCES, os.strerror(errno.EACCES), "a/b"),
            "^a/b: permission denied.$",
        ),
        (errors.UserError("Out of money."), "^Out of money.$"),
        (reading_error("Out of money."), "^Out of money.$"),
    )
    def test_it_is_explained(self, error, message):
        found = system_errors.explanation(error)
        self.assertRegex(found, message)
        self.assertEqual(
            system_errors.is_out_of_memory(error), "Out of memory" in found
        )
        self.assertNotIn("\n", found)

    @parameterized.parameters(
        (ZeroDivisionError("out of memory"),),
        (tensorflow_error("InvalidArgumentError", "zoom"),),
        (OSError(errno.EACCES, os.strerror(errno.EACCES)),),
    )
    def test_bugs_are_not(self, error):
        self.assertIsNone(system_errors.explanation(error))
