"""A test that changes the state of the process fails."""

import os
import tempfile
from unittest import mock

import keras
import pytest
import tensorflow as tf
from absl.testing import absltest
from absl.testing import parameterized
from tensorflow.python.framework import config

from tests import conftest


class ProcessStateTest(parameterized.TestCase):
    @parameterized.named_parameters(
        (
            "folder",
            lambda: os.chdir(tempfile.gettempdir()),
            r"the working directory from '.*' to ",
        ),
        (
            "determinism",
            tf.config.experimental.enable_op_determinism,
            "op determinism from False to True",
        ),
        (
            "policy",
            lambda: keras.config.set_dtype_policy("mixed_bfloat16"),
            "Keras' dtype policy from 'float32' to 'mixed_bfloat16'",
        ),
        (
            "new_variable",
            lambda: os.environ.update(ADDED="1"),
            r"os.environ\['ADDED'\] from None to '1'",
        ),
        (
            "no_variable",
            lambda: os.environ.pop("PATH"),
            r"os.environ\['PATH'\] from '.*' to None",
        ),
    )
    def test_a_change_is_named(self, change, message):
        self.addCleanup(os.chdir, os.getcwd())
        self.addCleanup(config.disable_op_determinism)
        self.addCleanup(
            keras.config.set_dtype_policy, keras.config.dtype_policy()
        )
        before = conftest.process_state()
        conftest.check_process_state(before, "test_x")
        with mock.patch.dict(os.environ):
            change()
            with self.assertRaisesRegex(
                pytest.fail.Exception, f"test_x must leave .*changed {message}"
            ):
                conftest.check_process_state(before, "test_x")


if __name__ == "__main__":
    absltest.main()
