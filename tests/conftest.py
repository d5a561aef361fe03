"""pytest's view of the tests."""

import os

# Before the first import of TensorFlow, which reads it.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def pytest_collection_modifyitems(items):
    """Drops the test that `tf.test.TestCase` skips; puts the longest first.

    A file of few long tests at the very end would keep one processor waiting.
    """
    items[:] = [item for item in items if item.name != "test_session"]
    items.sort(key=lambda item: item.path.parent.name != "integration")
