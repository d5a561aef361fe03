"""How pytest runs the tests: the devices, the order, the fast part.

`durations.json` has the processor seconds of each file, as measured by
`make durations`. The longest files run first, so that no processor waits for
another at the end. `--fast` runs the shortest files only, as many as take
FAST_SECONDS together. A new file, which is not listed, counts as fast.
"""

import collections
import itertools
import json
import os
import pathlib

import pytest

# Before the first import of TensorFlow, which reads it.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

FOLDER = pathlib.Path(__file__).resolve().parent
DURATIONS = FOLDER / "durations.json"
FAST_SECONDS = 150.0


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


def pytest_configure(config):
    """Splits the CPU in two before any test module is imported.

    TensorFlow allows it only before its first operation, and some modules
    compute when they are imported. A process of pytest-xdist that only
    distributes tests does not need TensorFlow.
    """
    if config.getoption("write_durations"):
        config.pluginmanager.register(_Durations())
    if config.getoption("dist", "no") != "no":
        return
    from tests import testing

    testing.use_two_cpus()


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
