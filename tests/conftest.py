"""How pytest runs the tests: two devices, few skips, no test that leaks."""

import gc
import os
import signal

import pytest

# Before the first import of TensorFlow and Keras, which read them. Commands
# that run in this process set both.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["KERAS_BACKEND"] = "tensorflow"

LONG = "integration", "training", "models", "decoding", "export"


def pytest_configure(config):
    """Splits the CPU in two before any test module is imported.

    TensorFlow allows it only before its first operation, and some modules
    compute when they are imported. A process of pytest-xdist that only
    distributes tests does not need TensorFlow.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as after `make &`
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.getoption("dist", "no") == "no":
        from tests import testing

        testing.use_two_cpus()
        testing.keep_kernels()


def pytest_collection_modifyitems(items):
    """Drops the test that every `tf.test.TestCase` has, and skips.

    Long files come first, so that no processor waits for another at the end.
    """
    items[:] = [item for item in items if item.name != "test_session"]
    items.sort(key=lambda item: item.path.parent.name not in LONG)


def pytest_collection_finish():
    """Lets the garbage collector search what tests make, not all modules."""
    gc.freeze()


@pytest.fixture(autouse=True)
def _process_is_left_as_found():
    """Makes a test fail that changes what later tests depend on."""
    before = _state()
    yield
    assert _state() == before, "Restore it with addCleanup."


def _state():
    import keras
    from tensorflow.python.framework import config

    from relpos_tf import registry

    return {
        "working directory": os.getcwd(),
        "op determinism": config.is_op_determinism_enabled(),
        "imported folders": [*registry.usr_dirs],
        "dtype policy": keras.config.dtype_policy().name,
        # pytest sets the first, packages that use OpenMP the others.
        "environment": {
            name: value
            for name, value in os.environ.items()
            if name != "PYTEST_CURRENT_TEST" and not name.startswith("KMP_")
        },
    }
