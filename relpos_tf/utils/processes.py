"""Calls of functions in several processes.

The processes are started afresh, not forked: TensorFlow's threads would be
missing in a fork. They import what the called functions need, so these should
live in modules without TensorFlow.
"""

import collections
import contextlib
import functools
import itertools
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from concurrent import futures
from concurrent.futures import process
from multiprocessing import connection
from typing import Any

from relpos_tf import errors
from relpos_tf.utils import slots

# With fewer calls, the start of the processes would take longer.
_WORTHWHILE = 5


class LostError(errors.UserError):
    """A process of a pool was killed."""


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
        LostError: a process was killed.

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
        initializer=_begin,
    )
    pending = collections.deque()
    try:
        for argument in arguments:
            with _without_interrupts():
                pending.append(executor.submit(function, argument))
            if len(pending) > 2 * number:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    except process.BrokenProcessPool as error:
        raise LostError(
            "One of the processes that prepare data was killed, perhaps "
            "because memory ran out. For less memory, prepare the data before, "
            f"by relpos-datagen with --num_processes={number // 2}."
        ) from error
    finally:
        executor.shutdown(cancel_futures=True)


class Workers:
    """Processes that start with the block and end with it.

    They keep what they have loaded from call to call. If the block raises, they
    end in the middle of their calls.

    Args:
        parts: The part of the machine for each.
        prepare: Function of a module, without arguments, that each calls first.

    Example:

        with Workers([slots.Slot(), slots.Slot()]) as workers:
            waits = [workers.call(abs, number) for number in (-1, 2)]
            [wait() for wait in waits]  # [1, 2]
    """

    def __init__(
        self,
        parts: Sequence[slots.Slot],
        prepare: Callable[[], Any] | None = None,
    ):
        self.number = len(parts)
        context = multiprocessing.get_context("spawn")
        queue = context.SimpleQueue()
        for part in parts:
            queue.put((dict(part.environment), part.cores))
        # The processes end when this end of the pipe is closed.
        life, self._life = context.Pipe(duplex=False)
        self._executor = futures.ProcessPoolExecutor(
            self.number,
            mp_context=context,
            initializer=_begin_worker,
            initargs=(queue, life, prepare),
        )

    def __enter__(self):
        try:
            # As many calls as processes: each starts one.
            for _ in range(self.number):
                self.call(int)
        except BaseException:
            self._end(at_once=True)
            raise
        return self

    def __exit__(self, kind, *_):
        self._end(at_once=kind is not None)

    def _end(self, at_once):
        if at_once:
            self._life.close()
        self._executor.shutdown(cancel_futures=True)
        self._life.close()

    def call(
        self, function: Callable[..., Any], *arguments: Any
    ) -> Callable[[], Any]:
        """Begins a call in the first process that is free.

        Args:
            function: A function of a module.
            *arguments: Its arguments.

        Returns:
            A function without arguments that waits for the result. It raises
            what the call raised, or LostError if a process was killed.
        """
        with self._explained(), _without_interrupts():
            future = self._executor.submit(_work, function, arguments)
        return functools.partial(self._result, future)

    def _result(self, future):
        with self._explained():
            return future.result()

    @contextlib.contextmanager
    def _explained(self):
        try:
            yield
        except process.BrokenProcessPool as error:
            raise LostError(
                f"One of {self.number} worker processes was killed, perhaps "
                "because memory ran out. Take fewer of them, or give each "
                "less to do at once."
            ) from error


def available() -> int:
    """Returns the number of cores that this process may use."""
    return len(slots.usable_cores())


@contextlib.contextmanager
def _without_interrupts():
    """Delays Ctrl-C to the end of the block, and for ever in new processes.

    Python would answer it with a traceback before a process can ignore it.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(*lives):
    """Prepares a process, which ends when one of `lives` does."""
    # A terminal sends Ctrl-C to all; the first process ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=lives, daemon=True).start()


class _Worker:
    """The state of a process of `Workers`."""

    prepare: Callable[[], Any]  # does something at its first call only


def _begin_worker(queue, life, prepare):
    """Prepares a process of `Workers`: takes its part of the machine."""
    environment, cores = queue.get()
    os.environ.update(environment)
    if cores:
        os.sched_setaffinity(0, cores)  # also of the threads to come
    # A batch system sends it to all, and the first process ends the others.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # Not here: what an initializer raises is not told to the first process.
    _Worker.prepare = functools.cache(prepare or int)
    _begin(life)


def _end_with(*lives):
    """Ends this process when the one that started it is killed."""
    connection.wait([multiprocessing.parent_process().sentinel, *lives])
    os._exit(1)


def _work(function, arguments):
    """Calls a function in a process of `Workers`."""
    _Worker.prepare()
    return function(*arguments)
