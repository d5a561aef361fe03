"""How pytest runs the tests: the devices, the order, the fast part.

`durations.json` has the processor seconds of each file, as measured by
`make durations`. The longest files run first, so that no processor waits for
another at the end. `--fast` runs the shortest files only, as many as take
FAST_SECONDS together. A new file, which is not listed, counts as fast.

A test fails that leaves the process in another state than it found: see
`process_state`.
"""

import collections
import gc
import itertools
import json
import os
import pathlib
import signal
import sys

import pytest

# Before the first import of TensorFlow and Keras, which read them. Commands
# that run in this process set both.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["KERAS_BACKEND"] = "tensorflow"

FOLDER = pathlib.Path(__file__).resolve().parent
DURATIONS = FOLDER / "durations.json"
FAST_SECONDS = 150.0
_HAS_AFFINITY = hasattr(os, "sched_getaffinity")


def pytest_addoption(parser):
    parser.addoption(
        "--fast",
        action="store_true",
        help=f"run the shortest files, {FAST_SECONDS:.0f} processor seconds",
    )
    parser.addoption(
        "--write_durations",
        action="store_true",
        help=f"write {DURATIONS.name}; for a run of all tests",
    )


@pytest.hookimpl(optionalhook=True)  # without pytest-xdist there is none
def pytest_xdist_auto_num_workers():
    """Returns one process more than cores, since some tests wait for others.

    A process takes up to 3.7 GB.
    """
    cores = len(os.sched_getaffinity(0)) if _HAS_AFFINITY else os.cpu_count()
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(1, min(cores + 1, int(memory / 4e9)))


def pytest_configure(config):
    """Splits the CPU in two before any test module is imported.

    TensorFlow allows it only before its first operation, and some modules
    compute when they are imported. A process of pytest-xdist that only
    distributes tests does not need TensorFlow.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as after `make &`
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.getoption("write_durations"):
        config.pluginmanager.register(_Durations())
    if config.getoption("dist", "no") != "no":
        return
    gc.disable()  # until all tests are imported
    from tests import testing

    testing.use_two_cpus()
    testing.keep_kernels()
    config.pluginmanager.register(_StateCheck())


def pytest_collection_finish(session):
    """Lets the garbage collector search what tests make, not all modules."""
    del session
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)
    gc.enable()


def pytest_collection_modifyitems(config, items):
    """Orders the files; drops the test that `tf.test.TestCase` skips."""
    seconds = json.loads(DURATIONS.read_text(encoding="utf-8"))
    left = [item for item in items if item.name != "test_session"]
    if config.getoption("fast"):
        slow = slow_files(seconds)
        config.hook.pytest_deselected(
            items=[item for item in left if file_name(item) in slow]
        )
        left = [item for item in left if file_name(item) not in slow]
    left.sort(key=lambda item: seconds.get(file_name(item), 0.0), reverse=True)
    items[:] = left


def file_name(item):
    """Returns the file of a test, relative to this folder."""
    return item.path.relative_to(FOLDER).as_posix()


def slow_files(seconds):
    """Returns the names of the files that `--fast` leaves out."""
    names = sorted(seconds, key=seconds.get)
    totals = itertools.accumulate(map(seconds.get, names))
    return {
        name
        for name, total in zip(names, totals, strict=True)
        if total > FAST_SECONDS
    }


def process_state():
    """Returns what a test may change, but must change back, by name.

    The state of TensorFlow and Keras is the default until they are imported.
    """
    try:
        folder = os.getcwd()
    except FileNotFoundError:
        folder = None
    state = {"the working directory": folder, "op determinism": False}
    if config := sys.modules.get("tensorflow.python.framework.config"):
        state["op determinism"] = config.is_op_determinism_enabled()
    if keras := sys.modules.get("keras"):
        state["Keras' dtype policy"] = keras.config.dtype_policy().name
        state["Keras' floatx"] = keras.config.floatx()
    else:
        names = "Keras' dtype policy", "Keras' floatx"
        state |= dict.fromkeys(names, "float32")
    for name, value in os.environ.items():
        # pytest sets the first, packages that use OpenMP the others on import.
        if name != "PYTEST_CURRENT_TEST" and not name.startswith("KMP_"):
            state[f"os.environ[{name!r}]"] = value
    return state


class _StateCheck:
    """Makes a test or file fail that leaves another state than it found."""

    def __init__(self):
        self._file = None
        self._before = None  # the first test of the file

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item):
        if self._file != item.path:
            self._file, self._before = item.path, process_state()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item):
        before = process_state()
        result = yield
        check_process_state(before, item.name)
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item, nextitem):
        result = yield
        if nextitem is None or nextitem.path != item.path:
            check_process_state(self._before, file_name(item))
        return result


def check_process_state(before, name):
    """Fails in the name of a test or file unless the state is as before."""
    after = process_state()
    changes = [
        f"{key} from {before.get(key)!r} to {after.get(key)!r}"
        for key in before | after
        if before.get(key) != after.get(key)
    ]
    if changes:
        pytest.fail(
            f"{name} must leave the process as it found it. Received: it "
            f"changed {', '.join(changes)}. Restore it with addCleanup.",
            pytrace=False,
        )


class _Durations:
    """Measures the files in each process, and writes the sum at the end."""

    def __init__(self):
        self._seconds = collections.Counter()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        begin = sum(os.times()[:4])  # of this process and its children
        result = yield
        self._seconds[file_name(item)] += sum(os.times()[:4]) - begin
        return result

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node):
        self._seconds.update(node.workeroutput["seconds"])

    def pytest_sessionfinish(self, session):
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["seconds"] = dict(self._seconds)
            return
        rounded = {
            name: round(seconds, 1)
            for name, seconds in sorted(self._seconds.items())
        }
        text = json.dumps(rounded, indent=0) + "\n"
        DURATIONS.write_text(text, encoding="utf-8")
