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
import pickle
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
from relpos_tf import registry
from relpos_tf.utils import slots

# With fewer calls, the start of the processes would take longer.
_WORTHWHILE = 5


class LostError(errors.UserError):
    """A process of a pool was killed."""


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
            function: A function of a module, also of a folder that
                `registry.import_usr_dir` has imported.
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
        pending, usr_dirs = collections.deque(), registry.usr_dirs()
        try:
            for argument in arguments:
                call = pickle.dumps((function, argument))
                pending.append(self._executor.submit(_call, call, usr_dirs))
                if len(pending) > 2 * self.number:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        except process.BrokenProcessPool as error:
            raise LostError(
                "One of the processes that prepare data was killed, perhaps "
                "because memory ran out. Run again: finished parts are kept. "
                "For less memory, prepare the data before, by relpos-datagen "
                f"with --num_processes={self.number // 2}."
            ) from error
        finally:
            for future in pending:
                future.cancel()


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


def _call(content: bytes, usr_dirs: Sequence[str]) -> Any:
    """Calls a function in a process of `Pool`.

    What comes in bytes is loaded here: the process would die of an error in
    what it receives.

    Args:
        content: The function and its argument, by `pickle`.
        usr_dirs: Folders of the user's own registrations. They are imported
            only if need be, since they may import anything.
    """
    try:
        function, argument = pickle.loads(content)
    except ModuleNotFoundError:
        for path in usr_dirs:
            registry.import_usr_dir(path)
        function, argument = pickle.loads(content)
    return function(argument)


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
    """Prepares a process of the pool, which ends when one of `lives` does."""
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
