"""Calls of functions in several processes.

The processes are started afresh, not forked: TensorFlow's threads would be
missing in a fork. They import what the called functions need, so these should
live in modules without TensorFlow.
"""

import collections
import itertools
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from concurrent import futures
from multiprocessing import connection
from typing import Any

from relpos_tf import errors

# With fewer calls, the start of the processes would take longer.
_WORTHWHILE = 5


def ordered_map(
    function: Callable[[Any], Any], arguments: Iterable[Any], number: int
) -> Iterator[Any]:
    """Yields the result of each call, in the order of the arguments.

    Few arguments are taken from the iterable before they are needed. The
    processes start when there is enough to do for them.

    Args:
        function: A function of a module.
        arguments: Its argument for each call.
        number: int. Processes; with 1, this process does the work.

    Raises:
        UserError: a process was killed.

    Example:
    >>> list(ordered_map(abs, [-1, 2], 1))
    [1, 2]
    """
    arguments = iter(arguments)
    first = list(itertools.islice(arguments, _WORTHWHILE))
    arguments = itertools.chain(first, arguments)
    if number == 1 or len(first) < _WORTHWHILE:
        yield from map(function, arguments)
        return
    executor = futures.ProcessPoolExecutor(
        number,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_watch_parent,
    )
    pending: collections.deque[futures.Future] = collections.deque()
    try:
        for argument in arguments:
            pending.append(_submit(executor, function, argument))
            if len(pending) > 2 * number:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    except futures.BrokenExecutor as error:
        raise errors.UserError(
            "One of the processes that prepare data was killed, perhaps "
            "because memory ran out. For less memory, prepare the data before, "
            f"by relpos-datagen with --num_processes={number // 2}."
        ) from error
    finally:
        executor.shutdown(cancel_futures=True)


def usable_cores() -> int:
    """Returns how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _submit(executor, function, argument):
    """Submits a call; a process that it starts never gets Ctrl-C.

    A terminal sends Ctrl-C to all, and SIGHUP at its end; the first process
    ends the others.
    """
    sent_to_all = {signal.SIGINT, signal.SIGHUP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, sent_to_all)
    try:
        return executor.submit(function, argument)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _watch_parent():
    """Prepares a process, which ends when the one that started it does."""
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent():
    """Ends this process when the one that started it is killed."""
    connection.wait([multiprocessing.parent_process().sentinel])
    os._exit(1)
