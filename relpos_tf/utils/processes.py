"""Calls of a function in several processes, with the results in order.

The processes are started afresh, not forked: TensorFlow's threads would be
missing in a fork. They import what the called functions need, so these should
live in modules without TensorFlow.
"""

import collections
import itertools
import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from concurrent import futures
from concurrent.futures import process
from typing import Any

from relpos_tf import errors

# With fewer calls, the start of the processes would take longer.
_WORTHWHILE = 5


class LostError(errors.UserError):
    """A process of the pool was killed."""


class Pool:
    """Processes that start when there is enough to do, and end with the block.

    Args:
        number: int. Processes; with 1, this process does the work.

    Example:

    >>> with Pool(1) as pool:
    ...     list(pool.map(abs, [-1, 2]))
    [1, 2]
    """

    def __init__(self, number: int):
        self.number = number
        self._executor = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)
            self._executor = None

    def map(
        self, function: Callable[[Any], Any], arguments: Iterable[Any]
    ) -> Iterator[Any]:
        """Yields the result of each call, in the order of the arguments.

        Few arguments are taken from the iterable before they are needed.

        Args:
            function: A function of a module.
            arguments: Its argument for each call.

        Raises:
            LostError: a process was killed.
        """
        arguments = iter(arguments)
        if self.number > 1 and self._executor is None:
            first = list(itertools.islice(arguments, _WORTHWHILE))
            if len(first) == _WORTHWHILE:
                self._executor = _executor(self.number)
            arguments = itertools.chain(first, arguments)
        if self._executor is None:
            yield from map(function, arguments)
            return
        pending = collections.deque()
        try:
            for argument in arguments:
                pending.append(self._executor.submit(function, argument))
                if len(pending) > 2 * self.number:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        except process.BrokenProcessPool as error:
            raise LostError(
                "One of the processes that prepare data was killed, perhaps "
                "because memory ran out. Run again: finished parts are kept. "
                f"Take fewer processes than {self.number}."
            ) from error
        finally:
            for future in pending:
                future.cancel()


def available() -> int:
    """Returns the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def can_be_sent(value: Any) -> bool:
    """Returns whether a function or value can be sent to another process."""
    try:
        pickle.dumps(value)
    except (pickle.PicklingError, AttributeError, TypeError):
        return False
    return True


def _executor(number):
    return futures.ProcessPoolExecutor(
        number,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_begin,
    )


def _begin():
    """Prepares a process of the pool."""
    # A terminal sends Ctrl-C to all; the first process ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent():
    """Ends this process when the one that started it is killed."""
    multiprocessing.parent_process().join()
    os._exit(1)
