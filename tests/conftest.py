"""pytest's view of the tests."""

import os

# Before the first import of TensorFlow, which reads it.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def pytest_configure():
    """Splits the CPU in two before any test module is imported.

    TensorFlow allows it only before its first operation, and some modules
    compute when they are imported.
    """
    from tests import testing

    testing.use_two_cpus()


def pytest_collection_modifyitems(items):
    """Drops the test that `tf.test.TestCase` skips; puts the longest first.

    A file of few long tests at the very end would keep one processor waiting.
    """
    items[:] = [item for item in items if item.name != "test_session"]
    items.sort(key=lambda item: item.path.parent.name != "integration")
