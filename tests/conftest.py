"""pytest's view of the tests."""

import os

# Before the first import of TensorFlow, which reads it.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def pytest_collection_modifyitems(items):
    """Drops the test that every `tf.test.TestCase` inherits and skips."""
    items[:] = [item for item in items if item.name != "test_session"]
